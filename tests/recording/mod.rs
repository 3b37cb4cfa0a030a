//! Recordings of a device's memory: events of requests, frees, scopes, segments and failures, and
//! assertions on the events. A recording changes nothing else.

mod assertions;
mod events;
mod files;
mod unchanged;

use cachescope::record::{EventKind, RecordOptions, RecordedEvent, Recording};
use cachescope::{Device, DeviceConfig};

/// Returns a new host device.
fn device() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

fn record(device: &Device) -> Recording {
    device.record(RecordOptions::default()).unwrap()
}

fn of_kind(recording: &Recording, kind: EventKind) -> Vec<RecordedEvent> {
    let mut events = recording.events();
    events.retain(|event| event.kind == kind);
    events
}

fn count(recording: &Recording, kind: EventKind) -> usize {
    of_kind(recording, kind).len()
}
