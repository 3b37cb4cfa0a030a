//! The devices of a snapshot of PyTorch.

use std::io::Read;
use std::path::Path;

use cachescope_tools::trace::{DeviceTrace, Snapshot};

use crate::failure::ExitFailure;

/// The device `ordinal` of a snapshot, or each that it has something of.
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
    if found.is_empty() {
        let text = format!(
            "{}: nothing of device {ordinal}; there is {known}",
            path.display()
        );
        return Err(ExitFailure::Usage(text));
    }
    Ok(found)
}

/// The only device, or the one that `ordinal` names.
pub(crate) fn device(
    path: &Path,
    input: impl Read,
    ordinal: Option<usize>,
) -> Result<DeviceTrace, ExitFailure> {
    let mut devices = devices(path, input, ordinal)?;
    if devices.len() > 1 {
        let known = names(&devices);
        let text = format!("{}: {known}; name one by --device", path.display());
        return Err(ExitFailure::Usage(text));
    }
    devices.pop().ok_or_else(|| {
        ExitFailure::Usage(format!(
            "{}: nothing of any device was recorded",
            path.display()
        ))
    })
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
