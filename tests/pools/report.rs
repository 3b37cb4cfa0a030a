//! The report of the time that a device spends on memory.

use std::sync::Mutex;

use cachescope::{Array, Buffer, Device, DeviceConfig, PhaseReport, Result, cache_scope};
use under_test::device_with;

use crate::pools::MIB;
use crate::streams::size_factor;

fn calls(device: &Device, name: &str) -> u64 {
    let report = device.memory_report();
    let mut phases = report.phases.iter();
    let phase = phases.find(|phase| phase.name.starts_with(name));
    phase.unwrap_or_else(|| panic!("no phase {name}")).calls
}

/// The test causes each phase once. The report must contain each phase.
#[test]
fn every_phase_that_runs_is_counted_and_timed() -> Result<()> {
    let unit = MIB * size_factor();
    let device = device_with(DeviceConfig {
        memory_limit: Some(64 * unit as u64),
        time_phases: true,
        delay_streams: true,
        ..Default::default()
    })?;
    let _current = device.enter();
    let new = |mib| Buffer::new(&device, mib * unit);

    let first = new(30)?;
    assert_eq!(
        (calls(&device, "reserve"), calls(&device, "release")),
        (1, 0)
    );
    assert!(
        calls(&device, "pool take") >= 2,
        "refused, and served from what was reserved"
    );
    drop(first);
    assert!(device.trim(0) > 0);
    assert!(calls(&device, "trim") >= 1);
    assert_eq!(calls(&device, "release"), 1);

    cache_scope!("cache", { drop(new(40)?) });
    assert_eq!(calls(&device, "reclaim from caches"), 0);
    drop(new(50)?);
    assert!(calls(&device, "reclaim from caches") >= 1);
    assert!(calls(&device, "release idle memory") >= 1);
    device.trim(0);

    let mut shared = Array::<f32>::zeros(10 * unit)?;
    let stream = device.new_stream()?;
    {
        let _entered = stream.enter();
        shared.fill(1.0)?;
    }
    drop(shared);
    drop(new(50)?);
    assert!(calls(&device, "reclaim pending") >= 1);
    assert!(calls(&device, "wait for events") >= 1);
    device.trim(0);

    let kept = Mutex::new(Some(new(60)?));
    let _guard = device.on_memory_pressure(move |_| {
        let given = kept.lock().unwrap().take();
        given.map_or(0, |buffer| buffer.size_bytes() as u64)
    });
    drop(new(50)?);
    assert_eq!(calls(&device, "pressure callbacks"), 1);

    let report = device.memory_report();
    let text = report.to_string();
    for PhaseReport { name, .. } in &report.phases {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    assert!(report.total() > std::time::Duration::ZERO);
    Ok(())
}

#[test]
fn what_is_not_timed_is_not_reported() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    drop(Buffer::new(&device, 1000)?);
    assert!(device.memory_report().phases.is_empty());
    Ok(())
}
