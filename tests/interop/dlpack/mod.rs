//! DLPack: arrays exported to a model of a consumer, and imported from a model of a producer.

mod exports;
mod imports;

use std::ffi::c_void;
use std::mem::offset_of;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cachescope::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    kDLCPU, kDLFloat,
};
use cachescope::{Device, DeviceConfig};

fn device() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

/// Returns a host device whose streams run their work as late as possible.
fn delaying() -> Device {
    let config = DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    };
    Device::host_with(config).unwrap()
}

/// C compilers give the structures of `dlpack.h` these sizes and offsets on 64-bit platforms.
#[test]
fn structures_have_the_layout_of_c() {
    assert_eq!((size_of::<DLDevice>(), size_of::<DLDataType>()), (8, 4));
    assert_eq!(
        (size_of::<DLTensor>(), offset_of!(DLTensor, shape)),
        (48, 24)
    );
    assert_eq!(offset_of!(DLTensor, dtype), 20);
    assert_eq!(offset_of!(DLTensor, byte_offset), 40);
    assert_eq!(size_of::<DLManagedTensor>(), 64);
    assert_eq!(offset_of!(DLManagedTensor, deleter), 56);
    assert_eq!(size_of::<DLManagedTensorVersioned>(), 80);
    assert_eq!(offset_of!(DLManagedTensorVersioned, deleter), 16);
    assert_eq!(offset_of!(DLManagedTensorVersioned, flags), 24);
    assert_eq!(offset_of!(DLManagedTensorVersioned, dl_tensor), 32);
}

/// A model of a consumer. It owns a tensor, and calls the tensor's deleter on drop.
struct Consumer(*mut DLManagedTensorVersioned);

// SAFETY: the deleter of a tensor may be called on any thread.
unsafe impl Send for Consumer {}

impl Consumer {
    fn fields(&self) -> &DLTensor {
        // SAFETY: the tensor is valid until its deleter is called.
        unsafe { &(*self.0).dl_tensor }
    }

    fn flags(&self) -> u64 {
        // SAFETY: the tensor is valid until its deleter is called.
        unsafe { (*self.0).flags }
    }

    fn shape(&self) -> &[i64] {
        // SAFETY: the tensor is valid until its deleter is called. Its shape has `ndim` elements.
        unsafe { slice::from_raw_parts(self.fields().shape, self.fields().ndim as usize) }
    }

    fn strides(&self) -> &[i64] {
        // SAFETY: the tensor is valid until its deleter is called. Exported tensors have `ndim`
        // strides.
        unsafe { slice::from_raw_parts(self.fields().strides, self.fields().ndim as usize) }
    }

    /// Returns the elements in row-major order.
    fn read<T: Copy>(&self) -> Vec<T> {
        let mut offsets = vec![0];
        for (&length, &stride) in self.shape().iter().zip(self.strides()) {
            let steps = |offset| (0..length).map(move |index| offset + index * stride);
            offsets = offsets.into_iter().flat_map(steps).collect();
        }
        let first = self.fields().data.cast::<T>();
        // SAFETY: the tensor's fields describe elements of `T`.
        let read = |offset: i64| unsafe { first.offset(offset as isize).read() };
        offsets.into_iter().map(read).collect()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: the tensor is not used again.
        unsafe { (*self.0).deleter.unwrap()(self.0) };
    }
}

/// A model of a producer, with its memory and the number of calls of its deleter.
struct Producer {
    values: Vec<f32>,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    calls: Arc<AtomicU64>,
}

impl Producer {
    /// Returns a producer of `count` values 0, 1, …, and the number of its deleter's calls. The
    /// deleter overwrites the values.
    fn new(count: usize, shape: &[i64], strides: Option<&[i64]>) -> (Box<Self>, Calls) {
        let calls = Calls::default();
        let producer = Self {
            values: (0..count).map(|value| value as f32).collect(),
            shape: shape.to_vec(),
            strides: strides.map(<[i64]>::to_vec),
            calls: calls.0.clone(),
        };
        (Box::new(producer), calls)
    }

    /// Returns the fields of a tensor that begins with the value at `first`.
    fn fields(&mut self, first: usize) -> DLTensor {
        let strides = self.strides.as_mut();
        DLTensor {
            data: self.values.as_mut_ptr().cast(),
            device: DLDevice {
                device_type: kDLCPU,
                device_id: 0,
            },
            ndim: self.shape.len() as i32,
            dtype: DLDataType {
                code: kDLFloat,
                bits: 32,
                lanes: 1,
            },
            shape: self.shape.as_mut_ptr(),
            strides: strides.map_or(std::ptr::null_mut(), Vec::as_mut_ptr),
            byte_offset: 4 * first as u64,
        }
    }

    fn versioned(mut self: Box<Self>, first: usize, flags: u64) -> *mut DLManagedTensorVersioned {
        let dl_tensor = self.fields(first);
        Box::into_raw(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 0 },
            manager_ctx: Box::into_raw(self).cast(),
            deleter: Some(end_versioned),
            flags,
            dl_tensor,
        }))
    }

    fn legacy(mut self: Box<Self>, first: usize) -> *mut DLManagedTensor {
        let dl_tensor = self.fields(first);
        Box::into_raw(Box::new(DLManagedTensor {
            dl_tensor,
            manager_ctx: Box::into_raw(self).cast(),
            deleter: Some(end_legacy),
        }))
    }

    /// # Safety
    ///
    /// `context` is a leaked producer that nothing uses any longer.
    unsafe fn end(context: *mut c_void) {
        // SAFETY: by the contract, `context` is a leaked producer that nothing uses any longer.
        let mut producer = unsafe { Box::from_raw(context.cast::<Self>()) };
        producer.values.fill(-1.0);
        producer.calls.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn end_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the producer leaked both boxes, and the consumer calls this function once.
    unsafe { Producer::end(Box::from_raw(tensor).manager_ctx) };
}

unsafe extern "C" fn end_legacy(tensor: *mut DLManagedTensor) {
    // SAFETY: the producer leaked both boxes, and the consumer calls this function once.
    unsafe { Producer::end(Box::from_raw(tensor).manager_ctx) };
}

/// The number of calls of a deleter.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU64>);

impl Calls {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
