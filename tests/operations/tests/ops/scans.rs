//! Cumulative sums, softmax and log-softmax, compared with naive reductions in `f64`.

use cachescope::ndarray::{ArrayD, Axis};
use cachescope::{Array, DeviceConfig, ErrorKind};
use half::{bf16, f16};
use proptest::prelude::*;
use under_test::device_with;

use crate::ops::threads::same_bits;
use crate::strided::{placement, shape};

fn small(position: usize) -> f32 {
    ((position * 7) % 13) as f32 * 0.25 - 1.5
}

fn running(values: &[f64]) -> Vec<f64> {
    let sums = values.iter().scan(0.0, |sum, x| {
        *sum += x;
        Some(*sum)
    });
    sums.collect()
}

fn softmax(values: &[f64]) -> Vec<f64> {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|x| (x - largest).exp()).sum();
    values.iter().map(|x| (x - largest).exp() / sum).collect()
}

fn log_softmax(values: &[f64]) -> Vec<f64> {
    softmax(values).into_iter().map(f64::ln).collect()
}

/// Returns the values of `map` for the lanes along `axis`.
fn mapped(array: &ArrayD<f64>, axis: usize, map: fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut result = array.clone();
    for mut lane in result.lanes_mut(Axis(axis)) {
        let values = map(&lane.to_vec());
        for (slot, value) in lane.iter_mut().zip(values) {
            *slot = value;
        }
    }
    result.iter().copied().collect()
}

