//! The devices that a suite opens itself: on the host, or on the CUDA device that
//! `CACHESCOPE_DEVICE` names.

#![forbid(unsafe_code)]

use cachescope::{Device, DeviceConfig, Result};

/// Returns the ordinal of the suite's CUDA device, or `None` on the host.
#[must_use]
pub fn cuda_ordinal() -> Option<usize> {
    let named = std::env::var("CACHESCOPE_DEVICE").ok()?;
    named.strip_prefix("cuda:")?.parse().ok()
}

/// Returns a new device, with separate memory and caches.
///
/// # Errors
///
/// The errors of [`Device::host_with`] and [`Device::cuda_with`].
pub fn device_with(config: DeviceConfig) -> Result<Device> {
    match cuda_ordinal() {
        None => Device::host_with(config),
        // Only a host device can delay its streams. CUDA streams are always asynchronous.
        Some(ordinal) => Device::cuda_with(
            ordinal,
            DeviceConfig {
                delay_streams: false,
                ..config
            },
        ),
    }
}
