//! Products of matrices and vectors, compared with three loops and with ndarray.

use cachescope::ndarray::{Ix1, Ix2, s};
use cachescope::{Array, Device, DeviceConfig, Element, ErrorKind, Numeric, complex};
use half::{bf16, f16};
use proptest::prelude::*;
use under_test::device_with;

use crate::ops::threads::same_bits;
use crate::strided::{Placement, placement};

/// Returns the elements of the product of two matrices, computed in `f64`.
fn oracle<T: Element>(a: &Array<T>, b: &Array<T>) -> Vec<f64> {
    let (rows, inner, columns) = (a.shape()[0], a.shape()[1], b.shape()[1]);
    let (x, y) = (a.to_vec().unwrap(), b.to_vec().unwrap());
    (0..rows * columns)
        .map(|at| {
            let (row, column) = (at / columns, at % columns);
            (0..inner)
                .map(|k| x[row * inner + k].to_f64() * y[k * columns + column].to_f64())
                .sum()
        })
        .collect()
}

/// Returns a small whole number, which every type represents exactly.
fn small<T: Element>(position: usize) -> T {
    T::from_f64((position % 4) as f64)
}

/// Sizes below, at and above the block sizes of every implementation of the product.
const SIZES: [(usize, usize, usize); 15] = [
    (1, 1, 1),
    (3, 5, 2),
    (33, 40, 35),
    (64, 70, 31),
    (32, 64, 32),
    (130, 260, 515),
    (1, 3000, 1),
    (1, 33, 600),
    (600, 33, 1),
    (40, 1030, 1),
    (5, 1, 7),
    (20, 2, 30),
    // In these products of few rows, the lengths of dot products are not multiples of a register's
    // length.
    (3, 79, 41),
    (6, 130, 4),
    (17, 200, 90),
];

fn check<T: Numeric>(wrapped: impl Fn(f64) -> T) {
    for (rows, inner, columns) in SIZES {
        let a = Array::<T>::from_vec((0..rows * inner).map(small).collect(), [rows, inner]);
        let b = (0..inner * columns).map(|at| small(at + 1)).collect();
        let (a, b) = (
            a.unwrap(),
            Array::<T>::from_vec(b, [inner, columns]).unwrap(),
        );
        let product = a.matmul(&b).unwrap();
        let expected: Vec<T> = oracle(&a, &b).into_iter().map(&wrapped).collect();
        assert_eq!(product.shape(), [rows, columns]);
        let equal = product.to_vec().unwrap() == expected;
        assert!(equal, "{rows} by {inner} by {columns} of {}", T::NAME);
        for (a, name) in [(&a, "rows"), (&turned(&a), "columns")] {
            let across = a.matmul(&turned(&b)).unwrap();
            let equal = across.to_vec().unwrap() == expected;
            assert!(
                equal,
                "{name} by columns: {rows} by {inner} by {columns} of {}",
                T::NAME
            );
        }
    }
}

/// Returns a copy in column-major order.
fn turned<T: Element>(matrix: &Array<T>) -> Array<T> {
    let columns = matrix.transpose().unwrap();
    let columns = Array::from_vec(columns.to_vec().unwrap(), columns.shape());
    columns.unwrap().transpose().unwrap()
}

#[test]
fn every_number_multiplies() {
    check::<f32>(|sum| sum as f32);
    check::<f64>(|sum| sum);
    check::<f16>(f16::from_f64);
    check::<bf16>(bf16::from_f64);
    check::<i8>(|sum| sum as i64 as i8);
    check::<i16>(|sum| sum as i64 as i16);
    check::<i32>(|sum| sum as i64 as i32);
    check::<i64>(|sum| sum as i64);
    check::<u8>(|sum| sum as i64 as u8);
    check::<u16>(|sum| sum as i64 as u16);
    check::<u32>(|sum| sum as i64 as u32);
    check::<u64>(|sum| sum as i64 as u64);
}

