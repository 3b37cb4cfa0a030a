//! Streams on a host device that delays their work, so that a missing wait shows as wrong data.

mod copies;
mod entering;
#[cfg(feature = "fft")]
mod fft;
#[cfg(feature = "linalg")]
mod linalg;
mod model;
mod order;
mod panics;
mod pending;
mod releasing;
use cachescope::{Array, Device, DeviceConfig, Result};
use under_test::{cuda_ordinal, device_with};

const MIB: u64 = 1 << 20;

/// Returns the factor for the sizes of tests that expect a stream to have pending work. A GPU would
/// complete an addition over 4 MiB before the host's next call.
pub(crate) fn size_factor() -> usize {
    let is_gpu = cuda_ordinal().is_some() && cuda_emulator::has_device();
    if is_gpu { 64 } else { 1 }
}

/// Returns the number of elements of a large array: 4 MiB, and more on a GPU. The array has
/// separate pages or a separate segment, and work on the array takes time.
fn length() -> usize {
    size_factor() << 20
}

/// Returns the size of an array of [`length`] elements.
fn bytes() -> u64 {
    (length() * size_of::<i32>()) as u64
}

/// Returns a device whose streams run their work as late as possible.
fn device() -> Device {
    limited(None)
}

/// Returns a delaying device with memory for `arrays` arrays of [`length`] elements.
fn room_for(arrays: u64) -> Device {
    limited(Some(arrays * bytes()))
}

fn limited(memory_limit: Option<u64>) -> Device {
    device_with(DeviceConfig {
        memory_limit,
        delay_streams: true,
        ..Default::default()
    })
    .unwrap()
}

/// Returns an array of [`length`] elements of `value`, on the current stream.
fn large(value: i32) -> Result<Array<i32>> {
    Array::full(length(), value)
}

/// Returns an array like [`large`] whose write has completed. Work that runs too early then reads
/// the array's values.
fn written(value: i32) -> Result<Array<i32>> {
    let array = large(value)?;
    array.device().synchronize()?;
    Ok(array)
}

/// Reads the array, and asserts that all of its elements are `value`.
#[track_caller]
fn assert_all(array: &Array<i32>, value: i32) {
    let elements = array.to_vec().unwrap();
    let other = elements.iter().find(|element| **element != value);
    assert_eq!(other, None, "not {value} throughout");
}
