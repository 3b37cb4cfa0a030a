//! Normalizations and deviations of elements whose squares are beyond the range of their type. If
//! epsilon grows with the square of a row's size, the norm does not depend on the size.

use cachescope::grad::nn::{BatchNorm, GroupNorm, LayerNorm, RmsNorm};
use cachescope::grad::{hvp, value_and_grad};
use cachescope::{Array, DeviceConfig, Float, Result};
use half::bf16;
use ndarray::s;
use under_test::device_with;

use super::narrow::number;

const SHAPE: [usize; 2] = [4, 6];

/// Returns the elements of ordinary rows.
fn rows() -> Vec<f64> {
    let elements = (0..24).map(|number| f64::from(number * 7 % 24) / 8.0 - 1.0);
    elements.collect()
}

fn array<T: Float>(size: f64) -> Result<Array<T>> {
    let elements: Vec<T> = rows().iter().map(|x| number::<T>(x * size)).collect();
    Array::from_slice(&elements, SHAPE)
}

/// A function that normalizes an array, with a given epsilon.
type Norm<T> = fn(&Array<T>, f64) -> Result<Array<T>>;

fn norms<T: Float>() -> [(&'static str, Norm<T>); 4] {
    [
        ("LayerNorm", |x, epsilon| {
            let layer = LayerNorm::new(6)?;
            LayerNorm { epsilon, ..layer }.forward(x)
        }),
        ("RmsNorm", |x, epsilon| {
            let layer = RmsNorm::new(6)?;
            RmsNorm { epsilon, ..layer }.forward(x)
        }),
        ("GroupNorm", |x, epsilon| {
            let layer = GroupNorm::new(2, 6)?;
            GroupNorm { epsilon, ..layer }.forward(x)
        }),
        ("BatchNorm", |x, epsilon| {
            let layer = BatchNorm::new(6)?;
            BatchNorm { epsilon, ..layer }.forward(x)
        }),
    ]
}

/// Asserts that `values` times `size` are `expected`. The tolerance is relative to the largest
/// element.
#[track_caller]
fn assert_near<T: Float>(
    values: &Array<T>,
    size: f64,
    expected: &Array<T>,
    tolerance: f64,
    case: &str,
) {
    let [values, expected] =
        [values, expected].map(|own| own.cast::<f64>().eval().unwrap().to_vec().unwrap());
    let largest = expected
        .iter()
        .fold(0.0, |most: f64, own| most.max(own.abs()));
    for (own, expected) in values.iter().zip(&expected) {
        let error = (own * size - expected).abs() / largest;
        assert!(
            error <= tolerance,
            "{case}: {own:e} times {size:e}, not {expected:e}"
        );
    }
}

fn norms_at_sizes<T: Float>(sizes: &[f64], tolerance: f64) -> Result<()> {
    for (name, norm) in norms::<T>() {
        let weights =
            Array::<T>::linspace(T::from_f64(-1.0), T::from_f64(2.0), 24)?.reshape(SHAPE)?;
        let step = |x: &Array<T>, epsilon: f64| {
            value_and_grad(x, |x| (norm(x, epsilon)? * &weights).sum())
        };
        for &size in sizes {
            for epsilon in [0.0, 1e-3, 1.0] {
                let case = format!("{name} of {} at {size:e}, {epsilon}", T::DTYPE.name());
                let squared = epsilon * size * size;
                if epsilon != 0.0 && !squared.is_normal() {
                    continue;
                }
                let (plain, x) = (array::<T>(1.0)?, array::<T>(size)?);
                assert_near(
                    &norm(&x, squared)?,
                    1.0,
                    &norm(&plain, epsilon)?,
                    tolerance,
                    &case,
                );
                let (_, slope) = step(&x, squared)?;
                let (_, expected) = step(&plain, epsilon)?;
                assert_near(&slope, size, &expected, 4.0 * tolerance, &case);
            }
        }
    }
    Ok(())
}

#[test]
fn norms_do_not_depend_on_the_size_of_rows() -> Result<()> {
    norms_at_sizes::<f32>(&[1e20, 1e25, 1e30, 1e-18, 1e-25, 1e-30], 1e-5)?;
    norms_at_sizes::<bf16>(&[1e20, 1e30, 1e-25], 4e-2)?;
    norms_at_sizes::<f64>(&[1e150, 1e160, 1e300, 1e-140, 1e-152, 1e-250], 1e-13)
}

/// Checks Hessian-vector products of rows at each size. The vector grows with the size.
fn curvatures_at_sizes<T: Float>(sizes: &[f64], tolerance: f64) -> Result<()> {
    for (name, norm) in norms::<T>() {
        let weights =
            Array::<T>::linspace(T::from_f64(-1.0), T::from_f64(2.0), 24)?.reshape(SHAPE)?;
        let along = |size: f64| {
            let ones = Array::<T>::linspace(T::from_f64(2.0), T::from_f64(0.0), 24)?;
            (ones.reshape(SHAPE)? * T::from_f64(size)).eval()
        };
        let product =
            |x: &Array<T>, along: &Array<T>| hvp(x, along, |x| (norm(x, 0.0)? * &weights).sum());
        let (_, expected) = product(&array::<T>(1.0)?, &along(1.0)?)?;
        for &size in sizes {
            let (_, own) = product(&array::<T>(size)?, &along(size)?)?;
            let case = format!("{name} of {} at {size:e}", T::DTYPE.name());
            assert_near(&own, size, &expected, tolerance, &case);
        }
    }
    Ok(())
}

#[test]
fn second_derivatives_of_norms_do_not_depend_on_the_size_of_rows() -> Result<()> {
    curvatures_at_sizes::<f32>(&[1e20, 1e-20], 1e-4)?;
    curvatures_at_sizes::<f64>(&[1e160, 1e-160], 1e-11)
}

#[test]
fn ordinary_rows_have_the_same_bits_next_to_others() -> Result<()> {
    for (name, norm) in &norms::<f32>()[..3] {
        let plain = norm(&array(1.0)?, 1e-5)?.to_vec()?;
        let mut elements: Vec<f32> = rows().iter().map(|&x| x as f32).collect();
        for element in &mut elements[6..12] {
            *element *= 1e25;
        }
        // The last row is constant, so its variance is 0.
        elements[18..].fill(1e30);
        let mixed = norm(&Array::from_slice(&elements, SHAPE)?, 1e-5)?.to_vec()?;
        assert_eq!(mixed[..6], plain[..6], "{name}");
        assert_eq!(mixed[12..18], plain[12..18], "{name}");
        assert!(
            mixed.iter().all(|value| value.is_finite()),
            "{name}: {mixed:?}"
        );
    }
    Ok(())
}

type Deviation = fn(&Array<f64>) -> Result<Array<f64>>;

#[test]
fn deviations_of_doubles_have_their_range() -> Result<()> {
    let plain = array::<f64>(1.0)?;
    let all: [Deviation; 5] = [
        |x| x.std(),
        |x| x.std_axis(0),
        |x| x.std_keepdims(1),
        |x| (x * 2.0).std_axis([0, 1]),
        |x| x.transpose()?.std_axis(1),
    ];
    for size in [1e155, 1e200, 1e300, 1e-153, 1e-170, 1e-290] {
        for (number, std) in all.into_iter().enumerate() {
            let case = format!("{number} at {size:e}");
            let x = array(size)?;
            assert_near(&std(&x)?, 1.0 / size, &std(&plain)?, 1e-14, &case);
            let (_, slope) = value_and_grad(&x, |x| std(x)?.sum())?;
            let (_, expected) = value_and_grad(&plain, |x| std(x)?.sum())?;
            assert_near(&slope, 1.0, &expected, 1e-13, &case);
        }
    }
    // The lanes of one array have different magnitudes.
    let lanes = [
        0.0,
        0.0,
        1e200,
        -1e200,
        1.0,
        3.0,
        1e-200,
        3e-200,
        1e300,
        1e300,
        f64::INFINITY,
        0.0,
    ];
    let lanes = Array::from_slice(&lanes, [6, 2])?.std_axis(1)?.to_vec()?;
    assert_eq!(lanes[..5], [0.0, 1e200, 1.0, 1e-200, 0.0]);
    assert!(lanes[5].is_nan());
    assert_eq!(Array::<f64>::full(1000, 1e305)?.std()?.item()?, 0.0);
    assert!(Array::<f64>::zeros(0)?.std()?.item()?.is_nan());
    Ok(())
}

#[test]
fn constant_lanes_of_a_deviation_need_no_copy() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let _current = device.enter();
    let mut x = Array::<f64>::rand([1000, 100])?;
    x.slice_mut(s![.., 7..8])?.fill(1e3)?;
    device.reset_peaks();
    let before = device.memory_stats().live_bytes;
    let deviations = (&x * 2.0).std_axis(0)?;
    assert!(device.memory_stats().peak_live_bytes - before < 100_000);
    assert_eq!(deviations.to_vec()?[7], 0.0);
    Ok(())
}