#[test]
fn halves_are_summed_in_f32() {
    // A sum in `f16` would not grow beyond 2048.
    let row = Array::<f16>::ones([1, 4096]).unwrap();
    let product = row.matmul(&row.transpose().unwrap()).unwrap();
    assert_eq!(product.item().unwrap(), f16::from_f32(4096.0));
    let dot = row.flatten().unwrap().dot(&row.flatten().unwrap()).unwrap();
    assert_eq!(dot.item().unwrap(), f16::from_f32(4096.0));
    for rows in [3, 20] {
        let matrix = Array::<f16>::ones([rows, 4096]).unwrap();
        for matrix in [turned(&matrix), matrix] {
            let column = matrix.matmul(&row.transpose().unwrap()).unwrap();
            assert_eq!(column.to_vec().unwrap(), vec![f16::from_f32(4096.0); rows]);
            let gram = matrix.matmul(&matrix.transpose().unwrap()).unwrap();
            assert_eq!(
                gram.to_vec().unwrap(),
                vec![f16::from_f32(4096.0); rows * rows]
            );
        }
    }
}

#[test]
fn vectors_are_rows_on_the_left_and_columns_on_the_right() {
    let matrix = Array::from_vec((0..6).map(f64::from).collect(), [2, 3]).unwrap();
    let (two, three) = (
        Array::from_slice(&[1.0, 2.0], 2),
        Array::from_slice(&[1.0, 0.0, -1.0], 3),
    );
    let (two, three) = (two.unwrap(), three.unwrap());
    let left = two.matmul(&matrix).unwrap();
    assert_eq!(
        (left.shape(), left.to_vec().unwrap()),
        (&[3][..], vec![6.0, 9.0, 12.0])
    );
    let right = matrix.matmul(&three).unwrap();
    assert_eq!(
        (right.shape(), right.to_vec().unwrap()),
        (&[2][..], vec![-2.0, -2.0])
    );
    let dot = three.matmul(&three).unwrap();
    assert_eq!((dot.shape(), dot.item().unwrap()), (&[][..], 2.0));
}

#[test]
fn sums_of_nothing_are_zero() {
    for (rows, inner, columns) in [(2, 0, 3), (0, 2, 3), (2, 3, 0), (0, 0, 0)] {
        let a = Array::<f32>::ones([rows, inner]).unwrap();
        let b = Array::<f32>::ones([inner, columns]).unwrap();
        let product = a.matmul(&b).unwrap();
        assert_eq!(product.shape(), [rows, columns]);
        assert!(product.to_vec().unwrap().iter().all(|&x| x == 0.0));
        let whole = a
            .cast::<i32>()
            .eval()
            .unwrap()
            .matmul(&b.cast().eval().unwrap())
            .unwrap();
        assert!(whole.to_vec().unwrap().iter().all(|&x| x == 0));
    }
}

#[test]
fn bad_operands_are_named() {
    let ones = |shape: &[usize]| Array::<f32>::ones(shape).unwrap();
    for (left, right, kind) in [
        (&[2, 3][..], &[2, 3][..], ErrorKind::ShapeMismatch),
        (&[2, 3], &[2], ErrorKind::ShapeMismatch),
        (&[2], &[3, 2], ErrorKind::ShapeMismatch),
        (&[2], &[3], ErrorKind::ShapeMismatch),
        (&[], &[3, 2], ErrorKind::ShapeMismatch),
        (&[3, 2], &[], ErrorKind::ShapeMismatch),
        (&[4, 2, 3], &[2, 3, 2], ErrorKind::ShapeMismatch),
        (&[4, 2, 3], &[2, 2], ErrorKind::ShapeMismatch),
        (&[4, 2, 3], &[2], ErrorKind::ShapeMismatch),
        (&[4, 0, 3], &[5, 3, 3, 2], ErrorKind::ShapeMismatch),
    ] {
        let error = ones(left).matmul(&ones(right)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        let shapes = [format!("{left:?}"), format!("{right:?}")];
        assert!(shapes.iter().all(|shape| text.contains(shape)), "{text}");
    }
    for (left, right) in [
        (&[2, 3][..], &[3][..]),
        (&[3], &[3, 2]),
        (&[], &[]),
        (&[3], &[4]),
    ] {
        let (a, b) = (ones(left), ones(right));
        let mut outcomes = vec![(a.dot(&b), "dot")];
        if left != [3] || right != [4] {
            outcomes.push((a.outer(&b), "outer"));
        }
        for (outcome, name) in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
            let text = error.to_string();
            let named = [name.to_owned(), format!("{left:?}"), format!("{right:?}")];
            assert!(named.iter().all(|part| text.contains(part)), "{text}");
        }
    }
    let other = device_with(DeviceConfig::default()).unwrap();
    let foreign = ones(&[3, 2]).to_device(&other).unwrap();
    let error = ones(&[2, 3]).matmul(&foreign).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    assert_eq!(
        foreign
            .matmul(&foreign.transpose().unwrap())
            .unwrap()
            .device(),
        &other
    );
}

