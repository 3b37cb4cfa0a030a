//! Imports. An array has the tensor's memory and layout, and deletes the tensor once.

use std::ptr;
use std::sync::atomic::Ordering;
use std::thread;

use cachescope::dlpack::{
    DLDataType, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
};
use cachescope::ndarray::s;
use cachescope::{Array, Device, ErrorKind, MetaOptions, Result, dry_run};

use super::{Calls, Producer, delaying, device};
use crate::interop::fails;

/// Imports a producer's elements as an array.
///
/// The producers of these tests follow the rules of DLPack, or break only rules that the import
/// checks.
#[track_caller]
fn import(tensor: *mut DLManagedTensorVersioned) -> Result<Array<f32>> {
    // SAFETY: the producer breaks only rules that the import checks. Each tensor is imported once.
    unsafe { Array::from_dlpack(tensor) }
}

#[track_caller]
fn import_legacy(tensor: *mut DLManagedTensor) -> Result<Array<f32>> {
    // SAFETY: the producer breaks only rules that the import checks. Each tensor is imported once.
    unsafe { Array::from_dlpack_legacy(tensor) }
}

/// A test case: the shape, the strides, the index of the first value, and the expected values.
type Case<'a> = (&'a [i64], Option<&'a [i64]>, usize, &'a [f32]);

const CASES: &[Case<'_>] = &[
    (&[2, 3], None, 0, &[0., 1., 2., 3., 4., 5.]),
    (&[2, 3], None, 6, &[6., 7., 8., 9., 10., 11.]),
    (&[3, 2], Some(&[1, 3]), 0, &[0., 3., 1., 4., 2., 5.]),
    (&[2, 2], Some(&[4, -2]), 3, &[3., 1., 7., 5.]),
    (&[2, 2], Some(&[-4, -1]), 11, &[11., 10., 7., 6.]),
    (&[2, 3], Some(&[0, 2]), 1, &[1., 3., 5., 1., 3., 5.]),
    (&[3, 2], Some(&[1, 1]), 2, &[2., 3., 3., 4., 4., 5.]),
    (&[], None, 5, &[5.]),
    (&[], Some(&[]), 5, &[5.]),
    (&[1, 2, 1], Some(&[i64::MIN, 3, i64::MAX]), 4, &[4., 7.]),
    (&[2, 0], Some(&[i64::MIN, i64::MAX]), 0, &[]),
    (&[0], None, 0, &[]),
    (&[1, 1, 1, 1, 1, 1, 1, 2], None, 0, &[0., 1.]),
];

#[test]
fn an_array_has_the_layout_of_its_tensor() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    for &(shape, strides, first, expected) in CASES {
        for is_legacy in [false, true] {
            let (producer, calls) = Producer::new(12, shape, strides);
            let address = producer.values[first..].as_ptr().addr() as u64;
            let array = match is_legacy {
                true => import_legacy(producer.legacy(first))?,
                false => import(producer.versioned(first, 0))?,
            };
            assert_eq!(array.device(), &device);
            let lengths: Vec<_> = array.shape().iter().map(|&length| length as i64).collect();
            assert_eq!((&lengths[..], array.to_vec()?), (shape, expected.to_vec()));
            if !array.is_empty() {
                assert_eq!(array.address(), address);
            }
            for axis in 0..array.ndim() {
                let flipped = array.flip(axis as isize)?.flip(axis as isize)?;
                assert_eq!(flipped, array);
            }
            assert_eq!((&array + 0.0).eval()?, array);
            drop(array);
            device.synchronize()?;
            assert_eq!(calls.count(), 1, "{shape:?} {strides:?}");
        }
    }
    Ok(())
}

