//! Tests that compare the cuBLAS calls for products with sums of single elements.

use super::matrix::{Matrix, Pairs};
use super::*;
use crate::device::DevicePtr;

#[cfg(feature = "cuda")]
pub(super) const KINDS: [ProductKind; 10] = [
    ProductKind::F16,
    ProductKind::Bf16,
    ProductKind::F32,
    ProductKind::F64,
    ProductKind::C32,
    ProductKind::C64,
    ProductKind::Of8,
    ProductKind::Of16,
    ProductKind::Of32,
    ProductKind::Of64,
];

#[cfg(feature = "cuda")]
#[test]
fn products_of_integers_compile() {
    for numbering in crate::ops::cuda::copy::tests::numberings() {
        let sources = [
            ProductKind::Of8,
            ProductKind::Of16,
            ProductKind::Of32,
            ProductKind::Of64,
        ];
        let sources = sources.map(|kind| blocks_source(kind, numbering));
        crate::device::cuda::compile_for_all(&sources);
    }
}

/// The addresses of the operands and of the product.
const PLACES: [u64; 3] = [1 << 20, 1 << 30, 1 << 40];

/// Returns the test value at `index` of the memory of an operand.
fn number(operand: usize, index: usize) -> i64 {
    ((index * 7 + operand * 3) % 11) as i64 - 5
}

/// Simulates the cuBLAS calls for the pairs, and returns the products. The calls must write each
/// product exactly once.
fn by_calls(pairs: &Pairs) -> Vec<i64> {
    let [left, right, target] = PLACES.map(DevicePtr);
    let [rows, _, columns] = pairs.lengths();
    let mut product = vec![None; pairs.places.count() * rows * columns];
    let target = ProductTarget {
        address: target,
        element: GemmType::F32,
        is_begun: false,
    };
    let gemms = pairs.gemms(GemmType::F32, [left, right], target);
    for gemm in gemms.expect("both stand in rows or columns") {
        for call in gemm.calls().unwrap() {
            // Returns the index of the element at `address`, in one of three memories.
            let of = |address: DevicePtr, memory: usize| {
                let bytes = address.0 - PLACES[memory];
                assert!(bytes.is_multiple_of(4) && bytes < 1 << 19);
                (bytes / 4) as usize
            };
            let [m, n, k] = call.lengths.map(|length| length as usize);
            let [first, second, third] = call.leading.map(|leading| leading as usize);
            let least = [[m, k], [k, n]].map(|[down, along]| [down, along]);
            for ((transposed, leading), [plain, turned]) in
                call.transposed.into_iter().zip([first, second]).zip(least)
            {
                assert!(
                    leading >= if transposed { turned } else { plain },
                    "cuBLAS refuses it"
                );
            }
            assert!(third >= m, "cuBLAS refuses it");
            for (batch, row, column) in indices([call.count as usize, m, n]) {
                let at = |operand: usize, down: usize, along: usize, leading: usize| {
                    let (down, along) = match call.transposed[operand] {
                        true => (along, down),
                        false => (down, along),
                    };
                    let step = call.steps[operand] as usize;
                    down + along * leading + batch * step
                };
                let sum = (0..k).map(|step| {
                    // cuBLAS multiplies in column-major order, so the calls exchange the two
                    // factors.
                    let right = of(call.addresses[0], 1) + at(0, row, step, first);
                    let left = of(call.addresses[1], 0) + at(1, step, column, second);
                    number(1, right) * number(0, left)
                });
                let place = of(call.addresses[2], 2) + batch * call.steps[2] as usize;
                let slot = &mut product[place + column * third + row];
                assert_eq!(slot.replace(sum.sum()), None, "written twice");
            }
        }
    }
    let whole: Option<Vec<i64>> = product.into_iter().collect();
    whole.expect("all products are written")
}

fn indices([outer, middle, inner]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..outer).flat_map(move |a| (0..middle).flat_map(move |b| (0..inner).map(move |c| (a, b, c))))
}

/// Returns the products by their definition, from the strides of the layouts.
fn by_sums(left: &Layout, right: &Layout) -> Vec<i64> {
    let (left_places, left_matrix) = left.split_at(left.ndim() - 2);
    let (right_places, right_matrix) = right.split_at(right.ndim() - 2);
    let mut product = Vec::new();
    // Each operand has its own walk. In `Pairs`, one walk covers both operands.
    let [left_walk, right_walk] = [Layout::walk([&left_places]), Layout::walk([&right_places])];
    let left_all = left_walk.each(0..left_walk.count());
    for ([left_at], [right_at]) in left_all.zip(right_walk.each(0..right_walk.count())) {
        let place = |first: usize, matrix: &Layout, row: usize, column: usize| {
            let [down, along] = [0, 1].map(|axis| matrix.strides()[axis]);
            first.wrapping_add_signed(row as isize * down + column as isize * along)
        };
        for row in 0..left_matrix.dims()[0] {
            for column in 0..right_matrix.dims()[1] {
                let sum = (0..left_matrix.dims()[1]).map(|step| {
                    let left = number(0, place(left_at, &left_matrix, row, step));
                    left * number(1, place(right_at, &right_matrix, step, column))
                });
                product.push(sum.sum());
            }
        }
    }
    product
}