#[test]
fn outer_products_take_every_pair() {
    let (a, b) = (
        Array::arange(0, 3, 1).unwrap(),
        Array::arange(1, 5, 1).unwrap(),
    );
    let table: Array<i64> = a.outer(&b.flip(0).unwrap()).unwrap();
    assert_eq!(table.shape(), [3, 4]);
    assert_eq!(
        table.to_vec().unwrap(),
        [0, 0, 0, 0, 4, 3, 2, 1, 8, 6, 4, 2]
    );
    let none = Array::<i64>::zeros(0).unwrap();
    assert_eq!(none.outer(&b).unwrap().shape(), [0, 4]);
    assert_eq!(none.dot(&none).unwrap().item().unwrap(), 0);
}

/// Returns a pseudorandom number. Sums of these numbers are rounded.
fn rough(position: usize) -> f32 {
    (position as f32 * 0.37).sin()
}

#[test]
fn products_have_the_same_bits_for_any_number_of_threads() {
    for (rows, inner, columns) in [
        (170, 170, 170),
        (300, 900, 40),
        (2000, 3000, 1),
        (1, 3000, 2000),
        // Some of these products are computed in parts of rows or columns. Other products are too
        // narrow for parts.
        (64, 1100, 65),
        (65, 1100, 64),
        (64, 1100, 64),
        (31, 300, 900),
        (66, 300, 260),
        (2100, 31, 97),
        (700, 4000, 2),
        (2, 4000, 700),
    ] {
        let a = Array::from_vec((0..rows * inner).map(rough).collect(), [rows, inner]).unwrap();
        let b = Array::from_vec((0..inner * columns).map(rough).collect(), [inner, columns]);
        let b = b.unwrap();
        same_bits(|| a.matmul(&b).unwrap().to_vec().unwrap());
        let columns_of_b = turned(&b);
        same_bits(|| a.matmul(&columns_of_b).unwrap().to_vec().unwrap());
        let (a, b) = (
            a.cast::<bf16>().eval().unwrap(),
            b.cast::<bf16>().eval().unwrap(),
        );
        same_bits(|| {
            a.matmul(&b)
                .unwrap()
                .cast::<f32>()
                .eval()
                .unwrap()
                .to_vec()
                .unwrap()
        });
        let batch = b
            .unsqueeze(0)
            .unwrap()
            .broadcast_to([5, inner, columns])
            .unwrap();
        same_bits(|| {
            a.matmul(&batch)
                .unwrap()
                .cast::<f32>()
                .eval()
                .unwrap()
                .to_vec()
                .unwrap()
        });
    }
    let parts = [0.37, 0.21].map(|step| {
        let values = (0..200 * 200).map(|at| (at as f32 * step).sin()).collect();
        Array::from_vec(values, [200, 200]).unwrap()
    });
    let z = complex(&parts[0], &parts[1]).eval().unwrap();
    same_bits(|| {
        let product = z.matmul(&z).unwrap();
        (product.re() + product.im())
            .eval()
            .unwrap()
            .to_vec()
            .unwrap()
    });
    let long = Array::from_vec((0..1 << 20).map(rough).collect(), 1 << 20).unwrap();
    same_bits(|| long.dot(&long).unwrap().to_vec().unwrap());
}

