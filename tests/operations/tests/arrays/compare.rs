use approx::{
    AbsDiffEq, RelativeEq, UlpsEq, assert_abs_diff_eq, assert_abs_diff_ne, assert_relative_eq,
    assert_relative_ne, assert_ulps_eq, assert_ulps_ne,
};
use cachescope::ndarray::s;
use cachescope::{Array, Float, Result};
use half::{bf16, f16};

use crate::arrays::dirty_device;

#[test]
fn equality_is_of_shape_device_and_elements() -> Result<()> {
    let array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    assert!(array == array.clone());
    assert!(array == array.to_uncached()?);
    assert!(array == array.transpose()?.to_uncached()?.transpose()?);
    assert!(array != array.flip(0)?);
    assert!(array != array.flatten()?);
    assert!(array.slice(s![..1, ..])? != array.slice(s![0, ..])?);
    assert!(array != array.to_device(&dirty_device()?)?);
    let changed = Array::from_vec(vec![0, 1, 2, 3, 4, 6], [2, 3])?;
    assert!(array != changed, "the last element counts");
    Ok(())
}

#[test]
fn each_pair_of_each_length_counts() -> Result<()> {
    fn check<T: Float>() -> Result<()> {
        for length in [1, 2, 127, 128, 129, 300] {
            let zeros = Array::<T>::zeros(length)?;
            assert!(zeros == zeros.to_uncached()?, "{length}");
            for at in 0..length {
                let mut values = vec![T::zero(); 2 * length];
                values[2 * at] = T::one();
                let all = Array::from_slice(&values, 2 * length)?;
                let views = [
                    Array::from_fn(length, |index| values[2 * index[0]])?,
                    all.slice(s![..;2])?,
                    all.slice(s![..;-2])?,
                ];
                for view in views.iter().take(2) {
                    assert!(*view != zeros, "{at} of {length}");
                    assert!(
                        !view.abs_diff_eq(&zeros, T::from_f64(0.5)),
                        "{at} of {length}"
                    );
                    assert!(view.abs_diff_eq(&zeros, T::one()), "{at} of {length}");
                }
                // From the end, the slice has the elements of odd indices, which are zero.
                assert!(views[2] == zeros, "{at} of {length}");
                let flipped = views[1].flip(0)?;
                assert_eq!(
                    flipped == views[0],
                    length == 2 * at + 1,
                    "{at} of {length}"
                );
            }
        }
        Ok(())
    }
    check::<f32>()?;
    check::<f64>()?;
    check::<f16>()?;
    check::<bf16>()
}

#[test]
fn floats_compare_as_numbers() -> Result<()> {
    let zeros = Array::from_vec(vec![0.0f32, -0.0], 2)?;
    assert!(zeros == zeros.flip(0)?);
    let nan = Array::full(1, f32::NAN)?;
    assert!(nan != nan.clone());
    assert!(Array::<f32>::zeros(0)? == Array::<f32>::zeros(0)?);
    assert!(Array::<f32>::zeros([0, 2])? != Array::<f32>::zeros([0, 3])?);
    Ok(())
}

#[test]
fn tolerances_are_absolute_or_relative() -> Result<()> {
    let array = Array::from_vec(vec![1.0f64, -1000.0, f64::INFINITY], 3)?;
    let near = Array::from_vec(vec![1.01f64, -1000.01, f64::INFINITY], 3)?;
    assert_abs_diff_eq!(array, near, epsilon = 0.011);
    assert_abs_diff_ne!(array, near, epsilon = 0.009);
    assert_relative_eq!(array, near, max_relative = 0.01);
    assert_relative_ne!(array, near, max_relative = 0.009);
    assert_relative_eq!(array, near, epsilon = 0.011, max_relative = 0.0);
    let other = Array::from_vec(vec![1.0f64, -1000.0, f64::NEG_INFINITY], 3)?;
    assert_relative_ne!(array, other, max_relative = 2.0);
    assert!(
        !array.abs_diff_eq(&array.unsqueeze(0)?, 1.0),
        "another shape"
    );
    assert!(
        !array.relative_eq(&array.to_device(&dirty_device()?)?, 1.0, 1.0),
        "another device"
    );
    let nan = Array::full(3, f64::NAN)?;
    assert!(!nan.abs_diff_eq(&nan, 1.0) && !nan.relative_eq(&nan, 1.0, 1.0));
    let half = Array::full(2, f16::from_f32(1.0))?;
    assert_abs_diff_eq!(half, half.flip(0)?);
    assert_relative_eq!(half, Array::full(2, f16::from_f32(1.001))?);
    Ok(())
}

#[test]
fn ulps_count_the_values_between() -> Result<()> {
    fn counts<T: Float>(next: impl Fn(T) -> T, least: T) -> Result<()> {
        let one = Array::full(2, T::one())?;
        let mut value = T::one();
        for ulps in 1..4 {
            value = next(value);
            let near = Array::from_slice(&[T::one(), value], 2)?;
            assert_ulps_eq!(one, near, epsilon = T::zero(), max_ulps = ulps);
            assert_ulps_ne!(one, near, epsilon = T::zero(), max_ulps = ulps - 1);
        }
        // The values are on both sides of zero. Both zeros count as one value.
        let (below, above) = (Array::full(1, -least)?, Array::full(1, least)?);
        assert_ulps_eq!(below, above, epsilon = T::zero(), max_ulps = 2);
        assert_ulps_ne!(below, above, epsilon = T::zero(), max_ulps = 1);
        assert_ulps_ne!(one, one.flip(0)?.unsqueeze(0)?);
        let nan = Array::full(1, T::zero() / T::zero())?;
        assert!(!nan.ulps_eq(&nan, T::one(), u32::MAX));
        let (huge, infinite) = (T::max_value(), T::one() / T::zero());
        let (huge, infinite) = (Array::full(1, huge)?, Array::full(1, infinite)?);
        assert_ulps_ne!(huge, infinite);
        assert_ulps_eq!(infinite, infinite.to_uncached()?);
        Ok(())
    }
    counts(f32::next_up, f32::from_bits(1))?;
    counts(f64::next_up, f64::from_bits(1))?;
    counts(|x| f16::from_bits(x.to_bits() + 1), f16::from_bits(1))?;
    counts(|x| bf16::from_bits(x.to_bits() + 1), bf16::from_bits(1))
}
