//! Reductions, compared with naive reductions and ndarray.

use cachescope::ndarray::{ArrayD, Axis};
use cachescope::{AnyElement, Array, Device, ErrorKind, cache_scope, cache_stats};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::strided::{Placement, contiguous, placement, shape};

/// Returns a small whole number. The numbers have ties, and their sums are exact.
fn small(position: usize) -> f32 {
    ((position * 7) % 13) as f32 - 6.0
}

/// Returns the best value with respect to `better`, and its first index.
fn extreme(values: &[f32], better: fn(f32, f32) -> bool) -> (f32, i64) {
    let mut best = (values[0], 0);
    for (index, &value) in values.iter().enumerate().skip(1) {
        if better(value, best.0) {
            best = (value, index as i64);
        }
    }
    best
}

/// Returns the values of `reduce` for the lanes along `axis`.
fn lines<R>(array: &ArrayD<f32>, axis: usize, reduce: impl Fn(&[f32]) -> R) -> Vec<R> {
    // ndarray iterates over lanes in row-major order of the other axes.
    array
        .lanes(Axis(axis))
        .into_iter()
        .map(|lane| reduce(&lane.to_vec()))
        .collect()
}

fn any_placement() -> impl Strategy<Value = Placement> {
    shape().prop_flat_map(placement)
}

proptest! {
    #[test]
    fn whole_reductions_of_any_strides(placement in any_placement()) {
        let array = placement.build(small);
        let values = array.to_vec().unwrap();
        let lazy = &array * 1.0;
        prop_assert_eq!(array.sum().unwrap().item().unwrap(), values.iter().sum::<f32>());
        prop_assert_eq!(lazy.sum().unwrap().item().unwrap(), values.iter().sum::<f32>());
        if values.is_empty() {
            prop_assert!(array.mean().unwrap().item().unwrap().is_nan());
            for error in [array.max().unwrap_err(), lazy.min().unwrap_err()] {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                let shape = format!("{:?}", array.shape());
                prop_assert!(error.to_string().contains(&shape), "{error}");
            }
            prop_assert_eq!(array.argmax().unwrap_err().kind(), ErrorKind::InvalidArgument);
            return Ok(());
        }
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
        let found = f64::from(array.mean().unwrap().item().unwrap());
        prop_assert!((found - mean).abs() <= 1e-6 * mean.abs(), "{found}, not {mean}");
        let (largest, at_largest) = extreme(&values, |x, y| x > y);
        let (smallest, at_smallest) = extreme(&values, |x, y| x < y);
        prop_assert_eq!(array.max().unwrap().item().unwrap(), largest);
        prop_assert_eq!(lazy.min().unwrap().item().unwrap(), smallest);
        prop_assert_eq!(array.argmax().unwrap().item().unwrap(), at_largest);
        prop_assert_eq!(lazy.argmin().unwrap().item().unwrap(), at_smallest);
        prop_assert_eq!(array.sum().unwrap().ndim(), 0);
    }

    #[test]
    fn reductions_along_an_axis_of_any_strides(placement in any_placement(), pick in any::<usize>()) {
        let array = placement.build(small);
        if array.ndim() == 0 {
            return Ok(());
        }
        let at = pick % array.ndim();
        let negative = at as isize - array.ndim() as isize;
        let axis = if pick % 2 == 0 { at as isize } else { negative };
        let oracle = array.to_ndarray().unwrap();
        let lazy = &array * 1.0;
        let sums = array.sum_axis(axis).unwrap();
        let kept: Vec<_> =
            (0..array.ndim()).filter(|&other| other != at).map(|other| array.shape()[other]).collect();
        prop_assert_eq!(sums.shape(), kept);
        prop_assert_eq!(sums.to_vec().unwrap(), lines(&oracle, at, |line| line.iter().sum::<f32>()));
        prop_assert_eq!(lazy.sum_axis(axis).unwrap().to_vec().unwrap(), sums.to_vec().unwrap());
        if array.shape()[at] == 0 {
            let error = array.max_axis(axis).unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            prop_assert!(array.mean_axis(axis).unwrap().to_vec().unwrap().iter().all(|x| x.is_nan()));
            return Ok(());
        }
        let best = lines(&oracle, at, |line| extreme(line, |x, y| x > y));
        let worst = lines(&oracle, at, |line| extreme(line, |x, y| x < y));
        let (largest, at_largest): (Vec<_>, Vec<_>) = best.into_iter().unzip();
        let (smallest, at_smallest): (Vec<_>, Vec<_>) = worst.into_iter().unzip();
        prop_assert_eq!(array.max_axis(axis).unwrap().to_vec().unwrap(), largest);
        prop_assert_eq!(array.argmax_axis(axis).unwrap().to_vec().unwrap(), at_largest);
        prop_assert_eq!(lazy.min_axis(axis).unwrap().to_vec().unwrap(), smallest);
        prop_assert_eq!(lazy.argmin_axis(axis).unwrap().to_vec().unwrap(), at_smallest);
    }

    #[test]
    fn fused_equals_unfused(placement in any_placement(), other in 0.5..2.0f32) {
        let array = placement.build(small);
        let lazy = (&array * other).exp() - 1.0;
        let values = lazy.eval().unwrap();
        let plain = contiguous(&values);
        // The order of a sum follows the operands' order in memory.
        let (fused, unfused) = (lazy.sum().unwrap().item(), plain.sum().unwrap().item());
        let (fused, unfused) = (fused.unwrap(), unfused.unwrap());
        let size: f32 = values.to_vec().unwrap().iter().map(|x| x.abs()).sum();
        prop_assert!((fused - unfused).abs() <= 1e-6 * size, "{fused}, not {unfused}");
        for axis in 0..array.ndim() as isize {
            let fused = lazy.argmax_axis(axis).map(|x| x.to_vec().unwrap());
            let unfused = values.argmax_axis(axis).map(|x| x.to_vec().unwrap());
            prop_assert_eq!(fused.ok(), unfused.ok());
        }
    }
}