#[test]
fn the_deleter_is_called_once_after_the_last_view() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let (producer, calls) = Producer::new(6, &[6], None);
    let array = import(producer.versioned(0, 0))?;
    let view = array.slice(s![2..4])?;
    let exported = super::Consumer(array.to_dlpack()?);
    thread::spawn(move || drop(array)).join().unwrap();
    device.synchronize()?;
    assert_eq!((calls.count(), view.to_vec()?), (0, vec![2., 3.]));
    drop(view);
    device.synchronize()?;
    assert_eq!(exported.read::<f32>(), [0., 1., 2., 3., 4., 5.]);
    assert_eq!(calls.count(), 0, "a consumer has it");
    drop(exported);
    device.synchronize()?;
    device.trim(0);
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn the_deleter_waits_for_streams() -> Result<()> {
    let device = delaying();
    let _guard = device.enter();
    let (producer, calls) = Producer::new(100, &[100], None);
    let sum = import(producer.versioned(0, 0))?.sum()?;
    let _ = device.memory_stats();
    assert_eq!(calls.count(), 0);
    assert_eq!(sum.item()?, 4950.0);
    device.synchronize()?;
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn a_tensor_without_a_deleter_may_end_after_the_import() -> Result<()> {
    static VALUES: [f32; 3] = [1.0, 2.0, 3.0];
    let device = device();
    let _guard = device.enter();
    let (mut producer, _) = Producer::new(0, &[3], None);
    let mut fields = producer.fields(0);
    fields.data = VALUES.as_ptr().cast_mut().cast();
    let mut tensor = Box::new(DLManagedTensor {
        dl_tensor: fields,
        manager_ctx: ptr::null_mut(),
        deleter: None,
    });
    let array = import_legacy(&raw mut *tensor)?;
    tensor.dl_tensor.ndim = -1;
    fails(
        import_legacy(&raw mut *tensor),
        ErrorKind::InvalidShape,
        &["-1"],
    );
    drop((tensor, producer));
    assert_eq!(array.to_vec()?, VALUES);
    drop(array);
    device.synchronize()
}

/// A write to an array of four elements.
type Write = fn(&mut Array<f32>) -> Result<()>;

#[test]
fn a_write_reaches_writable_memory_and_no_other() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let writes: [Write; 5] = [
        |array| array.fill(7.0),
        |array| array.update(|array| array + 1.0),
        |array| array.add_assign(2.0),
        |array| array.slice_mut(s![1..])?.fill(7.0),
        |array| array.scatter(&Array::from_slice(&[1_i64], 1)?, &Array::ones(1)?, 0),
    ];
    for write in writes {
        let (producer, _) = Producer::new(4, &[4], None);
        let mut array = import_legacy(producer.legacy(0))?;
        let (view, address) = (array.slice(s![..])?, array.address());
        drop(view);
        write(&mut array)?;
        assert_ne!(array.address(), address, "there are no flags");

        let mut expected = Array::arange(0.0, 4.0, 1.0)?;
        write(&mut expected)?;
        let (producer, _) = Producer::new(4, &[4], None);
        let mut array = import(producer.versioned(0, 0))?;
        let address = array.address();
        write(&mut array)?;
        assert_eq!((&array, array.address()), (&expected, address));

        let (producer, calls) = Producer::new(4, &[4], None);
        let (values, kept) = (producer.values.as_ptr(), calls.clone());
        let mut array = import(producer.versioned(0, DLPACK_FLAG_BITMASK_READ_ONLY))?;
        let (view, address) = (array.clone(), array.address());
        drop(array.clone());
        write(&mut array)?;
        assert_ne!(array.address(), address);
        assert_eq!(array, expected);
        // SAFETY: `view` keeps the memory of the four values alive.
        let values = unsafe { std::slice::from_raw_parts(values, 4) };
        assert_eq!(
            (values, view.to_vec()?),
            (&[0., 1., 2., 3.][..], values.to_vec())
        );
        assert_eq!(kept.0.load(Ordering::SeqCst), 0);

        // `view` is now the only array over the read-only memory. Its export is read-only, and a
        // write copies its elements.
        let mut view = view;
        let again = super::Consumer(view.clone().into_dlpack()?);
        assert_eq!(again.flags(), DLPACK_FLAG_BITMASK_READ_ONLY);
        drop(again);
        write(&mut view)?;
        assert_ne!(view.address(), address);
        drop(view);
        device.synchronize()?;
        assert_eq!(calls.count(), 1);
    }
    Ok(())
}

#[test]
fn the_only_array_over_read_only_memory_does_not_export_it_writable() -> Result<()> {
    let (producer, _) = Producer::new(4, &[4], None);
    let array = import(producer.versioned(0, DLPACK_FLAG_BITMASK_READ_ONLY))?;
    let tensor = super::Consumer(array.into_dlpack()?);
    assert_eq!(tensor.flags(), DLPACK_FLAG_BITMASK_READ_ONLY);
    Ok(())
}

/// A fault: a function that makes a tensor invalid, and the kind and message parts of the expected
/// error.
type Fault = (
    fn(&mut DLManagedTensorVersioned),
    ErrorKind,
    &'static [&'static str],
);

