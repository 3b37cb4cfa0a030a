//! Expressions: inference, fusion, broadcasting, strides, snapshots, errors.

use cachescope::ndarray::s;
use cachescope::{
    Array, DeviceConfig, ErrorKind, Expr, IntoExpr, Lazy, cache_scope, cache_stats, select,
};
use half::{bf16, f16};
use proptest::prelude::*;
use under_test::device_with;

use crate::strided::{broadcast_pair, contiguous, pair};

/// Returns values of both signs whose products are exact in `f32`.
fn small(position: usize) -> f32 {
    (position % 23) as f32 - 11.0
}

#[test]
fn operators_take_all_combinations() {
    macro_rules! check {
        ($($type:ident $two:expr;)+) => {
            $(
                let two: $type = $two;
                let a = Array::<$type>::full(3, two).unwrap();
                let l = a.lazy();
                let all = [
                    (&a + &a).eval(), (&a + a.clone()).eval(), (&a + &l).eval(), (&a + l.clone()).eval(),
                    (a.clone() + &a).eval(), (a.clone() + two).eval(), (&a + two).eval(),
                    (&l + &a).eval(), (&l + &l).eval(), (l.clone() + l.clone()).eval(),
                    (l.clone() + &a).eval(), (&l + two).eval(), (l.clone() + two).eval(),
                    (two + &a).eval(), (two + a.clone()).eval(), (two + &l).eval(), (two + l).eval(),
                ];
                for sum in all {
                    assert_eq!(sum.unwrap().to_vec().unwrap(), [two + two; 3]);
                }
            )+
        };
    }
    check! {
        f32 2.0; f64 2.0; f16 f16::from_f32(2.0); bf16 bf16::from_f32(2.0);
        i8 2; i16 2; i32 2; i64 2; u8 2; u16 2; u32 2; u64 2;
    }
}

#[test]
fn literals_take_the_type_of_the_array() {
    let single = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let double = Array::from_slice(&[1.0_f64, 2.0], 2).unwrap();
    let byte = Array::from_slice(&[1_u8, 2], 2).unwrap();
    let long = Array::from_slice(&[1_i64, 2], 2).unwrap();
    macro_rules! check {
        ($array:ident, $one:literal, $two:literal, $ten:literal) => {
            let x = &$array;
            let lazy = $ten - ($two * x + $one);
            assert_eq!(
                lazy.eval().unwrap().to_vec().unwrap(),
                [$ten - $two - $one, $ten - $two * $two - $one]
            );
            assert_eq!(
                (x * $two / $two % $ten).eval().unwrap().to_vec().unwrap(),
                [$one, $two]
            );
            assert_eq!(
                x.maximum($two).eval().unwrap().to_vec().unwrap(),
                [$two, $two]
            );
            assert_eq!(
                (x + $one).minimum($two).eval().unwrap().to_vec().unwrap(),
                [$two, $two]
            );
            assert_eq!(x.ge($two).eval().unwrap().to_vec().unwrap(), [false, true]);
            assert_eq!(
                (x * x).gt($one).eval().unwrap().to_vec().unwrap(),
                [false, true]
            );
            assert_eq!(
                select(x.gt($one), $ten, x)
                    .eval()
                    .unwrap()
                    .to_vec()
                    .unwrap(),
                [$one, $ten]
            );
            assert_eq!(
                select(x.gt($one), x, $ten)
                    .eval()
                    .unwrap()
                    .to_vec()
                    .unwrap(),
                [$ten, $two]
            );
            assert_eq!(
                (-x + $ten).eval().unwrap().to_vec().unwrap(),
                [$ten - $one, $ten - $two]
            );
            let mut y = x.clone();
            y.update(|y| $two * y).unwrap();
            y.assign(&y + $one).unwrap();
            assert_eq!(y.to_vec().unwrap(), [$two + $one, $two * $two + $one]);
        };
    }
    check!(single, 1.0, 2.0, 10.0);
    check!(double, 1.0, 2.0, 10.0);
    check!(long, 1, 2, 10);
    assert_eq!((3 * &byte - 1).eval().unwrap().to_vec().unwrap(), [2, 5]);
}

fn softplus_of<E: Expr<Item = f32>>(x: Lazy<E>) -> Lazy<impl Expr<Item = f32>> {
    (x.exp() + 1.0).ln()
}

fn scaled(x: impl IntoExpr<f32>, factor: f32) -> Lazy<impl Expr<Item = f32>> {
    x.into_lazy() * factor
}