#[test]
fn a_million_tenths_sum_to_a_hundred_thousand() {
    let count = 1_000_000;
    let tenths = Array::<f32>::full([1000, 1000], 0.1).unwrap();
    let exact = f64::from(0.1_f32) * f64::from(count);
    let close = |sum: f32, exact: f64| (f64::from(sum) - exact).abs() <= 1e-6 * exact;
    let view = tenths.transpose().unwrap();
    for sum in [
        tenths.sum(),
        tenths.lazy().sum(),
        view.sum(),
        (&tenths + &view * 0.0).sum(),
    ] {
        let sum = sum.unwrap().item().unwrap();
        assert!(close(sum, exact), "{sum}");
    }
    let mean = tenths.mean().unwrap().item().unwrap();
    assert!(close(mean, f64::from(0.1_f32)), "{mean}");
    for shape in [
        [count as usize, 1],
        [count as usize / 4, 4],
        [10, 100_000],
        [1, count as usize],
    ] {
        let table = tenths.reshape(shape).unwrap();
        for axis in [0, 1] {
            let exact = f64::from(0.1_f32) * shape[axis] as f64;
            let sums = table.sum_axis(axis as isize).unwrap().to_vec().unwrap();
            assert!(
                sums.iter().all(|&sum| close(sum, exact)),
                "{shape:?} along {axis}: {}",
                sums[0]
            );
        }
    }
    let doubles = Array::<f64>::full(count as usize, 0.1)
        .unwrap()
        .sum()
        .unwrap()
        .item()
        .unwrap();
    assert!((doubles - 100_000.0).abs() <= 1e-10, "{doubles}");
}

#[test]
fn cancellation_is_compensated_from_block_to_block() {
    // Blocks have this length both for expressions and for operands in memory.
    let block = 1024;
    let mut values = vec![1.0_f32; block];
    values.resize(2 * block, 1e8);
    values.resize(3 * block, -1e8);
    let array = Array::from_vec(values, 3 * block).unwrap();
    let fused = (&array * 1.0).sum().unwrap();
    assert_eq!(fused.item().unwrap(), block as f32);
    assert_eq!(array.sum().unwrap().item().unwrap(), block as f32);
}

#[test]
fn integers_and_bools_sum_in_64_bits() {
    macro_rules! check {
        ($($type:ident $sum:ident;)+) => {
            $(
                let array = Array::<$type>::full([300, 7], $type::MAX).unwrap();
                let sum: Array<$sum> = array.sum().unwrap();
                assert_eq!(sum.item().unwrap(), $sum::from($type::MAX).wrapping_mul(2100));
                let sums: Array<$sum> = array.sum_axis(0).unwrap();
                assert_eq!(sums.to_vec().unwrap(), [$sum::from($type::MAX).wrapping_mul(300); 7]);
                let mean: Array<f64> = (&array - $type::MAX).sum_axis(1).unwrap().mean().unwrap();
                assert_eq!(mean.item().unwrap(), 0.0);
                let mean: Array<f64> = Array::<$type>::from_slice(&[1, 2], 2).unwrap().mean().unwrap();
                assert_eq!(mean.item().unwrap(), 1.5);
            )+
        };
    }
    check! { i8 i64; i16 i64; i32 i64; i64 i64; u8 u64; u16 u64; u32 u64; u64 u64; }
    let mask = Array::from_slice(&[true, false, true, true], [2, 2]).unwrap();
    let count: Array<i64> = mask.sum().unwrap();
    assert_eq!(count.item().unwrap(), 3);
    assert_eq!(mask.mean_axis(0).unwrap().to_vec().unwrap(), [1.0, 0.5]);
    assert!(mask.max().unwrap().item().unwrap());
    assert_eq!(mask.min_axis(1).unwrap().to_vec().unwrap(), [false, true]);
    assert_eq!(mask.argmin().unwrap().item().unwrap(), 1);
    let hits = mask.eq(true).sum().unwrap();
    assert_eq!(hits.item().unwrap(), 3);
}

