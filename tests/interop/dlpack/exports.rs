//! Exports. A tensor has the array's memory and layout, and pins the memory until the tensor is
//! deleted.

use std::thread;

use cachescope::dlpack::{
    DLDataType, DLDataTypeCode, DLDevice, DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion, kDLBfloat,
    kDLBool, kDLCPU, kDLCUDA, kDLComplex, kDLFloat, kDLInt, kDLUInt,
};
use cachescope::half::{bf16, f16};
use cachescope::ndarray::s;
use cachescope::{
    AnyElement, Array, Complex, Device, ErrorKind, MetaOptions, Policy, Result, cache_scope, grad,
    graph,
};

use super::{Consumer, delaying, device};
use crate::interop::fails;

fn counted(device: &Device, count: i32) -> Result<Array<i32>> {
    let _guard = device.enter();
    Array::arange(0, count, 1)
}

#[test]
fn a_tensor_has_the_memory_and_layout_of_its_array() -> Result<()> {
    let array = counted(&device(), 24)?.reshape([2, 3, 4])?;
    let views = [
        array.clone(),
        array.t()?,
        array.flip(1)?,
        array.slice(s![1, .., 1..;2])?,
        array.slice(s![.., 1, ..])?.unsqueeze(1)?,
        array.broadcast_to([2, 2, 3, 4])?,
        array.slice(s![..1, ..1, ..1])?,
        array.slice(s![1, 2, 3])?.broadcast_to([1, 4, 1])?,
        array.unsqueeze(0)?.unsqueeze(4)?,
        array.slice(s![1, 2, 3])?,
        array.slice(s![.., 3.., ..])?,
    ];
    for view in views {
        let tensor = Consumer(view.to_dlpack()?);
        let fields = tensor.fields();
        let address = if view.is_empty() { 0 } else { view.address() };
        assert_eq!(fields.data.addr() as u64, address);
        assert_eq!((fields.byte_offset, fields.ndim as usize), (0, view.ndim()));
        let host = DLDevice {
            device_type: kDLCPU,
            device_id: 0,
        };
        assert_eq!(fields.device, host);
        assert!(!fields.shape.is_null() && !fields.strides.is_null());
        let lengths: Vec<_> = view.shape().iter().map(|&length| length as i64).collect();
        let steps = (0..view.ndim()).map(|axis| match view.shape()[axis] {
            1 => view.shape()[axis + 1..].iter().product::<usize>() as i64,
            _ => view.strides()[axis] as i64,
        });
        let steps: Vec<_> = steps.collect();
        assert_eq!(
            (tensor.shape(), tensor.strides()),
            (&lengths[..], &steps[..])
        );
        assert_eq!(tensor.read::<i32>(), view.to_vec()?);
        // SAFETY: the tensor is valid.
        let version = unsafe { (*tensor.0).version };
        assert_eq!(version, DLPackVersion { major: 1, minor: 1 });
        assert_eq!(tensor.flags(), DLPACK_FLAG_BITMASK_READ_ONLY);
    }
    Ok(())
}

fn round_trip<T: AnyElement>(code: DLDataTypeCode, bits: u8) -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let array = Array::from_slice(&[T::one(), T::zero(), T::one()], 3)?.flip(0)?;
    let tensor = array.to_dlpack()?;
    let expected = DLDataType {
        code,
        bits,
        lanes: 1,
    };
    // SAFETY: each tensor is consumed once.
    unsafe {
        assert_eq!((*tensor).dl_tensor.dtype, expected);
        let again = Array::<T>::from_dlpack(tensor)?;
        assert_eq!(again.address(), array.address());
        assert_eq!((again.strides(), &again), (array.strides(), &array));
        let again = Array::<T>::from_dlpack_legacy(array.to_dlpack_legacy()?)?;
        assert_eq!((again.address(), &again), (array.address(), &array));
    }
    Ok(())
}