#[test]
fn functions_take_and_return_expressions() {
    let x = Array::from_slice(&[0.0_f32, 1.0], 2).unwrap();
    let y = softplus_of(scaled(&x, 0.0) + scaled(&x * 1.0, 0.0))
        .eval()
        .unwrap();
    assert_eq!(y.to_vec().unwrap(), [2.0_f32.ln(); 2]);
    assert_eq!(scaled(3.0, 2.0).eval().unwrap().item().unwrap(), 6.0);
}

#[test]
fn expressions_outlive_their_arrays_and_travel() {
    let lazy = {
        let x = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
        &x * 2.0 + &x
    };
    let copy = lazy.clone();
    let y = std::thread::spawn(move || copy.eval().unwrap().to_vec().unwrap())
        .join()
        .unwrap();
    assert_eq!(y, [3.0, 6.0]);
    assert_eq!(
        lazy.eval().unwrap().to_vec().unwrap(),
        lazy.eval().unwrap().to_vec().unwrap()
    );
    assert_eq!(format!("{lazy:?}"), "Lazy(f32 of [2])");
}

#[test]
fn expressions_keep_the_values_they_were_built_with() {
    let mut x = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let before = &x + 1.0;
    x.fill(10.0).unwrap();
    assert_eq!(before.eval().unwrap().to_vec().unwrap(), [2.0, 3.0]);
    assert_eq!((&x + 1.0).eval().unwrap().to_vec().unwrap(), [11.0, 11.0]);
}

#[test]
fn a_long_expression_makes_one_allocation_and_building_it_none() {
    let x = Array::<f32>::ones([30, 40]).unwrap();
    let row = Array::<f32>::ones(40).unwrap();
    cache_scope!("one allocation", {
        let requests = || {
            let stats = cache_stats("one allocation").unwrap();
            stats.hits + stats.misses
        };
        let lazy = select(x.gt(0.0), ((&x - &row).exp() * 2.0 + &x).sqrt(), x.neg()).maximum(0.5);
        assert_eq!(requests(), 0);
        let y = lazy.eval().unwrap();
        assert_eq!(requests(), 1);
        let total = (&lazy - &y).sum().unwrap();
        assert_eq!(requests(), 2);
        assert_eq!(total.item().unwrap(), 0.0);
    });
}

#[test]
fn shapes_that_do_not_broadcast_are_reported_by_eval() {
    let (a, b) = (
        Array::<f32>::ones([2, 3]).unwrap(),
        Array::<f32>::ones([2, 4]).unwrap(),
    );
    let c = Array::<f32>::ones(7).unwrap();
    let lazy = (&a * &b + &c).exp();
    for error in [
        lazy.eval().unwrap_err(),
        lazy.shape().unwrap_err(),
        lazy.sum().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        let text = error.to_string();
        // The error names the first mismatch, not a consequence of the mismatch.
        assert!(
            text.contains("mul") && text.contains("[2, 3]") && text.contains("[2, 4]"),
            "{text}"
        );
    }
    let error = select(a.gt(0.0), &a, &c).eval().unwrap_err().to_string();
    assert!(
        error.contains("select") && error.contains("[2, 3]") && error.contains("[7]"),
        "{error}"
    );
    let wide = Array::<u8>::ones([1, 1])
        .unwrap()
        .broadcast_to([1 << 40, 1])
        .unwrap();
    let tall = Array::<u8>::ones([1, 1])
        .unwrap()
        .broadcast_to([1, 1 << 40])
        .unwrap();
    assert_eq!(
        (wide + tall).eval().unwrap_err().kind(),
        ErrorKind::InvalidShape
    );
}

