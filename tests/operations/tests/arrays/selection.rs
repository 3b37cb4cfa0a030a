//! Masks, scattered writes, counts and order statistics: properties that NumPy's cases do not
//! cover.

use cachescope::ndarray::s;
use cachescope::{Array, Device, Element, ErrorKind, Float, Result, cache_scope, cache_stats};
use half::{bf16, f16};

use crate::arrays::{dirty_device, fails};

/// Returns `count` numbers of a deterministic xorshift generator.
fn mixed(count: usize) -> Vec<f32> {
    let mut state = 88_172_645_463_325_252_u64;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 - 8_000_000.0
        })
        .collect()
}

#[test]
fn a_mask_that_holds_nowhere_or_everywhere() -> Result<()> {
    let x = Array::arange(0, 600, 1)?.reshape([3, 200])?;
    for (value, count) in [(false, 0), (true, 600)] {
        let mask = Array::full([3, 200], value)?;
        let kept = x.select_by(&mask)?;
        assert_eq!(kept.shape(), [count]);
        assert_eq!(kept.to_vec()?, x.to_vec()?[..count]);
        assert_eq!(mask.nonzero()?.shape(), [count, 2]);
        let rows = x.select_by(&mask.slice(s![.., 7])?)?;
        assert_eq!(rows.shape(), [count / 200, 200]);
    }
    let scalar = Array::full([], 5)?;
    assert_eq!(scalar.nonzero()?.shape(), [1, 0]);
    assert_eq!(scalar.select_by(&Array::full([], true)?)?.to_vec()?, [5]);
    assert_eq!(x.select_by(&Array::full([], true)?)?.shape(), [1, 3, 200]);
    let none = Array::<i64>::zeros([0, 4])?;
    assert_eq!(none.nonzero()?.shape(), [0, 2]);
    assert_eq!(none.select_by(&Array::full(0, true)?)?.shape(), [0, 4]);
    Ok(())
}

#[test]
fn a_masked_assignment_copies_nothing() -> Result<()> {
    let mut x = Array::from_slice(&[1.0, -2.0, 3.0, -4.0], [2, 2])?;
    let mask = x.lt(0.0).eval()?;
    let address = x.address();
    cache_scope!("masked assignment", {
        x.masked_assign(&mask, &x * 10.0)?;
    });
    assert_eq!(x.address(), address);
    assert_eq!(x.to_vec()?, [1.0, -20.0, 3.0, -40.0]);
    let stats = cache_stats("masked assignment").unwrap();
    assert_eq!((stats.misses, stats.copies_on_write), (0, 0));
    // The values of the other handle do not change.
    let kept = x.clone();
    x.masked_assign(&mask, 0.0)?;
    assert_eq!(x.to_vec()?, [1.0, 0.0, 3.0, 0.0]);
    assert_eq!(kept.to_vec()?, [1.0, -20.0, 3.0, -40.0]);
    // The mask is the array itself.
    let mut flags = Array::from_slice(&[true, false], 2)?;
    flags.masked_assign(&flags.clone(), false)?;
    assert_eq!(flags.to_vec()?, [false, false]);
    Ok(())
}

#[test]
fn of_several_values_for_one_place_the_last_stays() -> Result<()> {
    let count = 50_000_i64;
    let mut last = Array::full(7, -1_i64)?;
    let (indices, values) = (Array::arange(0, count, 1)?, Array::arange(0, count, 1)?);
    last.scatter(&(&indices % 7).eval()?, &values, 0)?;
    let wanted: Vec<i64> = (0..7)
        .map(|place| (0..count).rfind(|value| value % 7 == place).unwrap())
        .collect();
    assert_eq!(last.to_vec()?, wanted);
    // `scatter` writes into memory that a clone shares, and into a broadcast array.
    let kept = last.clone();
    last.scatter(&Array::full(1, -1)?, &Array::full(1, 99)?, 0)?;
    assert_eq!((last.to_vec()?[6], kept.to_vec()?[6]), (99, wanted[6]));
    let mut wide = Array::full(1, 5)?.broadcast_to([2, 3])?;
    wide.scatter(&Array::zeros([2, 1])?, &Array::full([2, 1], 8)?, 1)?;
    assert_eq!(wide.to_vec()?, [8, 5, 5, 8, 5, 5]);
    Ok(())
}