#[test]
fn halves_accumulate_in_f32() {
    let ones = Array::<f16>::ones([4096, 2]).unwrap();
    assert_eq!(
        ones.sum_axis(0).unwrap().to_vec().unwrap(),
        [f16::from_f32(4096.0); 2]
    );
    assert_eq!(ones.sum().unwrap().item().unwrap(), f16::from_f32(8192.0));
    assert_eq!(ones.mean().unwrap().item().unwrap(), f16::ONE);
    let many = Array::<bf16>::ones(1000).unwrap();
    assert_eq!(many.sum().unwrap().item().unwrap(), bf16::from_f32(1000.0));
    // The sum overflows in `f16`, but the mean does not.
    let large = Array::<f16>::full(100, f16::from_f32(60000.0)).unwrap();
    assert_eq!(
        large.mean().unwrap().item().unwrap(),
        f16::from_f32(60000.0)
    );
}

/// The test puts the NaN at each index, in full blocks of lanes and in the remainder.
#[test]
fn a_single_nan_is_found() {
    for length in [31, 64, 100, 200] {
        for at in 0..length {
            let mut values: Vec<f64> = (0..length).map(|place| small(place).into()).collect();
            values[at] = f64::NAN;
            let line = Array::from_vec(values, length).unwrap();
            let single = line.cast::<f32>();
            assert!(line.max().unwrap().item().unwrap().is_nan());
            assert!(single.min().unwrap().item().unwrap().is_nan());
            assert_eq!(line.argmin().unwrap().item().unwrap(), at as i64);
            assert_eq!(single.argmax().unwrap().item().unwrap(), at as i64);
        }
    }
}

#[test]
fn nan_and_infinity_pass_through() {
    for length in [3, 16, 40, 300, 1000] {
        for at in [0, 1, length / 2, length - 1] {
            let mut values: Vec<f32> = (0..length).map(small).collect();
            values[at] = f32::NAN;
            values[length - 1] = f32::NAN;
            let line = Array::from_slice(&values, length).unwrap();
            let column =
                Array::from_vec(values.iter().flat_map(|&x| [x; 2]).collect(), [length, 2]);
            let column = column.unwrap();
            assert!(line.max().unwrap().item().unwrap().is_nan());
            assert!(line.min().unwrap().item().unwrap().is_nan());
            assert!(line.sum().unwrap().item().unwrap().is_nan());
            assert_eq!(line.argmax().unwrap().item().unwrap(), at as i64);
            assert_eq!(line.argmin().unwrap().item().unwrap(), at as i64);
            assert!(
                column
                    .max_axis(0)
                    .unwrap()
                    .to_vec()
                    .unwrap()
                    .iter()
                    .all(|x| x.is_nan())
            );
            assert_eq!(
                column.argmax_axis(0).unwrap().to_vec().unwrap(),
                [at as i64; 2]
            );
        }
    }
    let infinite = Array::from_slice(&[1.0_f32, f32::INFINITY].repeat(400), [400, 2]).unwrap();
    assert_eq!(infinite.sum().unwrap().item().unwrap(), f32::INFINITY);
    assert_eq!(
        infinite.mean_axis(0).unwrap().to_vec().unwrap(),
        [1.0, f32::INFINITY]
    );
    assert_eq!(infinite.argmax().unwrap().item().unwrap(), 1);
    let lowest = Array::<f32>::full(20, f32::NEG_INFINITY).unwrap();
    assert_eq!(lowest.argmax().unwrap().item().unwrap(), 0);
    assert_eq!(lowest.max().unwrap().item().unwrap(), f32::NEG_INFINITY);
}

#[test]
fn axes_out_of_range_are_named() {
    let table = Array::<f32>::zeros([2, 3]).unwrap();
    for axis in [2, -3, isize::MAX, isize::MIN] {
        let error = table.sum_axis(axis).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        let named = ["sum", "[2, 3]", &axis.to_string()]
            .iter()
            .all(|part| text.contains(part));
        assert!(named, "{text}");
    }
    let scalar = Array::<f32>::zeros([0; 0]).unwrap();
    assert_eq!(
        scalar.max_axis(0).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(scalar.max().unwrap().item().unwrap(), 0.0);
    // Along axis 0, the result is empty, so no lane is reduced.
    let empty = Array::<f32>::zeros([2, 0]).unwrap();
    assert!(empty.max_axis(0).unwrap().is_empty());
    assert_eq!(empty.sum_axis(1).unwrap().to_vec().unwrap(), [0.0, 0.0]);
    assert_eq!(
        empty.argmax_axis(1).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn a_fused_reduction_stores_only_its_result() {
    let x = Array::<f32>::ones([100, 100]).unwrap();
    cache_scope!("fused", {
        let loss = ((&x - 0.5).square() * 2.0).mean().unwrap();
        assert_eq!(loss.item().unwrap(), 0.5);
        let stats = cache_stats("fused").unwrap();
        assert_eq!((stats.hits + stats.misses, stats.peak_live_bytes), (1, 4));
    });
    assert_eq!(x.sum().unwrap().device(), &Device::current());
    assert_eq!(f32::NAME, "f32");
}