const FAULTS: &[Fault] = &[
    (
        |t| t.version.major = 2,
        ErrorKind::Unsupported,
        &["DLPack version 2.0", "expected 1.x"],
    ),
    (
        |t| t.version.major = 0,
        ErrorKind::Unsupported,
        &["DLPack version 0.0"],
    ),
    (
        |t| t.dl_tensor.ndim = -3,
        ErrorKind::InvalidShape,
        &["rank -3"],
    ),
    (
        |t| t.dl_tensor.ndim = 9,
        ErrorKind::InvalidShape,
        &["rank 9", "8"],
    ),
    (
        |t| t.dl_tensor.ndim = i32::MAX,
        ErrorKind::InvalidShape,
        &["rank"],
    ),
    (
        |t| t.dl_tensor.shape = ptr::null_mut(),
        ErrorKind::InvalidArgument,
        &["shape is null"],
    ),
    (
        |t| t.dl_tensor.data = ptr::null_mut(),
        ErrorKind::InvalidArgument,
        &["data", "null"],
    ),
    (
        |t| t.dl_tensor.byte_offset = 2,
        ErrorKind::InvalidArgument,
        &["not aligned to 4"],
    ),
    (
        |t| t.dl_tensor.byte_offset = u64::MAX,
        ErrorKind::InvalidShape,
        &["address space"],
    ),
    (
        |t| length(t, -1),
        ErrorKind::InvalidShape,
        &["axis 0", "-1"],
    ),
    (
        |t| length(t, i64::MIN),
        ErrorKind::InvalidShape,
        &["axis 0"],
    ),
    (
        |t| length(t, i64::MAX),
        ErrorKind::InvalidShape,
        &["overflows"],
    ),
    (
        |t| length(t, i64::MAX / 8),
        ErrorKind::InvalidShape,
        &["overflows"],
    ),
    (
        |t| stride(t, i64::MIN),
        ErrorKind::InvalidShape,
        &["overflows"],
    ),
    (
        |t| stride(t, i64::MAX),
        ErrorKind::InvalidShape,
        &["overflows"],
    ),
    (
        |t| stride(t, i64::MAX / 4),
        ErrorKind::InvalidShape,
        &["from_dlpack", "space"],
    ),
    (
        |t| stride(t, -(i64::MAX / 32)),
        ErrorKind::InvalidShape,
        &["address space"],
    ),
    (
        |t| t.dl_tensor.device.device_type = 10,
        ErrorKind::DeviceMismatch,
        &["ROCm:0"],
    ),
    (
        |t| t.dl_tensor.device.device_type = 8,
        ErrorKind::DeviceMismatch,
        &["Metal:0"],
    ),
    (
        |t| t.dl_tensor.device.device_type = -7,
        ErrorKind::DeviceMismatch,
        &["type -7"],
    ),
    (
        |t| dtype(t, 2, 64, 1),
        ErrorKind::InvalidArgument,
        &["float64", "f32 needs float32"],
    ),
    (
        |t| dtype(t, 0, 32, 1),
        ErrorKind::InvalidArgument,
        &["int32"],
    ),
    (
        |t| dtype(t, 2, 32, 4),
        ErrorKind::InvalidArgument,
        &["float32 in 4 lanes"],
    ),
    (
        |t| dtype(t, 2, 32, 0),
        ErrorKind::InvalidArgument,
        &["in 0 lanes"],
    ),
    (
        |t| dtype(t, 17, 4, 1),
        ErrorKind::InvalidArgument,
        &["type code 17 of 4 bits"],
    ),
];

fn length(tensor: &mut DLManagedTensorVersioned, length: i64) {
    // SAFETY: a tensor of these tests has two axes.
    unsafe { tensor.dl_tensor.shape.write(length) };
}

fn stride(tensor: &mut DLManagedTensorVersioned, stride: i64) {
    // SAFETY: a tensor of these tests has two strides.
    unsafe { tensor.dl_tensor.strides.write(stride) };
}

fn dtype(tensor: &mut DLManagedTensorVersioned, code: u8, bits: u8, lanes: u16) {
    tensor.dl_tensor.dtype = DLDataType { code, bits, lanes };
}

#[test]
fn a_refused_tensor_is_released_once() {
    let device = device();
    let _guard = device.enter();
    for &(spoil, kind, texts) in FAULTS {
        let (producer, calls) = Producer::new(12, &[2, 3], Some(&[6, 2]));
        let tensor = producer.versioned(0, 0);
        // SAFETY: the test owns the tensor until it is imported.
        spoil(unsafe { &mut *tensor });
        fails(import(tensor), kind, texts);
        assert_eq!(calls.count(), 1, "{texts:?}");
    }
    fails(
        import(ptr::null_mut()),
        ErrorKind::InvalidArgument,
        &["from_dlpack", "null"],
    );
    fails(
        import_legacy(ptr::null_mut()),
        ErrorKind::InvalidArgument,
        &["from_dlpack_legacy", "null"],
    );
}

#[test]
fn a_failed_import_releases_the_tensor() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut value = Box::new(0_u8);
    let address = (&raw mut *value).expose_provenance() as u64;
    let destructor = move || {
        drop(value);
        panic!("a destructor fails");
    };
    // SAFETY: the box is not used until the destructor is called.
    drop(unsafe { Array::<u8>::from_raw_parts(&device, address, 1, destructor)? });
    let (producer, calls) = Producer::new(3, &[3], None);
    fails(
        import(producer.versioned(0, 0)),
        ErrorKind::Panic,
        &["panicked"],
    );
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn a_dry_run_imports_to_its_device() -> Result<()> {
    let calls = dry_run(MetaOptions::default(), || {
        let (producer, calls) = Producer::new(3, &[3], None);
        let array = import(producer.versioned(0, 0))?;
        assert_eq!(array.device(), &Device::current());
        (array + Array::<f32>::ones(3)?).eval()?;
        Device::current().synchronize()?;
        Ok::<Calls, _>(calls)
    })?;
    assert_eq!(calls.value.count(), 1);
    Ok(())
}