#[test]
fn every_type_of_elements_has_its_code() -> Result<()> {
    round_trip::<f16>(kDLFloat, 16)?;
    round_trip::<f32>(kDLFloat, 32)?;
    round_trip::<f64>(kDLFloat, 64)?;
    round_trip::<bf16>(kDLBfloat, 16)?;
    round_trip::<i8>(kDLInt, 8)?;
    round_trip::<i16>(kDLInt, 16)?;
    round_trip::<i32>(kDLInt, 32)?;
    round_trip::<i64>(kDLInt, 64)?;
    round_trip::<u8>(kDLUInt, 8)?;
    round_trip::<u16>(kDLUInt, 16)?;
    round_trip::<u32>(kDLUInt, 32)?;
    round_trip::<u64>(kDLUInt, 64)?;
    round_trip::<bool>(kDLBool, 8)?;
    round_trip::<Complex<f32>>(kDLComplex, 64)?;
    round_trip::<Complex<f64>>(kDLComplex, 128)
}

#[test]
fn a_tensor_pins_its_memory_after_the_scope_and_its_cache() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let device = device();
        let mut tensors = Vec::new();
        for value in 0..4 {
            cache_scope!("exports", policy = policy, device = &device, {
                let _guard = device.enter();
                tensors.push(Consumer(Array::full(1000, value)?.to_dlpack()?));
            });
            device.invalidate_cache("exports");
        }
        let stats = device.cache_stats("exports").unwrap();
        assert_eq!(stats.live_blocks, 4);
        device.remove_cache("exports");
        let others: Vec<_> = (0..8).map(|_| counted(&device, 1000)).collect();
        for (value, tensor) in tensors.iter().enumerate() {
            assert_eq!(tensor.read::<i32>(), [value as i32; 1000]);
        }
        drop(others);
        thread::scope(|scope| {
            tensors.drain(..).for_each(|tensor| {
                scope.spawn(move || drop(tensor));
            });
        });
        device.synchronize()?;
        assert_eq!(device.memory_stats().live_bytes, 0);
    }
    Ok(())
}

#[test]
fn a_tensor_outlives_its_device() -> Result<()> {
    let tensor = Consumer(counted(&device(), 5)?.to_dlpack()?);
    thread::spawn(move || assert_eq!(tensor.read::<i32>(), [0, 1, 2, 3, 4]))
        .join()
        .unwrap();
    Ok(())
}

#[test]
fn a_write_to_an_exported_array_copies_first() -> Result<()> {
    let mut array = counted(&device(), 4)?;
    let tensor = Consumer(array.to_dlpack()?);
    let address = array.address();
    array.slice_mut(s![1..])?.fill(9)?;
    assert_ne!(array.address(), address);
    assert_eq!(array.to_vec()?, [0, 9, 9, 9]);
    assert_eq!(tensor.read::<i32>(), [0, 1, 2, 3]);
    drop(tensor);
    let address = array.address();
    let tensor = Consumer(array.to_dlpack()?);
    drop(tensor);
    array.fill(1)?;
    assert_eq!(array.address(), address, "nothing shares it any more");
    Ok(())
}

#[test]
fn the_consumer_may_write_only_where_nothing_shares_the_memory() -> Result<()> {
    let device = device();
    let array = counted(&device, 4)?;
    let address = array.address();
    let own = Consumer(array.into_dlpack()?);
    assert_eq!(own.flags(), 0);
    assert_eq!(own.fields().data.addr() as u64, address);
    drop(own);

    let array = counted(&device, 4)?;
    let other = array.slice(s![..2])?;
    let shared = Consumer(array.into_dlpack()?);
    assert_eq!(shared.flags(), DLPACK_FLAG_BITMASK_READ_ONLY);
    drop(other);

    let array = counted(&device, 4)?;
    let exported = Consumer(array.to_dlpack()?);
    let shared = Consumer(array.into_dlpack()?);
    assert_eq!(shared.flags(), exported.flags());
    Ok(())
}

