use cachescope::ndarray;
use cachescope::{Array, DeviceConfig, Element, ErrorKind, Float, Numeric, Result, Shape};
use half::{bf16, f16};
use under_test::device_with;

use crate::arrays::{dirty_device, fails};

/// Calls a function for every element type.
macro_rules! for_every_element {
    ($function:ident) => {
        $function::<f32>()?;
        $function::<f64>()?;
        $function::<f16>()?;
        $function::<bf16>()?;
        $function::<i8>()?;
        $function::<i16>()?;
        $function::<i32>()?;
        $function::<i64>()?;
        $function::<u8>()?;
        $function::<u16>()?;
        $function::<u32>()?;
        $function::<u64>()?;
        $function::<bool>()?;
    };
}

#[test]
fn every_element_type_is_copied_to_the_device_and_back() -> Result<()> {
    fn round_trip<T: Element>() -> Result<()> {
        let values: Vec<T> = (0..6).map(|n| T::from_f64(f64::from(n % 3))).collect();
        let array = Array::from_vec(values.clone(), [2, 3])?;
        assert_eq!(array.to_vec()?, values, "{}", T::NAME);
        assert_eq!(array.size_bytes(), 6 * size_of::<T>());
        assert_eq!(Array::<T>::zeros([2, 2])?.to_vec()?, [T::zero(); 4]);
        assert_eq!(Array::<T>::ones([2, 2])?.to_vec()?, [T::one(); 4]);
        let three = T::from_f64(3.0);
        assert_eq!(Array::full(5, three)?.to_vec()?, [three; 5]);
        let columns = array.t()?;
        for (like, value) in [
            (columns.zeros_like()?, T::zero()),
            (columns.ones_like()?, T::one()),
            (columns.full_like(three)?, three),
        ] {
            assert_eq!(like.to_vec()?, [value; 6], "{}", T::NAME);
            assert_eq!((like.shape(), like.strides()), (&[3, 2][..], &[2, 1][..]));
        }
        assert_eq!(columns.dtype().to_string(), T::NAME);
        assert_eq!(columns.dtype().size_bytes(), size_of::<T>());
        let eye = Array::<T>::eye(3)?.to_ndarray()?;
        for ((row, column), value) in eye
            .into_dimensionality::<ndarray::Ix2>()
            .unwrap()
            .indexed_iter()
        {
            assert_eq!(*value, if row == column { T::one() } else { T::zero() });
        }
        Ok(())
    }
    for_every_element!(round_trip);
    Ok(())
}

#[test]
fn an_array_like_another_is_on_its_device() -> Result<()> {
    let device = dirty_device()?;
    let array = {
        let _current = device.enter();
        Array::from_vec(vec![1.0f32, 2.0], [2, 1])?
    };
    assert_ne!(cachescope::Device::current(), device);
    for like in [
        array.zeros_like()?,
        array.ones_like()?,
        array.full_like(3.0)?,
    ] {
        assert_eq!(*like.device(), device);
        assert_ne!(like.address(), array.address());
    }
    assert_eq!(array.to_vec()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn an_array_like_a_broadcast_one_needs_memory_for_each_element() -> Result<()> {
    let wide = Array::<f64>::zeros(1)?.broadcast_to(1 << 40)?;
    fails(wide.zeros_like(), ErrorKind::OutOfMemory, "8 TiB");
    Ok(())
}

#[test]
fn recycled_memory_never_shows_through() -> Result<()> {
    let device = dirty_device()?;
    let _scope = device.scope("dirty").enter();
    // Some lengths exceed the part that is written at once, and some lengths are odd.
    for length in [1, 1000, 16_385, 70_001] {
        drop(Array::<u8>::full(8 * length, 0xFF)?);
        assert!(
            Array::<f64>::zeros(length)?
                .to_vec()?
                .iter()
                .all(|&value| value == 0.0)
        );
        drop(Array::<u8>::full(length, 0xFF)?);
        assert!(!Array::<bool>::zeros(length)?.to_vec()?.contains(&true));
        assert!(!Array::<bool>::ones(length)?.to_vec()?.contains(&false));
        assert_eq!(
            Array::full(length, 0x0102_0304)?.to_vec()?,
            vec![0x0102_0304; length]
        );
    }
    let eye = Array::<i16>::eye(300)?.to_vec()?;
    let ones = eye.iter().enumerate().filter(|&(_, &value)| value == 1);
    assert!(
        ones.map(|(index, _)| index)
            .eq((0..300).map(|row| row * 301))
    );
    Ok(())
}

#[test]
#[allow(
    clippy::needless_borrows_for_generic_args,
    reason = "borrowed lists are the point"
)]
fn a_shape_is_made_from_every_list_of_lengths() -> Result<()> {
    let dims = vec![2, 3];
    let shape = Shape::from(&dims);
    let arrays = [
        Array::<f32>::zeros([2, 3])?,
        Array::<f32>::zeros(&[2, 3])?,
        Array::<f32>::zeros(dims.as_slice())?,
        Array::<f32>::zeros(&dims)?,
        Array::<f32>::zeros(dims.clone())?,
        Array::<f32>::zeros(&shape)?,
        Array::<f32>::zeros(shape)?,
    ];
    assert!(arrays.iter().all(|array| array.shape() == [2, 3]));
    assert_eq!(Array::<f32>::zeros(4)?.shape(), [4]);
    Ok(())
}