fn close(found: &[f32], expected: &[f64], tolerance: f64) -> bool {
    let near = |(&found, &expected): (&f32, &f64)| {
        (f64::from(found) - expected).abs() <= tolerance * expected.abs().max(1.0)
    };
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

proptest! {
    #[test]
    fn any_strides_along_any_axis(placement in shape().prop_flat_map(placement), pick in any::<usize>()) {
        let array = placement.build(small);
        if array.ndim() == 0 {
            return Ok(());
        }
        let values: Vec<f64> = array.to_vec().unwrap().into_iter().map(f64::from).collect();
        let oracle = ArrayD::from_shape_vec(array.shape(), values).unwrap();
        let at = pick % array.ndim();
        let axis = if pick % 2 == 0 { at as isize } else { at as isize - array.ndim() as isize };
        let sums = array.cumsum(axis).unwrap();
        prop_assert_eq!(sums.shape(), array.shape());
        prop_assert!(close(&sums.to_vec().unwrap(), &mapped(&oracle, at, running), 1e-6));
        let fused = (&array * 1.0).softmax(axis).unwrap();
        prop_assert_eq!(fused.shape(), array.shape());
        prop_assert!(close(&fused.to_vec().unwrap(), &mapped(&oracle, at, softmax), 1e-6));
        let logs = array.log_softmax(axis).unwrap().to_vec().unwrap();
        prop_assert!(close(&logs, &mapped(&oracle, at, log_softmax), 1e-6));
        let whole = placement.build(|at| (at % 200) as u8);
        let wide = whole.cast::<f64>().eval().unwrap().to_ndarray().unwrap();
        let expected: Vec<u64> =
            mapped(&wide, at, running).into_iter().map(|x| x as u64).collect();
        prop_assert_eq!(whole.lazy().cumsum(axis).unwrap().to_vec().unwrap(), expected);
    }
}

#[test]
fn running_sums_of_a_million_tenths_stay_exact() {
    let count = 1_000_000;
    let tenths = Array::<f32>::full([count, 1], 0.1).unwrap();
    let near = |sums: Vec<f32>, columns: usize| {
        sums.iter().enumerate().all(|(at, &sum)| {
            let exact = f64::from(0.1_f32) * (at / columns + 1) as f64;
            (f64::from(sum) - exact).abs() <= 1e-6 * exact
        })
    };
    assert!(near(tenths.cumsum(0).unwrap().to_vec().unwrap(), 1));
    assert!(near(
        tenths
            .flatten()
            .unwrap()
            .cumsum(0)
            .unwrap()
            .to_vec()
            .unwrap(),
        1
    ));
    let pairs = tenths.broadcast_to([count, 2]).unwrap();
    assert!(near(pairs.cumsum(0).unwrap().to_vec().unwrap(), 2));
    let doubles = Array::<f64>::full(count, 0.1).unwrap().cumsum(0).unwrap();
    let last = doubles.to_vec().unwrap()[count - 1];
    assert!((last - 100_000.0).abs() <= 1e-10, "{last}");
}

#[test]
fn running_sums_of_any_length_are_exact() {
    // The lengths are around the sizes of the blocks and segments of a lane.
    for length in [1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 519, 1025] {
        let whole: Vec<f64> = (0..2 * length)
            .map(|at| (at * 7 % 13) as f64 - 5.0)
            .collect();
        let expected: Vec<f64> = whole.chunks(length).flat_map(running).collect();
        let x = Array::from_vec(whole, [2, length]).unwrap();
        assert_eq!(x.cumsum(1).unwrap().to_vec().unwrap(), expected);
        let narrow = x.cast::<f32>().eval().unwrap().cumsum(1).unwrap();
        let narrow = narrow.cast::<f64>().eval().unwrap();
        assert_eq!(narrow.to_vec().unwrap(), expected);
        let integers = x.cast::<i32>().eval().unwrap().cumsum(1).unwrap();
        let integers = integers.cast::<f64>().eval().unwrap();
        assert_eq!(integers.to_vec().unwrap(), expected);
    }
}

#[test]
fn running_sums_keep_what_cancellation_leaves() {
    // In double precision, 1 is lost beside 1e17. Adding −1e17 must restore it.
    for place in [0, 5, 62, 63, 64, 128, 254, 255, 256, 300] {
        let mut values = vec![1.0; 600];
        (values[place], values[place + 200]) = (1e17, -1e17);
        let x = Array::from_vec(values, 600).unwrap();
        let sums = x.cumsum(0).unwrap().to_vec().unwrap();
        for (index, &sum) in sums.iter().enumerate() {
            let (large, ones) = match index {
                _ if index < place => (0.0, index + 1),
                _ if index < place + 200 => (1e17, index),
                _ => (0.0, index - 1),
            };
            assert_eq!(sum, large + ones as f64, "{index} of {place}");
        }
    }
}

#[test]
fn types_sum_in_their_own_way() {
    let bytes = Array::<i8>::full(5, -100).unwrap().cumsum(0).unwrap();
    let bytes: Vec<i64> = bytes.to_vec().unwrap();
    assert_eq!(bytes, [-100, -200, -300, -400, -500]);
    let flags = Array::from_slice(&[true, false, true], 3).unwrap();
    assert_eq!(flags.cumsum(0).unwrap().to_vec().unwrap(), [1_i64, 1, 2]);
    let wrapped = Array::from_slice(&[u64::MAX, 2], 2)
        .unwrap()
        .cumsum(-1)
        .unwrap();
    assert_eq!(wrapped.to_vec().unwrap(), [u64::MAX, 1]);
    let halves = Array::<f16>::ones(3000)
        .unwrap()
        .cumsum(0)
        .unwrap()
        .to_vec()
        .unwrap();
    assert_eq!(halves[2999], f16::from_f32(3000.0));
    let infinite =
        Array::from_slice(&[1.0, f64::INFINITY, 1.0, f64::NEG_INFINITY, 1.0], 5).unwrap();
    let sums = infinite.cumsum(0).unwrap().to_vec().unwrap();
    assert_eq!(sums[..3], [1.0, f64::INFINITY, f64::INFINITY]);
    assert!(sums[3].is_nan() && sums[4].is_nan());
    let mut long = vec![1.0; 600];
    (long[70], long[140]) = (f64::INFINITY, f64::NEG_INFINITY);
    let sums = Array::from_vec(long, 600).unwrap().cumsum(0).unwrap();
    let sums = sums.to_vec().unwrap();
    assert!(sums[69] == 70.0 && sums[70..140].iter().all(|&sum| sum == f64::INFINITY));
    assert!(sums[140..].iter().all(|sum| sum.is_nan()));
    let even = Array::<bf16>::ones([4, 300]).unwrap();
    for axis in [0, 1] {
        let parts = even.softmax(axis).unwrap().to_vec().unwrap();
        let part = bf16::from_f32([0.25, 1.0 / 300.0][axis as usize]);
        assert!(parts.iter().all(|&x| x == part));
    }
}

#[test]
fn lines_of_infinities_and_nan_are_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (line, all_nan) in [
        ([-inf; 3], true),
        ([inf, 0.0, 1.0], true),
        ([0.0, nan, 1.0], true),
        ([-inf, 0.0, -inf], false),
    ] {
        for length in [3, 600] {
            let mut values = vec![if line[0] == -inf { -inf } else { 0.0 }; length];
            values[length - 3..].copy_from_slice(&line);
            let row = Array::from_slice(&values, [1, length]).unwrap();
            let column = |x: Vec<f32>| x.into_iter().step_by(2).collect::<Vec<_>>();
            let twice: Vec<f32> = values.iter().flat_map(|&x| [x, 1.0]).collect();
            let pair = Array::from_vec(twice, [length, 2]).unwrap();
            for found in [
                row.softmax(1).unwrap().to_vec().unwrap(),
                column(pair.softmax(0).unwrap().to_vec().unwrap()),
            ] {
                if all_nan {
                    assert!(found.iter().all(|x| x.is_nan()), "{line:?}: {found:?}");
                } else {
                    assert_eq!(found[length - 3..], [0.0, 1.0, 0.0]);
                }
            }
            for found in [
                row.log_softmax(1).unwrap().to_vec().unwrap(),
                column(pair.log_softmax(0).unwrap().to_vec().unwrap()),
            ] {
                if all_nan {
                    assert!(found.iter().all(|x| x.is_nan()), "{line:?}: {found:?}");
                } else {
                    assert_eq!(found[length - 3..], [-inf, 0.0, -inf]);
                }
            }
        }
    }
    let far = Array::from_slice(&[1000.0_f32, -1000.0], 2).unwrap();
    assert_eq!(
        far.log_softmax(0).unwrap().to_vec().unwrap(),
        [0.0, -2000.0]
    );
}