#[test]
fn operands_of_two_devices_are_reported() {
    let other = device_with(DeviceConfig::default()).unwrap();
    let a = Array::<f32>::ones(3).unwrap();
    let b = a.to_device(&other).unwrap();
    let lazy = &a + &b;
    assert_eq!(lazy.eval().unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_eq!(lazy.sum().unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_eq!(
        lazy.max_axis(0).unwrap_err().kind(),
        ErrorKind::DeviceMismatch
    );
    let y = (&b + 1.0).eval().unwrap();
    assert_eq!((y.device(), b.sum().unwrap().device()), (&other, &other));
}

#[test]
fn results_do_not_depend_on_the_memorys_contents() {
    let device = device_with(DeviceConfig {
        fill_recycled: Some(0xff),
        ..DeviceConfig::default()
    });
    let device = device.unwrap();
    let _current = device.enter();
    let x = Array::from_vec((0..300).map(small).collect(), [100, 3]).unwrap();
    let view = x.transpose().unwrap();
    let run = || {
        cache_scope!("recycled", {
            let table = (&view * 2.0 + 1.0).eval().unwrap();
            let mask = table.gt(0.0).eval().unwrap();
            let total = select(&mask, &table, 0.0).sum_axis(0).unwrap();
            let product = table.matmul(&x).unwrap();
            let best = table.argmax_axis(1).unwrap();
            let whole = table
                .cast::<i32>()
                .eval()
                .unwrap()
                .matmul(&mask.cast().eval().unwrap().transpose().unwrap());
            (
                total.to_vec().unwrap(),
                product.to_vec().unwrap(),
                best.to_vec().unwrap(),
                whole.unwrap().to_vec().unwrap(),
            )
        })
    };
    let first = run();
    assert!(first.0.iter().chain(&first.1).all(|x| x.is_finite()));
    assert_eq!(run(), first);
    assert!(device.cache_stats("recycled").unwrap().hits > 0);
}

#[test]
fn empty_and_single_elements() {
    let empty = Array::<f32>::zeros([3, 0, 2]).unwrap();
    let column = Array::<f32>::ones([3, 1, 1]).unwrap();
    assert_eq!((&empty + &column).eval().unwrap().shape(), [3, 0, 2]);
    assert_eq!(empty.gt(0.0).eval().unwrap().len(), 0);
    let one = Array::<f32>::full([0; 0], 3.0).unwrap();
    assert_eq!((&one + &one).eval().unwrap().item().unwrap(), 6.0);
    assert_eq!((&one + &column).eval().unwrap().to_vec().unwrap(), [4.0; 3]);
}

proptest! {
    #[test]
    fn broadcasting_is_that_of_ndarray((left, right) in broadcast_pair()) {
        let (a, b) = (left.build(small), right.build(|at| small(at + 5)));
        let expected = a.to_ndarray().unwrap() - b.to_ndarray().unwrap();
        let lazy = &a - &b;
        let shape = lazy.shape().unwrap();
        prop_assert_eq!(shape.dims(), expected.shape());
        prop_assert_eq!(lazy.eval().unwrap().to_ndarray().unwrap(), expected);
    }

    #[test]
    fn any_strides_equal_contiguous((left, right) in pair()) {
        let (a, b) = (left.build(small), right.build(|at| small(at + 5)));
        let (x, y) = (contiguous(&a), contiguous(&b));
        let strided = select(a.gt(&b), &a * 3.0, (&b - &a).cast::<f32>());
        let plain = select(x.gt(&y), &x * 3.0, (&y - &x).cast::<f32>());
        prop_assert_eq!(
            strided.eval().unwrap().to_vec().unwrap(),
            plain.eval().unwrap().to_vec().unwrap()
        );
        prop_assert_eq!(a.lazy().eval().unwrap().to_vec().unwrap(), x.to_vec().unwrap());
    }

    #[test]
    fn fused_equals_unfused((left, right) in broadcast_pair()) {
        let (a, b) = (left.build(small), right.build(|at| small(at + 5)));
        let fused = ((&a + &b) * &a - b.tanh()).exp().minimum(1e3) / (a.abs() + 1.0);
        let sum = (&a + &b).eval().unwrap();
        let product = (&sum * &a).eval().unwrap();
        let tanh = b.tanh().eval().unwrap();
        let difference = (&product - &tanh).eval().unwrap();
        let exp = difference.exp().eval().unwrap();
        let capped = exp.minimum(1e3).eval().unwrap();
        let above = (a.abs().eval().unwrap() + 1.0).eval().unwrap();
        let unfused = (&capped / &above).eval().unwrap();
        prop_assert_eq!(fused.eval().unwrap().to_vec().unwrap(), unfused.to_vec().unwrap());
    }
}

#[test]
fn any_number_of_threads_computes_the_same() -> cachescope::Result<()> {
    let x = Array::<f32>::rand([300, 1000])?;
    let (row, transposed) = (x.slice(s![7, ..])?, x.reshape([1000, 300])?.transpose()?);
    let compute = |threads: usize| -> cachescope::Result<_> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let mut y = ((&x * &row).sin() - &transposed).eval()?;
            y.update(|y| y + &transposed * 2.0)?;
            y.to_vec()
        })
    };
    let alone = compute(1)?;
    assert_eq!(compute(2)?, alone);
    assert_eq!(compute(3)?, alone);
    Ok(())
}