#[test]
fn rank_0_and_rank_8_are_arrays_like_others() -> Result<()> {
    let scalar = Array::from_vec(vec![2.5f32], [])?;
    assert_eq!((scalar.ndim(), scalar.len(), scalar.item()?), (0, 1, 2.5));
    let eight = Array::arange(0, 256, 1)?.reshape([2; 8])?;
    assert_eq!(eight.ndim(), 8);
    assert_eq!(
        eight.transpose()?.transpose()?.to_vec()?,
        (0..256).collect::<Vec<_>>()
    );
    fails(
        Array::<f32>::zeros([1; 9]),
        ErrorKind::InvalidShape,
        "rank 9",
    );
    fails(eight.reshape([1; 9]), ErrorKind::InvalidShape, "rank 9");
    fails(eight.unsqueeze(0), ErrorKind::InvalidShape, "rank 9");
    Ok(())
}

#[test]
fn zero_sized_arrays_allocate_nothing() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let empty = Array::<f32>::zeros([3, 0, 2])?;
    assert_eq!((empty.len(), empty.size_bytes()), (0, 0));
    assert!(empty.to_vec()?.is_empty());
    assert_eq!(empty.to_ndarray()?.shape(), [3, 0, 2]);
    assert_eq!(empty.transpose()?.reshape([0, 5])?.flip(1)?.shape(), [0, 5]);
    let made = [
        Array::from_slice(&[], [0])?,
        Array::arange(3.0, 0.0, 1.0)?,
        Array::linspace(0.0, 1.0, 0)?,
        Array::eye(0)?.flatten()?,
        Array::rand(0)?,
        Array::randn([4, 0])?.flatten()?,
        empty.to_uncached()?.flatten()?,
        cachescope::concat(&[&empty, &empty], 0)?.flatten()?,
    ];
    assert!(made.iter().all(|array| array.shape() == [0]));
    assert_eq!(device.memory_stats().reserves, 0);
    fails(empty.item(), ErrorKind::InvalidShape, "0 elements");
    Ok(())
}

#[test]
fn sizes_that_overflow_are_invalid_shapes() {
    let half = 1usize << 32;
    fails(
        Array::<u8>::zeros([half, half]),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::<u8>::zeros([half, half, 0]),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::<f64>::ones(usize::MAX),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::<f64>::full(1 << 61, 1.0),
        ErrorKind::InvalidShape,
        "8-byte elements",
    );
    fails(
        Array::<f32>::eye(half),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::<f32>::rand([half, half]),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::<f32>::randn(1 << 62),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::permutation(1 << 62),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::linspace(0.0, 1.0, 1 << 62),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::arange(0, i64::MAX, 1),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        Array::arange(0.0, 1e300, 1e-300),
        ErrorKind::InvalidShape,
        "overflows",
    );
}