#[test]
fn empty_arrays_stay_empty_and_axes_are_checked() {
    for shape in [[0, 3], [3, 0], [0, 0]] {
        let none = Array::<f32>::zeros(shape).unwrap();
        for axis in [0, 1, -1, -2] {
            assert_eq!(none.cumsum(axis).unwrap().shape(), shape);
            assert_eq!(none.softmax(axis).unwrap().shape(), shape);
            assert_eq!(none.log_softmax(axis).unwrap().shape(), shape);
        }
    }
    let table = Array::<f32>::zeros([2, 3]).unwrap();
    let scalar = Array::<f32>::zeros([0; 0]).unwrap();
    for (array, shape, axis) in [
        (&table, "[2, 3]", 2),
        (&table, "[2, 3]", -3),
        (&scalar, "[]", 0),
    ] {
        for (name, error) in [
            ("cumsum", array.cumsum(axis).unwrap_err()),
            ("softmax", array.softmax(axis).unwrap_err()),
            ("log_softmax", array.lazy().log_softmax(axis).unwrap_err()),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            let named = [name, shape, &axis.to_string()]
                .iter()
                .all(|part| text.contains(part));
            assert!(named, "{text}");
        }
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let rough = |at: usize| (at as f32 * 0.37).sin();
    for shape in [[3, 100_001], [100_001, 3], [700, 700]] {
        let x = Array::from_vec((0..shape[0] * shape[1]).map(rough).collect(), shape).unwrap();
        for axis in [0, 1] {
            same_bits(|| x.cumsum(axis).unwrap().to_vec().unwrap());
            same_bits(|| x.softmax(axis).unwrap().to_vec().unwrap());
            same_bits(|| x.log_softmax(axis).unwrap().to_vec().unwrap());
        }
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
    let x = Array::from_vec((0..3000).map(small).collect(), [30, 100]).unwrap();
    for axis in [0, 1] {
        let _scope = device.scope("scans").enter();
        let compute = || {
            let all = [x.cumsum(axis), x.softmax(axis), x.log_softmax(axis)];
            all.map(|found| found.unwrap().to_vec().unwrap())
        };
        let first = compute();
        assert!(first.iter().flatten().all(|x| x.is_finite()));
        assert!(compute() == first && compute() == first);
    }
}