#[test]
fn the_first_of_many_are_those_of_sorting() -> Result<()> {
    let device = dirty_device()?;
    let _current = device.enter();
    let count = 40_000;
    let ascending: Vec<f32> = (0..count).map(|number| number as f32).collect();
    let descending: Vec<f32> = ascending.iter().rev().copied().collect();
    let few: Vec<f32> = mixed(count).iter().map(|value| value.abs() % 5.0).collect();
    let mut special = mixed(count);
    special[777] = f32::NAN;
    special[30_000] = -f32::NAN;
    special[5] = f32::INFINITY;
    for values in [ascending, descending, few, mixed(count), special] {
        let x = Array::from_vec(values, count)?;
        // The expected order is the order of a full `topk`, in which NaN is first.
        let (values, order) = (x.to_vec()?, x.topk(count, 0)?.1.to_vec()?);
        for k in [1, 2, 10, 63, 64, 65, 300, 9_999, 10_001, count - 1] {
            let (found, places) = x.topk(k, 0)?;
            assert_eq!(places.to_vec()?, order[..k], "{k}");
            let same = found.to_vec()?.into_iter().zip(&order);
            for (value, &place) in same {
                assert_eq!(value.to_bits(), values[place as usize].to_bits());
            }
        }
    }
    let x = Array::from_vec(mixed(count), [4, count / 4])?;
    let (apart, beside) = (x.transpose()?.topk(9, 0)?.1, x.topk(9, 1)?.1);
    assert_eq!(apart.transpose()?.to_vec()?, beside.to_vec()?);
    Ok(())
}

fn medians<T: Float>(lengths: &[usize]) -> Result<()> {
    for &length in lengths {
        let values: Vec<T> = mixed(3 * length)
            .into_iter()
            .map(|x| T::from_f64(f64::from(x) / 256.0))
            .collect();
        let x = Array::from_vec(values, [3, length])?;
        let sorted = x.sort(1)?;
        let at = |place: usize| -> Result<Vec<f64>> {
            Ok(sorted
                .slice(s![.., place])?
                .to_vec()?
                .into_iter()
                .map(T::to_f64)
                .collect())
        };
        let both = at((length - 1) / 2)?.into_iter().zip(at(length / 2)?);
        let wanted: Vec<T> = both
            .map(|(low, high)| T::from_f64((low + high) * 0.5))
            .collect();
        assert_eq!(x.median(1)?.to_vec()?, wanted, "{} of {length}", T::NAME);
        assert_eq!(x.transpose()?.median(0)?.to_vec()?, wanted);
        assert_eq!(
            x.transpose()?.reshape([length, 3])?.median(0)?.to_vec()?,
            wanted
        );
        for (q, place) in [(0.0, 0), (1.0, length - 1)] {
            let ends: Vec<f64> = x
                .quantile(q, 1)?
                .to_vec()?
                .into_iter()
                .map(T::to_f64)
                .collect();
            assert_eq!(ends, at(place)?);
        }
    }
    Ok(())
}

#[test]
fn medians_of_many_are_those_of_sorting() -> Result<()> {
    let lengths = [1, 2, 3, 4, 255, 256, 257, 258, 3000, 4097];
    medians::<f32>(&lengths)?;
    medians::<f64>(&lengths)?;
    medians::<f16>(&lengths)?;
    medians::<bf16>(&lengths)
}

