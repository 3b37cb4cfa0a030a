//! Products, variances, norms, `all`, `any` and logsumexp, compared with naive reductions in `f64`.

use cachescope::ndarray::{ArrayD, Axis};
use cachescope::{AnyElement, Array, DeviceConfig, Element, ErrorKind, Float, Result};
use half::{bf16, f16};
use proptest::prelude::*;
use under_test::device_with;

use crate::ops::threads::{Bits, same_bits};
use crate::strided::{placement, shape};

fn small(position: usize) -> f32 {
    ((position * 7) % 13) as f32 * 0.25 - 1.5
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn var(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn logsumexp(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_infinite() {
        return largest;
    }
    largest + values.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    found == expected
        || (found - expected).abs() <= tolerance * expected.abs().max(1e-2)
        || (found.is_nan() && expected.is_nan())
}

/// Returns the values of `reduce` for the lanes along `axis`, in row-major order of the other axes.
fn lines(array: &ArrayD<f64>, axis: usize, reduce: fn(&[f64]) -> f64) -> Vec<f64> {
    let lanes = array.lanes(Axis(axis));
    lanes
        .into_iter()
        .map(|lane| reduce(&lane.to_vec()))
        .collect()
}

type Whole = fn(&Array<f32>) -> Result<Array<f32>>;
type Oracle = fn(&[f64]) -> f64;
type Along = fn(&Array<f32>, isize) -> Result<Array<f32>>;

/// The reductions from floats to floats, each with its oracle.
const REDUCTIONS: [(Whole, Along, Oracle); 4] = [
    (|x| x.var(), |x, axis| x.lazy().var_axis(axis), var),
    (
        |x| x.lazy().std(),
        |x, axis| x.std_axis(axis),
        |x| var(x).sqrt(),
    ),
    (|x| x.norm(), |x, axis| (x * 1.0).norm_axis(axis), norm),
    (
        |x| (x * 1.0).logsumexp(),
        |x, axis| x.logsumexp_axis(axis),
        logsumexp,
    ),
];

proptest! {
    #[test]
    fn any_strides_along_any_axis(placement in shape().prop_flat_map(placement), pick in any::<usize>()) {
        let array = placement.build(small);
        let values: Vec<f64> = array.to_vec().unwrap().into_iter().map(f64::from).collect();
        let oracle = ArrayD::from_shape_vec(array.shape(), values.clone()).unwrap();
        for (whole, along, expected) in REDUCTIONS {
            let found = f64::from(whole(&array).unwrap().item().unwrap());
            prop_assert!(close(found, expected(&values), 1e-5), "{found}, not {}", expected(&values));
            if array.ndim() == 0 {
                continue;
            }
            let at = pick % array.ndim();
            let axis = if pick % 2 == 0 { at as isize } else { at as isize - array.ndim() as isize };
            let found = along(&array, axis).unwrap();
            let expected = lines(&oracle, at, expected);
            prop_assert_eq!(found.len(), expected.len());
            for (found, expected) in found.to_vec().unwrap().into_iter().zip(expected) {
                prop_assert!(close(f64::from(found), expected, 1e-5), "{found}, not {expected}");
            }
        }
    }

    #[test]
    fn products_and_truths(placement in shape().prop_flat_map(placement), pick in any::<usize>()) {
        let array = placement.build(|at| (at % 5) as i16 * 3 - 5);
        let signs = placement.build(|at| if at % 3 == 0 { -1.0_f32 } else { 1.0 });
        let flags = placement.build(|at| at % 7 != 3);
        let product = |values: &[i16]| {
            values.iter().fold(1_i64, |product, &x| product.wrapping_mul(x.into()))
        };
        let values = array.to_vec().unwrap();
        prop_assert_eq!(array.prod().unwrap().item().unwrap(), product(&values));
        let sign: f32 = signs.to_vec().unwrap().iter().product();
        prop_assert_eq!((&signs * 1.0).prod().unwrap().item().unwrap(), sign);
        let truths = flags.to_vec().unwrap();
        prop_assert_eq!(flags.all().unwrap().item().unwrap(), truths.iter().all(|&x| x));
        prop_assert_eq!(flags.lazy().any().unwrap().item().unwrap(), truths.iter().any(|&x| x));
        if array.ndim() == 0 {
            return Ok(());
        }
        let at = pick % array.ndim();
        let oracle = array.to_ndarray().unwrap();
        let expected: Vec<_> =
            oracle.lanes(Axis(at)).into_iter().map(|lane| product(&lane.to_vec())).collect();
        let axis = at as isize;
        prop_assert_eq!(array.prod_axis(axis).unwrap().to_vec().unwrap(), expected);
        let oracle = flags.to_ndarray().unwrap();
        let lanes = || oracle.lanes(Axis(at)).into_iter();
        let all: Vec<_> = lanes().map(|lane| lane.iter().all(|&x| x)).collect();
        let any: Vec<_> = lanes().map(|lane| lane.iter().any(|&x| x)).collect();
        prop_assert_eq!(flags.all_axis(axis).unwrap().to_vec().unwrap(), all);
        prop_assert_eq!(flags.any_axis(axis - array.ndim() as isize).unwrap().to_vec().unwrap(), any);
    }
}

#[test]
fn empty_arrays_have_the_neutral_element() {
    let none = Array::<f32>::zeros([2, 0]).unwrap();
    let whole = Array::<i16>::zeros([2, 0]).unwrap();
    assert_eq!(none.prod().unwrap().item().unwrap(), 1.0);
    assert_eq!(whole.prod_axis(1).unwrap().to_vec().unwrap(), [1, 1]);
    assert!(none.var().unwrap().item().unwrap().is_nan());
    assert!(
        whole
            .std_axis(-1)
            .unwrap()
            .to_vec()
            .unwrap()
            .iter()
            .all(|x| x.is_nan())
    );
    assert_eq!(none.norm().unwrap().item().unwrap(), 0.0);
    assert_eq!(whole.norm_axis(1).unwrap().to_vec().unwrap(), [0.0, 0.0]);
    assert!(none.all().unwrap().item().unwrap());
    assert!(!whole.any().unwrap().item().unwrap());
    assert_eq!(whole.all_axis(1).unwrap().to_vec().unwrap(), [true, true]);
    assert_eq!(none.logsumexp().unwrap().item().unwrap(), f32::NEG_INFINITY);
    assert!(none.logsumexp_axis(0).unwrap().is_empty());
    assert!(none.var_axis(0).unwrap().is_empty());
}

#[test]
fn every_type_has_its_truth_and_its_product() {
    fn check<T: Element>() {
        let array = Array::from_vec(vec![T::one(), T::zero(), T::one()], 3).unwrap();
        assert!(!array.all().unwrap().item().unwrap(), "{}", T::NAME);
        assert!(array.any().unwrap().item().unwrap(), "{}", T::NAME);
        assert_eq!(array.prod().unwrap().item().unwrap().to_f64(), 0.0);
        let ones = Array::<T>::ones([40, 3]).unwrap();
        assert!(ones.all_axis(0).unwrap().all().unwrap().item().unwrap());
        assert_eq!(
            ones.prod_axis(0).unwrap().to_vec().unwrap()[1].to_f64(),
            1.0
        );
        assert_eq!(
            ones.norm_axis(0).unwrap().to_vec().unwrap()[1],
            T::Mean::from_f64(40_f64.sqrt())
        );
        let var = array.var().unwrap().item().unwrap().to_f64();
        assert!(close(var, 2.0 / 9.0, T::Mean::epsilon().to_f64()), "{var}");
    }
    check::<f64>();
    check::<f16>();
    check::<bf16>();
    check::<i8>();
    check::<i16>();
    check::<i32>();
    check::<i64>();
    check::<u8>();
    check::<u16>();
    check::<u32>();
    check::<u64>();
    check::<bool>();
    let nan = Array::from_slice(&[f32::NAN, -0.0], 2).unwrap();
    assert!(nan.any().unwrap().item().unwrap() && !nan.all().unwrap().item().unwrap());
    let large = Array::<u8>::full(9, 200).unwrap();
    assert_eq!(
        large.prod().unwrap().item().unwrap(),
        200_u64.pow(8).wrapping_mul(200)
    );
    let halves = Array::<f16>::full(5000, f16::from_f32(3.0)).unwrap();
    assert_eq!(halves.std().unwrap().item().unwrap(), f16::ZERO);
    assert_eq!(
        halves.norm().unwrap().item().unwrap(),
        f16::from_f64((45000_f64).sqrt())
    );
}

#[test]
fn a_large_mean_costs_no_digits() {
    let count = 1_000_000;
    let noise = |at: usize| ((at * 37) % 17) as f64 * 0.125;
    let wide: Vec<f64> = (0..count).map(noise).collect();
    let expected = var(&wide);
    for shift in [1e6, -1e6] {
        let values: Vec<f32> = wide.iter().map(|x| (x + shift) as f32).collect();
        let array = Array::from_vec(values, [1000, 1000]).unwrap();
        let crosswise = array.transpose().unwrap();
        let fused = (&array + &crosswise * 0.0).var().unwrap();
        for found in [array.var(), crosswise.var(), Ok(fused)] {
            let found = f64::from(found.unwrap().item().unwrap());
            assert!(close(found, expected, 1e-6), "{found}, not {expected}");
        }
        let rows: Vec<f64> = wide.chunks(1000).map(var).collect();
        for found in [array.var_axis(1), crosswise.var_axis(0)] {
            for (found, &expected) in found.unwrap().to_vec().unwrap().iter().zip(&rows) {
                assert!(
                    close(f64::from(*found), expected, 1e-6),
                    "{found}, not {expected}"
                );
            }
        }
    }
    let doubles = Array::from_vec(wide.iter().map(|x| x + 1e9).collect(), count).unwrap();
    let found = doubles.var().unwrap().item().unwrap();
    assert!(close(found, expected, 1e-9), "{found}, not {expected}");
    let whole = Array::from_vec(
        (0..count)
            .map(|at| 2_000_000_000 + (at % 3) as i32)
            .collect(),
        count,
    );
    let found = whole.unwrap().var().unwrap().item().unwrap();
    assert!(close(found, 2.0 / 3.0, 1e-5), "{found}");
}

#[test]
fn norms_overflow_only_where_they_must() {
    let check = |values: &[f64], expected: f64| {
        let line = Array::from_slice(values, values.len()).unwrap();
        let column: Vec<f64> = values.iter().flat_map(|&x| [x, 0.5]).collect();
        let column = Array::from_vec(column, [values.len(), 2]).unwrap();
        for found in [
            line.norm().unwrap().item().unwrap(),
            line.norm_axis(0).unwrap().item().unwrap(),
            column.norm_axis(0).unwrap().to_vec().unwrap()[0],
        ] {
            assert!(
                close(found / expected, 1.0, 1e-14) || close(found, expected, 0.0),
                "{found}"
            );
        }
    };
    check(&[3e300, -4e300], 5e300);
    check(&[3e-300, 4e-300], 5e-300);
    check(&[3e300, 1.0, 1e-300, 4e300], 5e300);
    check(&[3.0, 1e-300, 4.0], 5.0);
    check(&[1e200; 400], 2e201);
    check(&[1e-320; 400], 2.0 * 1e-320 * 10.0);
    for at in 0..100 {
        for (other, one) in [(1.0, 3e300), (0.0, 3e-300), (3e300, 4e300)] {
            let mut values = [other; 100];
            values[at] = one;
            let ratio: f64 = other / one;
            check(&values, one * (1.0 + 99.0 * ratio * ratio).sqrt());
        }
    }
    check(&[f64::MAX, f64::MAX], f64::INFINITY);
    check(&[1.0, f64::NEG_INFINITY], f64::INFINITY);
    check(&[1.0, f64::NAN, 1e300, f64::INFINITY], f64::NAN);
    let single = Array::<f32>::full(100, 1e37).unwrap();
    assert!(close(
        single.norm().unwrap().item().unwrap().into(),
        1e38,
        1e-6
    ));
    let least = Array::<f32>::full([50, 2], 1e-40).unwrap();
    let found = least.norm().unwrap().item().unwrap();
    assert!((f64::from(found) / 1e-39 - 1.0).abs() < 1e-4, "{found}");
    let whole = Array::from_slice(&[i64::MIN, i64::MAX], 2).unwrap();
    assert!(close(
        whole.norm().unwrap().item().unwrap(),
        2_f64.sqrt() * 2_f64.powi(63),
        1e-14
    ));
    assert_eq!(
        Array::from_slice(&[3_u8, 4], 2)
            .unwrap()
            .norm()
            .unwrap()
            .item()
            .unwrap(),
        5.0
    );
}

fn logsumexps<T: Float>(values: &[f64]) -> Vec<f64> {
    let typed: Vec<T> = values.iter().map(|&x| T::from_f64(x)).collect();
    let line = Array::from_slice(&typed, typed.len()).unwrap();
    let twice: Vec<T> = typed.iter().flat_map(|&x| [x, T::one()]).collect();
    let column = Array::from_vec(twice, [typed.len(), 2]).unwrap();
    vec![
        line.logsumexp().unwrap().item().unwrap().to_f64(),
        column.logsumexp_axis(0).unwrap().to_vec().unwrap()[0].to_f64(),
    ]
}

#[test]
fn sums_of_exponentials_neither_overflow_nor_lose_infinities() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut many = vec![-1000.0; 700];
    many[500] = 1000.0;
    for (values, expected) in [
        (vec![1000.0, 1000.0], 1000.0 + 2_f64.ln()),
        (vec![-1000.0; 600], -1000.0 + 600_f64.ln()),
        (many, 1000.0),
        (vec![-inf, -inf], -inf),
        (vec![-inf; 600], -inf),
        (vec![-inf, 3.0, -inf], 3.0),
        ([vec![-inf; 300], vec![3.0], vec![-inf; 300]].concat(), 3.0),
        (vec![inf, 1.0, -inf, inf], inf),
        ([vec![1.0; 300], vec![inf], vec![-inf; 300]].concat(), inf),
        (vec![1.0, nan, inf], nan),
        ([vec![inf; 300], vec![nan], vec![-inf; 300]].concat(), nan),
        ([vec![nan], vec![1.0; 300]].concat(), nan),
    ] {
        for found in logsumexps::<f32>(&values)
            .into_iter()
            .chain(logsumexps::<f64>(&values))
        {
            assert!(close(found, expected, 1e-6), "{found}, not {expected}");
        }
        for found in logsumexps::<bf16>(&values)
            .into_iter()
            .chain(logsumexps::<f16>(&values))
        {
            assert!(close(found, expected, 1e-2), "{found}, not {expected}");
        }
    }
    let ones = Array::<f32>::ones([1000, 1000]).unwrap();
    let found = f64::from(ones.logsumexp().unwrap().item().unwrap());
    assert!(close(found, 1.0 + 1e6_f64.ln(), 1e-7), "{found}");
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    fn bits<T: Element + Bits>(found: Result<Array<T>>) -> Vec<T> {
        found.unwrap().to_vec().unwrap()
    }
    let rough = |at: usize| (at as f32 * 0.37).sin();
    for shape in [
        [3, 100_001],
        [100_001, 3],
        [70_000, 9],
        [1, 300_013],
        [700, 700],
    ] {
        let count = shape[0] * shape[1];
        let x = Array::from_vec((0..count).map(rough).collect(), shape).unwrap();
        for x in [x.transpose().unwrap(), x] {
            same_bits(|| [bits(x.sum()), bits(x.mean()), bits(x.var()), bits(x.norm())].concat());
            same_bits(|| [bits(x.max()), bits(x.logsumexp()), bits((&x * &x).sum())].concat());
            same_bits(|| bits(x.argmin()));
            for axis in [0, 1] {
                same_bits(|| [bits(x.sum_axis(axis)), bits(x.std_axis(axis))].concat());
                same_bits(|| {
                    [
                        bits(x.logsumexp_axis(axis)),
                        bits((&x + 1.0).prod_axis(axis)),
                    ]
                    .concat()
                });
                same_bits(|| bits(x.argmax_axis(axis)));
            }
        }
    }
}

#[test]
fn positions_are_right_beyond_one_chunk() {
    let count = 300_000;
    for at in [0, 65_535, 65_536, 200_001, count - 1] {
        let mut values = vec![0.0_f32; 2 * count];
        (values[at], values[count + at]) = (9.0, 9.0);
        let array = Array::from_vec(values, [2, count]).unwrap();
        assert_eq!(array.argmax().unwrap().item().unwrap(), at as i64);
        assert_eq!(
            array.argmax_axis(1).unwrap().to_vec().unwrap(),
            [at as i64; 2]
        );
        assert_eq!(
            array
                .transpose()
                .unwrap()
                .argmax_axis(0)
                .unwrap()
                .to_vec()
                .unwrap(),
            [at as i64; 2]
        );
        let columns = array.transpose().unwrap();
        let columns = Array::from_vec(columns.to_vec().unwrap(), [count, 2]).unwrap();
        assert_eq!(
            columns.argmax_axis(0).unwrap().to_vec().unwrap(),
            [at as i64; 2]
        );
        assert_eq!(columns.sum_axis(0).unwrap().to_vec().unwrap(), [9.0; 2]);
    }
}

#[test]
fn results_do_not_depend_on_the_memorys_contents() {
    let config = DeviceConfig {
        fill_recycled: Some(0xff),
        ..DeviceConfig::default()
    };
    let device = device_with(config).unwrap();
    let _guard = device.enter();
    let array = Array::from_vec((0..3000).map(small).collect(), [30, 100]).unwrap();
    for (whole, along, _) in REDUCTIONS {
        let _scope = device.scope("folds").enter();
        let first = (
            whole(&array).unwrap().item().unwrap(),
            along(&array, 0).unwrap().to_vec().unwrap(),
        );
        for _ in 0..2 {
            let again = (
                whole(&array).unwrap().item().unwrap(),
                along(&array, 0).unwrap().to_vec().unwrap(),
            );
            assert_eq!(first, again);
        }
    }
}

#[test]
fn axes_out_of_range_are_named() {
    let table = Array::<f32>::zeros([2, 3]).unwrap();
    for axis in [2, -3] {
        for (name, error) in [
            ("prod", table.prod_axis(axis).unwrap_err()),
            ("var", table.var_axis(axis).unwrap_err()),
            ("std", table.lazy().std_axis(axis).unwrap_err()),
            ("norm", table.norm_axis(axis).unwrap_err()),
            ("all", table.all_axis(axis).unwrap_err()),
            ("any", table.any_axis(axis).unwrap_err()),
            ("logsumexp", table.logsumexp_axis(axis).unwrap_err()),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            let named = [name, "[2, 3]", &axis.to_string()]
                .iter()
                .all(|part| text.contains(part));
            assert!(named, "{text}");
        }
    }
}
