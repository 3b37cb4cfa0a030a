//! The devices of a snapshot of PyTorch.

use std::io::Read;
use std::path::Path;

use cachescope_tools::trace::{DeviceTrace, Snapshot};

use crate::failure::ExitFailure;

/// Returns the device `ordinal` of a snapshot, or all devices that have data.
pub(crate) fn devices(
    path: &Path,
    input: impl Read,
    ordinal: Option<usize>,
) -> Result<Vec<DeviceTrace>, ExitFailure> {
    let devices = Snapshot::read(path.display(), input)?.devices;
    let Some(ordinal) = ordinal else {
        return Ok(devices);
    };
    let known = names(&devices);
    let found: Vec<DeviceTrace> = (devices.into_iter())
        .filter(|device| device.ordinal == ordinal)
        .collect();
    match found.is_empty() {
        true => Err(without_device(path, ordinal, &known)),
        false => Ok(found),
    }
}

/// Returns the device `ordinal`, or the only device of the snapshot.
pub(crate) fn device(
    path: &Path,
    input: impl Read,
    ordinal: Option<usize>,
) -> Result<DeviceTrace, ExitFailure> {
    let mut devices = devices(path, input, ordinal)?;
    if devices.len() > 1 {
        let known = names(&devices);
        let text = format!(
            "{}: the snapshot has {known}: select one with --device",
            path.display()
        );
        return Err(ExitFailure::Usage(text));
    }
    devices.pop().ok_or_else(|| without_any(path))
}

pub(crate) fn without_device(path: &Path, ordinal: usize, known: &str) -> ExitFailure {
    let path = path.display();
    ExitFailure::Usage(format!(
        "{path}: nothing was recorded of device {ordinal}, the snapshot has {known}"
    ))
}

pub(crate) fn without_any(path: &Path) -> ExitFailure {
    let path = path.display();
    ExitFailure::Usage(format!("{path}: the snapshot has no recorded device"))
}

fn names(devices: &[DeviceTrace]) -> String {
    let names: Vec<String> = devices
        .iter()
        .map(|device| format!("cuda:{}", device.ordinal))
        .collect();
    if names.is_empty() {
        "none".into()
    } else {
        names.join(", ")
    }
}
