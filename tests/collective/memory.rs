//! The memory of collective calls, which scopes serve like other memory.

use cachescope::collective::{Group, Reduce};
use cachescope::record::{EventKind, RecordOptions, RecordedEvent};
use cachescope::{Array, Device, DeviceConfig, Policy, Result, cache_scope};

fn device() -> Result<Device> {
    Device::host_with(DeviceConfig::default())
}

/// A warm step reserves nothing. Under Plan, a buffer has an equal offset in the slab on all ranks.
#[test]
fn buffers_are_those_of_the_step_before() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Plan] {
        let offsets = Group::threads(3, |group| {
            let device = device()?;
            let _current = device.enter();
            let mut places = Vec::new();
            for iteration in 0..6 {
                let before = device.memory_stats().reserves;
                cache_scope!("step", policy = policy, {
                    let first = Array::full(10_000, 1.0f32)?;
                    let gathered = group.all_gather(&first)?;
                    let mut sum = (&gathered * 2.0).eval()?;
                    group.all_reduce_in_place(&mut sum, Reduce::Sum)?;
                    places = vec![first.address(), gathered.address(), sum.address()];
                    assert_eq!(sum.to_vec()?[7], 6.0);
                });
                assert!(iteration < 3 || device.memory_stats().reserves == before);
            }
            let first = places[0];
            let places = places.into_iter().map(|own| own.wrapping_sub(first));
            Ok(places.collect::<Vec<_>>())
        })?;
        if policy == Policy::Plan {
            assert!(offsets.iter().all(|own| *own == offsets[0]), "{offsets:?}");
        }
    }
    Ok(())
}

#[test]
fn memory_in_flight_is_not_reused() -> Result<()> {
    Group::threads(2, |group| {
        let group = group.checks(false);
        let device = device()?;
        let _current = device.enter();
        cache_scope!("flight", {
            if group.rank() == 1 {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            let x = Array::full(5000, group.rank() as f32)?;
            let sum = group.all_reduce(&x, Reduce::Sum)?;
            let address = x.address();
            drop(x);
            let next = Array::full(5000, 100.0f32)?;
            if group.rank() == 0 {
                assert_ne!(next.address(), address, "the other rank has not read it");
            }
            assert_eq!(sum.to_vec()?, vec![1.0; 5000]);
        });
        assert_eq!(device.memory_stats().live_blocks, 0);
        Ok(())
    })?;
    Ok(())
}

/// A recording contains each collective call, with its call site, on the rank's host stream.
#[test]
fn exchanges_are_recorded() -> Result<()> {
    Group::threads(2, |group| {
        let device = device()?;
        let _current = device.enter();
        let recording = device.record(RecordOptions::default())?;
        let mut x = Array::full(100, 1.0f32)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        let line = line!() - 1;
        assert_eq!(x.to_vec()?[0], 2.0);
        let events = recording.events();
        let begun = events
            .iter()
            .find(|event| event.kind == EventKind::OperationBegin && event.stream != 0);
        let begun = begun.expect("the exchange is recorded");
        assert_eq!(begun.call_site.as_ref().map(|place| place.line), Some(line));
        let end = |event: &&RecordedEvent| {
            event.kind == EventKind::OperationEnd && event.thread == begun.thread
        };
        assert!(
            events
                .iter()
                .find(end)
                .is_some_and(|end| end.time >= begun.time)
        );
        Ok(())
    })?;
    Ok(())
}

/// The ranks share a device. Rank 0 synchronises the device before it makes the call that rank 1
/// has begun.
#[test]
fn a_wait_for_the_device_does_not_wait_for_other_ranks() -> Result<()> {
    let device = device()?;
    let _current = device.enter();
    let began = std::time::Instant::now();
    Group::threads(2, |group| {
        let group = group.checks(false);
        let mut x = Array::full(1000, 1.0f32)?;
        if group.rank() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            Device::current().synchronize()?;
            Device::current().trim(0);
        }
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        assert_eq!(x.to_vec()?[0], 2.0);
        Ok(())
    })?;
    assert!(began.elapsed() < std::time::Duration::from_secs(20));
    Ok(())
}

#[test]
fn a_device_works_after_a_failed_group() -> Result<()> {
    let device = device()?;
    let _current = device.enter();
    let failed = Group::threads(2, |group| {
        let group = group.checks(false);
        let mut x = Array::<f32>::ones(3 + group.rank())?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        // Later calls of the group also fail.
        let mut y = Array::<f32>::ones(3)?;
        let late = group
            .all_reduce_in_place(&mut y, Reduce::Sum)
            .and_then(|()| y.to_vec());
        assert!(late.is_err());
        late
    });
    assert!(failed.is_err());
    device.synchronize()?;
    let sums = Group::threads(2, |group| {
        let mut x = Array::full(3, 1.0f32)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        x.to_vec()
    })?;
    assert_eq!(sums, [[2.0; 3]; 2]);
    Ok(())
}

/// A new stream of the device reuses the index of a dropped stream. A rank's host stream must not
/// reuse this index.
#[test]
fn a_number_of_a_stream_is_not_a_ranks() -> Result<()> {
    let config = DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    };
    let device = Device::host_with(config)?;
    let _current = device.enter();
    let x = {
        let stream = device.new_stream()?;
        let _entered = stream.enter();
        Array::full(1000, 3.0f32)?
    };
    Group::threads(2, |group| {
        let mut own = Array::full(10, 1.0f32)?;
        group.all_reduce_in_place(&mut own, Reduce::Sum)?;
        assert_eq!((&x + 1.0).eval()?.to_vec()?, vec![4.0; 1000]);
        Ok(())
    })?;
    Ok(())
}