/// Returns layouts of three matrices of shape `[rows, columns]`. Some layouts broadcast one matrix.
fn layouts(rows: usize, columns: usize) -> Vec<Layout> {
    let dense = |dims: &[usize]| Layout::contiguous(&dims.into()).unwrap();
    let every_other = |layout: Layout| {
        let parts = [
            ndarray::SliceInfoElem::from(..),
            ndarray::SliceInfoElem::from(1..=rows as isize),
            ndarray::SliceInfoElem::from(0..columns as isize),
        ];
        layout.slice("slice", &parts).unwrap()
    };
    let shape = Shape::from([3, rows, columns]);
    vec![
        dense(&[3, rows, columns]),
        dense(&[3, columns, rows]).swap_axes(1, 2).unwrap(),
        every_other(dense(&[3, rows + 2, columns + 3])),
        every_other(dense(&[3, columns + 3, rows + 2]).swap_axes(1, 2).unwrap()),
        dense(&[rows, columns]).broadcast_to(&shape).unwrap(),
        dense(&[columns, rows])
            .transpose()
            .broadcast_to(&shape)
            .unwrap(),
        dense(&[rows, 3, columns]).swap_axes(0, 1).unwrap(),
        dense(&[3, rows, columns]).flip(0).unwrap(),
    ]
}

#[test]
fn calls_multiply_matrices_stored_by_rows_or_columns() {
    for [rows, inner, columns] in [
        [2, 3, 4],
        [4, 3, 2],
        [1, 3, 2],
        [2, 1, 3],
        [2, 3, 1],
        [5, 5, 5],
    ] {
        for left in layouts(rows, inner) {
            for right in layouts(inner, columns) {
                let pairs = Pairs::new(&left, &right);
                assert_eq!(
                    by_calls(&pairs),
                    by_sums(&left, &right),
                    "{left:?} {right:?}"
                );
                let transposed = Pairs::new(&turned(&right), &turned(&left));
                assert_eq!(by_calls(&pairs.transposed()), by_calls(&transposed));
            }
        }
    }
}

fn turned(layout: &Layout) -> Layout {
    layout.swap_axes(-1, -2).unwrap()
}

#[test]
fn calls_are_as_few_as_the_steps_allow() {
    let calls = |left: &Layout, right: &Layout| {
        let pairs = Pairs::new(left, right);
        assert_eq!(by_calls(&pairs), by_sums(left, right), "{left:?} {right:?}");
        pairs.calls()
    };
    let dense = |dims: &[usize]| Layout::contiguous(&dims.into()).unwrap();
    let one = dense(&[2, 5, 3, 4]);
    assert_eq!(calls(&one, &dense(&[2, 5, 4, 3])), Some(1));
    // In attention, heads are inside positions.
    let heads = dense(&[2, 3, 5, 4]).swap_axes(1, 2).unwrap();
    assert_eq!(calls(&heads, &dense(&[2, 5, 4, 3])), Some(2));
    let all = Shape::from([2, 5, 4, 3]);
    let repeated = dense(&[2, 1, 4, 3]).broadcast_to(&all).unwrap();
    assert_eq!(calls(&one, &repeated), Some(2));
    let repeated = dense(&[4, 3]).broadcast_to(&all).unwrap();
    assert_eq!(calls(&one, &repeated), Some(1));
}

#[test]
fn recognises_matrices_stored_neither_by_rows_nor_by_columns() {
    let fits_blas = |rows, columns, row_step, column_step| {
        let matrix = Matrix {
            rows,
            columns,
            row_step,
            column_step,
        };
        matrix.blas_layout()
    };
    assert_eq!(fits_blas(3, 4, 4, 1), Some((false, 4)));
    assert_eq!(fits_blas(3, 4, 9, 1), Some((false, 9)));
    assert_eq!(fits_blas(3, 4, 1, 3), Some((true, 3)));
    // cuBLAS cannot read rows or columns that overlap, run backwards, or have gaps.
    for [row_step, column_step] in [[0, 1], [3, 1], [-4, 1], [1, 0], [1, -3], [8, 2], [0, 0]] {
        assert_eq!(fits_blas(3, 4, row_step, column_step), None);
    }
    // A single row or column has no next row or column.
    assert_eq!(fits_blas(1, 4, 0, 1), Some((false, 4)));
    assert_eq!(fits_blas(1, 4, 0, 7), Some((true, 7)));
    assert_eq!(fits_blas(3, 1, 5, 0), Some((false, 5)));
    assert_eq!(fits_blas(1, 1, -3, 0), Some((false, 1)));
}

#[test]
fn integers_are_summed_by_size_and_floats_by_type() {
    let kinds = [
        (DType::F16, ProductKind::F16, 4),
        (DType::Bf16, ProductKind::Bf16, 4),
        (DType::F32, ProductKind::F32, 4),
        (DType::F64, ProductKind::F64, 8),
        (DType::C32, ProductKind::C32, 8),
        (DType::C64, ProductKind::C64, 16),
        (DType::I8, ProductKind::Of8, 4),
        (DType::U16, ProductKind::Of16, 4),
        (DType::I32, ProductKind::Of32, 4),
        (DType::U64, ProductKind::Of64, 8),
    ];
    for (dtype, kind, sum_bytes) in kinds {
        assert_eq!(ProductKind::of(dtype), kind, "{dtype}");
        assert_eq!(kind.sum_bytes(), sum_bytes);
    }
}