#[test]
fn elements_that_do_not_fill_the_shape_are_named_with_it() {
    let kind = ErrorKind::InvalidShape;
    fails(
        Array::from_vec(vec![1.0, 2.0], [3]),
        kind,
        "2 elements are given, the shape [3] has 3",
    );
    fails(Array::from_slice(&[1u8; 4], [3, 1]), kind, "4 elements");
    fails(Array::from_vec(vec![0i32; 2], []), kind, "[]");
}

#[test]
fn an_exhausted_device_is_an_error() -> Result<()> {
    let device = device_with(DeviceConfig {
        memory_limit: Some(1 << 20),
        ..Default::default()
    })?;
    let _guard = device.enter();
    let error = Array::<f64>::zeros(1 << 20).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let kept = Array::<u8>::ones(1 << 10)?;
    let wide = kept.broadcast_to([1 << 12, 1 << 10])?;
    assert!(wide.to_uncached().unwrap_err().is_out_of_memory());
    assert_eq!(kept.to_vec()?, [1; 1 << 10]);
    Ok(())
}

#[test]
fn arange_counts_as_numpy_does() -> Result<()> {
    fn starts_at_one<T: Numeric>() -> Result<()> {
        let [start, stop, step] = [1.0, 8.0, 3.0].map(T::from_f64);
        let expected = [1.0, 4.0, 7.0].map(T::from_f64);
        assert_eq!(
            Array::arange(start, stop, step)?.to_vec()?,
            expected,
            "{}",
            T::NAME
        );
        assert_eq!(Array::arange(stop, start, step)?.len(), 0);
        assert_eq!(Array::arange(start, start, step)?.len(), 0);
        fails(
            Array::arange(start, stop, T::zero()),
            ErrorKind::InvalidArgument,
            "arange",
        );
        Ok(())
    }
    starts_at_one::<f32>()?;
    starts_at_one::<f16>()?;
    starts_at_one::<bf16>()?;
    starts_at_one::<i8>()?;
    starts_at_one::<u64>()?;
    assert_eq!(Array::arange(5, -6, -5)?.to_vec()?, [5, 0, -5]);
    assert_eq!(
        Array::arange(i8::MIN, i8::MAX, 100)?.to_vec()?,
        [-128, -28, 72]
    );
    assert_eq!(
        Array::arange(u64::MAX - 1, u64::MAX, 1)?.to_vec()?,
        [u64::MAX - 1]
    );
    let extremes = Array::arange(i64::MIN, i64::MAX, i64::MAX)?.to_vec()?;
    assert_eq!(extremes, [i64::MIN, -1, i64::MAX - 1]);
    // If 0.1 were added repeatedly, the error would exceed the bound.
    let tenths = Array::arange(0.0, 1000.0, 0.1)?.to_vec()?;
    assert_eq!(tenths.len(), 10_000);
    assert_eq!(tenths[9_999], 9_999.0 * 0.1);
    fails(
        Array::arange(0.0, f64::NAN, 1.0),
        ErrorKind::InvalidArgument,
        "NaN",
    );
    Ok(())
}

#[test]
fn linspace_ends_where_it_should() -> Result<()> {
    fn ends<T: Float>() -> Result<()> {
        let (start, stop) = (T::from_f64(0.1), T::from_f64(0.7));
        for count in [2, 3, 7, 5000] {
            let values = Array::linspace(start, stop, count)?.to_vec()?;
            assert_eq!(values.len(), count);
            assert_eq!((values[0], values[count - 1]), (start, stop), "{}", T::NAME);
            assert!(values.windows(2).all(|pair| pair[0] <= pair[1]));
        }
        assert_eq!(Array::linspace(start, stop, 1)?.to_vec()?, [start]);
        Ok(())
    }
    ends::<f32>()?;
    ends::<f64>()?;
    ends::<f16>()?;
    ends::<bf16>()
}