#[test]
fn products_do_not_read_what_their_memory_held() {
    let config = DeviceConfig {
        fill_recycled: Some(0xff),
        ..DeviceConfig::default()
    };
    let device = device_with(config).unwrap();
    let _guard = device.enter();
    fn every<T: Numeric>(device: &Device) {
        for (rows, inner, columns) in
            SIZES
                .into_iter()
                .chain([(4, 0, 5), (9, 4, 9), (250, 20, 250)])
        {
            let a = Array::from_vec((0..rows * inner).map(small).collect(), [rows, inner]);
            let b = Array::from_vec((0..inner * columns).map(small).collect(), [inner, columns]);
            let (a, b): (Array<T>, Array<T>) = (a.unwrap(), b.unwrap());
            let _scope = device.scope("products").enter();
            let fresh = a.matmul(&b).unwrap();
            let values = fresh.to_vec().unwrap();
            drop(fresh);
            for _ in 0..2 {
                let again = a.matmul(&b).unwrap().to_vec().unwrap();
                assert!(
                    again == values,
                    "{rows} by {inner} by {columns} of {}",
                    T::NAME
                );
            }
            assert!(values.iter().all(|x| x == x));
        }
    }
    every::<f32>(&device);
    every::<f64>(&device);
    every::<f16>(&device);
    every::<bf16>(&device);
    every::<i32>(&device);
}

#[test]
fn nan_and_infinity_stay_in_their_rows() {
    for (rows, inner, columns) in [(2, 2, 2), (40, 50, 60), (40, 50, 1)] {
        let mut values = vec![0.5_f32; rows * inner];
        values[inner + 1] = f32::NAN;
        values[0] = f32::INFINITY;
        let a = Array::from_vec(values, [rows, inner]).unwrap();
        let b = Array::<f32>::ones([inner, columns]).unwrap();
        let product = a.matmul(&b).unwrap();
        for (at, x) in product.to_vec().unwrap().into_iter().enumerate() {
            match at / columns {
                0 => assert_eq!(x, f32::INFINITY),
                1 => assert!(x.is_nan()),
                _ => assert_eq!(x, 0.5 * inner as f32),
            }
        }
    }
}

/// Generates two operands whose matrices can be multiplied and whose other axes broadcast. Either
/// operand may be a vector.
fn batches() -> impl Strategy<Value = (Placement, Placement)> {
    let part = |dims: Vec<usize>| {
        let count = dims.len();
        (prop::collection::vec(any::<bool>(), count), 0..=count).prop_map(
            move |(single, dropped)| -> Vec<usize> {
                let dims = dims.iter().zip(single);
                let dims = dims.map(|(&length, single)| if single { 1 } else { length });
                dims.skip(dropped).collect()
            },
        )
    };
    let sizes = (0..6usize, 0..6usize, 0..6usize, any::<[bool; 2]>(), 0..8u8);
    (prop::collection::vec(0..4usize, 0..=3), sizes).prop_flat_map(
        move |(batch, (rows, inner, columns, lone, choice))| {
            (part(batch.clone()), part(batch)).prop_flat_map(move |(mut left, mut right)| {
                left.extend([rows, inner]);
                right.extend([inner, columns]);
                if choice == 0 && lone[0] {
                    left = vec![inner];
                }
                if choice == 0 && lone[1] {
                    right = vec![inner];
                }
                (placement(left), placement(right))
            })
        },
    )
}