#[test]
fn quantiles_beside_nan_and_infinities() -> Result<()> {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = Array::from_slice(&[1.0, nan, 2.0, 3.0, 4.0, 5.0, inf, inf, -inf], [3, 3])?;
    let same = |found: Array<f32>, wanted: [f32; 3]| -> Result<()> {
        for (found, wanted) in found.to_vec()?.into_iter().zip(wanted) {
            assert!(
                found == wanted || (found.is_nan() && wanted.is_nan()),
                "{found} {wanted}"
            );
        }
        Ok(())
    };
    same(x.median(1)?, [nan, 4.0, inf])?;
    same(x.quantile(0.0, 1)?, [nan, 3.0, -inf])?;
    same(x.quantile(0.75, 1)?, [nan, 4.5, inf])?;
    same(x.quantile(1.0, 0)?, [inf, nan, 5.0])?;
    let long = Array::from_vec(mixed(10_000), 10_000)?;
    let mut odd = long.to_uncached()?;
    odd.slice_mut(s![1234])?.fill(nan)?;
    assert!(odd.median(0)?.item()?.is_nan() && odd.quantile(0.1, 0)?.item()?.is_nan());
    // The interpolation between neighbours is exact to the last place.
    let pair = Array::from_slice(&[1.0_f64, 2.0], 2)?;
    assert_eq!(pair.quantile(0.3, 0)?.item()?, 1.3);
    Ok(())
}

#[test]
fn places_in_sorted_arrays_of_any_length() -> Result<()> {
    for length in 0..40_i64 {
        let sorted = Array::from_vec(
            (0..length).map(|value| value / 2 * 3).collect(),
            length as usize,
        )?;
        let all = sorted.to_vec()?;
        let wanted: Vec<i64> = (-2..70)
            .map(|value| all.iter().filter(|&&own| own < value).count() as i64)
            .collect();
        let values = Array::arange(-2_i64, 70, 1)?;
        assert_eq!(sorted.searchsorted(&values)?.to_vec()?, wanted, "{length}");
        let turned = sorted.flip(0)?.to_uncached()?.flip(0)?;
        let places = turned.searchsorted(&values.reshape([9, 8])?.transpose()?)?;
        assert_eq!(places.transpose()?.to_vec()?, wanted);
    }
    let sorted = Array::from_slice(&[1.0, 2.0, f32::NAN, f32::NAN], 4)?;
    let values = Array::from_slice(&[f32::NAN, -f32::NAN, f32::INFINITY], 3)?;
    assert_eq!(sorted.searchsorted(&values)?.to_vec()?, [2, 2, 2]);
    Ok(())
}

#[test]
fn counts_of_many_numbers() -> Result<()> {
    let numbers: Vec<u8> = mixed(100_000)
        .iter()
        .map(|&value| value.abs() as u64 as u8)
        .collect();
    let mut wanted = [0_i64; 256];
    numbers
        .iter()
        .for_each(|&number| wanted[usize::from(number)] += 1);
    let x = Array::from_vec(numbers, [400, 250])?;
    assert_eq!(x.bincount(256)?.to_vec()?, wanted);
    assert_eq!(x.transpose()?.bincount(256)?.to_vec()?, wanted);
    let none = Array::<u64>::zeros(0)?;
    assert_eq!(none.bincount(3)?.to_vec()?, [0; 3]);
    assert_eq!(none.bincount(0)?.shape(), [0]);
    Ok(())
}

#[test]
fn every_element_is_in_one_range() -> Result<()> {
    let x = Array::from_vec(mixed(30_000), [30, 1000])?;
    for bins in [1, 2, 7, 1000] {
        let (counts, edges) = x.histogram(bins)?;
        assert_eq!(
            (counts.shape(), edges.shape()),
            (&[bins][..], &[bins + 1][..])
        );
        let (all, edges) = (x.to_vec()?, edges.to_vec()?);
        for (bin, count) in counts.to_vec()?.into_iter().enumerate() {
            let is_last = bin + 1 == bins;
            let inside = |value: f32| {
                edges[bin] <= value && (value < edges[bin + 1] || (is_last && value == edges[bins]))
            };
            assert_eq!(
                all.iter().filter(|&&value| inside(value)).count() as i64,
                count
            );
        }
    }
    let (counts, edges) = Array::full([2, 2], 3.0)?.histogram(2)?;
    assert_eq!(
        (counts.to_vec()?, edges.to_vec()?),
        (vec![0, 4], vec![2.5, 3.0, 3.5])
    );
    let (counts, edges) = Array::<f64>::zeros(0)?.histogram(2)?;
    assert_eq!(
        (counts.to_vec()?, edges.to_vec()?),
        (vec![0, 0], vec![0.0, 0.5, 1.0])
    );
    Ok(())
}