#[test]
fn an_export_waits_for_the_elements() -> Result<()> {
    let device = delaying();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let array = {
        let _guard = stream.enter();
        (Array::<i32>::ones(100)? + 1).eval()?
    };
    assert_eq!(Consumer(array.to_dlpack()?).read::<i32>(), [2; 100]);
    let array = (&array + 1).eval()?;
    assert_eq!(Consumer(array.into_dlpack()?).read::<i32>(), [3; 100]);
    Ok(())
}

#[test]
fn a_writable_export_waits_for_readers() -> Result<()> {
    let device = delaying();
    let _guard = device.enter();
    let array = Array::<i32>::ones(100)?;
    let later = {
        let stream = device.new_stream()?;
        let _guard = stream.enter();
        (&array + 1).eval()?
    };
    let tensor = Consumer(array.into_dlpack()?);
    // SAFETY: the tensor is writable, and has 100 elements.
    unsafe { tensor.fields().data.cast::<i32>().write_bytes(0, 100) };
    assert_eq!(later.to_vec()?, [2; 100]);
    Ok(())
}

/// The test runs on the suite's device, the host or a CUDA device.
#[test]
fn a_tensor_names_its_device() -> Result<()> {
    let device = Device::current();
    let mut x = (Array::<f32>::ones(100)? + 1.0).eval()?;
    let tensor = Consumer(x.to_dlpack()?);
    let DLDevice {
        device_type,
        device_id,
    } = tensor.fields().device;
    let expected = if device == Device::host() {
        kDLCPU
    } else {
        kDLCUDA
    };
    assert_eq!((device_type, device_id), (expected, 0));
    assert_eq!(tensor.fields().data.addr() as u64, x.address());
    // SAFETY: each tensor is consumed once, and the memory is not written to.
    let again = unsafe { Array::<f32>::from_dlpack(x.to_dlpack()?)? };
    assert_eq!((again.device(), again.address()), (&device, x.address()));
    {
        // Even if another device is current, the tensor's device is found.
        let _guard = self::device().enter();
        // SAFETY: the tensor is consumed once, and its memory is not written to.
        let found = unsafe { Array::<f32>::from_dlpack(again.to_dlpack()?)? };
        assert_eq!(found.address(), x.address());
        assert_eq!(found.to_vec()?, [2.0; 100]);
    }
    x.fill(5.0)?;
    assert_eq!((&again + &x).eval()?.to_vec()?, [7.0; 100]);
    device.synchronize()?;
    // A new stream is captured, because other tests use the default stream of this device.
    let stream = device.new_stream()?;
    let _stream = stream.enter();
    let captured = graph::capture(&device, || x.to_dlpack().map(drop));
    assert_eq!(captured.unwrap_err().kind(), ErrorKind::Unsupported);
    device.synchronize()
}

#[test]
fn refuses_tracked_arrays_and_devices_without_data() -> Result<()> {
    let x = Array::<f32>::ones(3)?;
    let (_, gradient) = grad::value_and_grad(&x, |x| {
        fails(
            x.to_dlpack(),
            ErrorKind::Unsupported,
            &["to_dlpack", "stop_gradient"],
        );
        fails(
            x.clone().into_dlpack(),
            ErrorKind::Unsupported,
            &["into_dlpack"],
        );
        drop(Consumer(grad::stop_gradient(x).to_dlpack()?));
        x.sum()
    })?;
    assert_eq!(gradient.to_vec()?, [1.0; 3]);
    let meta = Device::meta(MetaOptions::default())?;
    let _guard = meta.enter();
    let array = Array::<f32>::ones(3)?;
    fails(
        array.to_dlpack_legacy(),
        ErrorKind::Unsupported,
        &["to_dlpack_legacy", "no data"],
    );
    Ok(())
}