/// Returns the shape and the elements of the batched product. Each element is computed as a
/// separate sum.
fn batched_oracle(a: &Array<f64>, b: &Array<f64>) -> (Vec<usize>, Vec<f64>) {
    let (lone_row, lone_column) = (a.ndim() == 1, b.ndim() == 1);
    let a = if lone_row {
        a.unsqueeze(0).unwrap()
    } else {
        a.clone()
    };
    let b = if lone_column {
        b.unsqueeze(1).unwrap()
    } else {
        b.clone()
    };
    let lead = |x: &Array<f64>| x.shape()[..x.ndim() - 2].to_vec();
    // The shape of the broadcast is the shape of the operands' sum.
    let ones = |dims: Vec<usize>| Array::<f64>::ones(dims).unwrap();
    let batch = (ones(lead(&a)) + ones(lead(&b)))
        .shape()
        .unwrap()
        .dims()
        .to_vec();
    let (rows, inner) = (a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]);
    let columns = b.shape()[b.ndim() - 1];
    let whole = |x: &Array<f64>| {
        let dims: Vec<_> = batch
            .iter()
            .copied()
            .chain(x.shape()[x.ndim() - 2..].to_vec())
            .collect();
        x.broadcast_to(dims).unwrap().to_vec().unwrap()
    };
    let (x, y) = (whole(&a), whole(&b));
    let mut values = Vec::new();
    for index in 0..batch.iter().product::<usize>() {
        for at in 0..rows * columns {
            let (row, column) = (at / columns, at % columns);
            let x = &x[(index * rows + row) * inner..][..inner];
            let y = (0..inner).map(|k| y[(index * inner + k) * columns + column]);
            values.push(x.iter().zip(y).map(|(x, y)| x * y).sum());
        }
    }
    let mut shape = batch;
    if !lone_row {
        shape.push(rows);
    }
    if !lone_column {
        shape.push(columns);
    }
    (shape, values)
}

fn matrices() -> impl Strategy<Value = (Placement, Placement)> {
    (0..40usize, 0..40usize, 0..40usize).prop_flat_map(|(rows, inner, columns)| {
        (
            placement(vec![rows, inner]),
            placement(vec![inner, columns]),
        )
    })
}

proptest! {
    #[test]
    fn batches_equal_their_products((left, right) in batches()) {
        let (a, b) = (left.build(small::<f64>), right.build(|at| small::<f64>(at + 1)));
        let (shape, expected) = batched_oracle(&a, &b);
        let product = a.matmul(&b).unwrap();
        prop_assert_eq!(product.shape(), shape);
        prop_assert_eq!(product.to_vec().unwrap(), expected.clone());
        let whole = left.build(small::<i16>).matmul(&right.build(|at| small(at + 1))).unwrap();
        prop_assert_eq!(whole.cast::<f64>().eval().unwrap().to_vec().unwrap(), expected.clone());
        let halves = left.build(small::<bf16>).matmul(&right.build(|at| small(at + 1))).unwrap();
        prop_assert_eq!(halves.cast::<f64>().eval().unwrap().to_vec().unwrap(), expected);
    }

    #[test]
    fn operands_of_any_strides_equal_ndarray((left, right) in matrices()) {
        let (a, b) = (left.build(small::<f64>), right.build(|at| small::<f64>(at + 1)));
        let x = a.to_ndarray().unwrap().into_dimensionality::<Ix2>().unwrap();
        let y = b.to_ndarray().unwrap().into_dimensionality::<Ix2>().unwrap();
        let expected: Vec<f64> = x.dot(&y).iter().copied().collect();
        prop_assert_eq!(a.matmul(&b).unwrap().to_vec().unwrap(), expected.clone());
        let single = a.cast::<f32>().eval().unwrap();
        let product = left.build(small::<f32>).matmul(&right.build(|at| small(at + 1))).unwrap();
        prop_assert_eq!(product.cast::<f64>().eval().unwrap().to_vec().unwrap(), expected.clone());
        prop_assert_eq!(single.shape(), a.shape());
        let whole = left.build(small::<i32>).matmul(&right.build(|at| small(at + 1))).unwrap();
        prop_assert_eq!(whole.cast::<f64>().eval().unwrap().to_vec().unwrap(), expected);
        if a.shape()[0] > 0 {
            let row = a.slice(s![0, ..]).unwrap();
            let expected = x.row(0).dot(&y).into_dimensionality::<Ix1>().unwrap().to_vec();
            prop_assert_eq!(row.matmul(&b).unwrap().to_vec().unwrap(), expected);
        }
    }
}
