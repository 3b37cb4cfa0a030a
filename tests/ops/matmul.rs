//! Matrix products, against three loops and ndarray.

use cachescope::ndarray::{Ix1, Ix2};
use cachescope::{Array, Device, DeviceConfig, Element, ErrorKind};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::strided::placement;

/// The product, in `f64`, of the elements of two matrices.
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

/// Small whole numbers, exact in every type.
fn small<T: Element>(position: usize) -> T {
    T::from_f64((position % 4) as f64)
}

/// Sizes below, at and above those of blocks.
const SIZES: [(usize, usize, usize); 5] = [
    (1, 1, 1),
    (3, 5, 2),
    (33, 40, 35),
    (64, 70, 31),
    (32, 64, 32),
];

fn check<T: Element + cachescope::Numeric>(wrapped: impl Fn(f64) -> T) {
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
        assert_eq!(product.to_vec().unwrap(), expected, "of {}", T::NAME);
    }
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
    // In `f16` alone the sum would stop at 2048.
    let row = Array::<f16>::ones([1, 4096]).unwrap();
    let product = row.matmul(&row.transpose().unwrap()).unwrap();
    assert_eq!(product.item().unwrap(), f16::from_f32(4096.0));
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
        (&[4, 2, 3], &[3, 2], ErrorKind::Unsupported),
    ] {
        let error = ones(left).matmul(&ones(right)).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        let shapes = [format!("{left:?}"), format!("{right:?}")];
        assert!(shapes.iter().all(|shape| text.contains(shape)), "{text}");
    }
    let other = Device::host_with(DeviceConfig::default()).unwrap();
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

fn matrices() -> impl Strategy<Value = (crate::strided::Placement, crate::strided::Placement)> {
    (0..40usize, 0..40usize, 0..40usize).prop_flat_map(|(rows, inner, columns)| {
        (
            placement(vec![rows, inner]),
            placement(vec![inner, columns]),
        )
    })
}

proptest! {
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
            let row = a.slice(cachescope::ndarray::s![0, ..]).unwrap();
            let expected = x.row(0).dot(&y).into_dimensionality::<Ix1>().unwrap().to_vec();
            prop_assert_eq!(row.matmul(&b).unwrap().to_vec().unwrap(), expected);
        }
    }
}