fn edges_of_seven_ranges<T: Float>() -> Result<()> {
    let ends = [-6e4, 6e4].map(T::from_f64);
    let (_, edges) = Array::from_slice(&ends, 2)?.histogram(7)?;
    let width = (ends[1].to_f64() - ends[0].to_f64()) / 7.0;
    let exact = (0..8).map(|number| T::from_f64(ends[0].to_f64() + f64::from(number) * width));
    assert_eq!(edges.to_vec()?, exact.collect::<Vec<T>>());
    Ok(())
}

#[test]
fn edges_of_ranges_are_rounded_once() -> Result<()> {
    edges_of_seven_ranges::<f16>()?;
    edges_of_seven_ranges::<bf16>()
}

#[test]
fn operators_of_bits_take_every_mix() -> Result<()> {
    let (x, y) = (
        Array::from_slice(&[0b1100_u8, 0b1010], 2)?,
        Array::from_slice(&[1_u8, 9], 2)?,
    );
    assert_eq!((&x ^ &y).eval()?.to_vec()?, [0b1101, 0b0011]);
    assert_eq!((&x ^ 0b1111).eval()?.to_vec()?, [0b0011, 0b0101]);
    assert_eq!((0b1111_u8 ^ &x).eval()?.to_vec()?, [0b0011, 0b0101]);
    assert_eq!((&x << 1).eval()?.to_vec()?, [0b11000, 0b10100]);
    assert_eq!((&x << &y >> 1_u8).eval()?.to_vec()?, [0b1100, 0]);
    assert_eq!((128_u8 >> &y).eval()?.to_vec()?, [64, 0]);
    let truth = Array::from_slice(&[true, false], 2)?;
    assert_eq!((&truth ^ true).eval()?.to_vec()?, [false, true]);
    assert_eq!(x.powi(2).eval()?.to_vec()?, [144, 100]);
    assert_eq!(
        x.lazy().pow(&y).eval()?.to_vec()?,
        [12, 10_u8.wrapping_pow(9)]
    );
    Ok(())
}

/// Checks that the result of each operation that waits is on the array's device, independent of the
/// current device.
fn elsewhere<T: Element>(x: &Array<T>) -> Result<()> {
    let own = x.device();
    assert_ne!(*own, Device::current());
    assert_eq!(x.nonzero()?.device(), own);
    assert_eq!(x.unique()?.device(), own);
    Ok(())
}

#[test]
fn results_are_on_the_device_of_the_array() -> Result<()> {
    let device = dirty_device()?;
    let x = {
        let _current = device.enter();
        Array::from_slice(&[1.0_f32, 2.0, 2.0], 3)?
    };
    elsewhere(&x)?;
    let (counts, edges) = x.histogram(2)?;
    assert_eq!((counts.device(), edges.device()), (&device, &device));
    assert_eq!(x.cast::<i64>().eval()?.bincount(3)?.device(), &device);
    assert_eq!(x.median(0)?.device(), &device);
    let here = Array::<bool>::ones(3)?;
    fails(
        x.select_by(&here),
        ErrorKind::DeviceMismatch,
        "select_by: the array [3] is on ",
    );
    let mut target = x.clone();
    fails(
        target.masked_assign(&here, 0.0),
        ErrorKind::DeviceMismatch,
        "masked_assign: the array [3] is on ",
    );
    fails(
        x.searchsorted(&Array::ones(3)?),
        ErrorKind::DeviceMismatch,
        "searchsorted: the sorted array [3] is on ",
    );
    Ok(())
}
