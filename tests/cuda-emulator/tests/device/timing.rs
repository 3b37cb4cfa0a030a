//! Tests of the device times in a recording.

use cachescope::record::{EventKind, RecordOptions, RecordedEvent, Recording};
use cachescope::{Array, PoolKind, Result, graph};

use crate::device::{EmulatorLock, device};

const WAITS: [&str; 2] = ["cuStreamSynchronize", "cuEventSynchronize"];

#[test]
fn kernels_are_timed_by_the_device_with_their_lines() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let x = Array::<f32>::ones([1000])?;
        let recording = device.record(RecordOptions::default())?;
        let mut y = (&x + 1.0).eval()?;
        let waits = || WAITS.map(|name| lock.control.calls_of(name));
        let before = waits();
        let line = line!() + 2;
        for _ in 0..10 {
            y.update(|y| y * 0.5)?;
        }
        assert_eq!(waits(), before, "a recording waits for no operation");
        device.synchronize()?;
        let kernels = || {
            let mut events = recording.events();
            events.retain(|event| event.kind == EventKind::Kernel);
            events
        };
        let of_line =
            |event: &&RecordedEvent| matches!(&event.call_site, Some(site) if site.line == line);
        assert_eq!(kernels().iter().filter(of_line).count(), 10);
        let sites = recording.by_call_site();
        let site = sites
            .iter()
            .find(|own| own.call_site.as_ref().is_some_and(|site| site.line == line));
        let site = site.expect("its operations were timed");
        let told: u64 = kernels()
            .iter()
            .filter(of_line)
            .map(|event| event.bytes)
            .sum();
        assert_eq!(site.kernel_ns, told);
        // The kernels run sequentially on their stream.
        let kernels = kernels();
        assert!(kernels.windows(2).all(|pair| {
            let end = pair[0].time.as_nanos() + u128::from(pair[0].bytes);
            // The driver's clock has a resolution of half a microsecond.
            end <= pair[1].time.as_nanos() + 1_000
        }));
    }
    lock.end();
    Ok(())
}

#[test]
fn what_was_submitted_before_a_recording_is_not_its() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let mut x = Array::<f32>::ones([1000])?;
        let earlier = device.record(RecordOptions::default())?;
        for _ in 0..5 {
            x.update(|x| x + 1.0)?;
        }
        let later = device.record(RecordOptions::default())?;
        x.update(|x| x + 1.0)?;
        // The read waits for the device.
        assert_eq!(x.to_vec()?, [7.0; 1000]);
        let count = |recording: &Recording| {
            let events = recording.events();
            let kernels = events
                .iter()
                .filter(|event| event.kind == EventKind::Kernel);
            kernels.count()
        };
        assert_eq!((count(&earlier), count(&later)), (6, 1));
    }
    lock.end();
    Ok(())
}

#[test]
fn a_launch_of_a_graph_is_one_kernel_and_its_capture_none() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let _on = stream.enter();
        let mut x = Array::<f32>::ones([1000])?;
        x.update(|x| x + 1.0)?;
        device.synchronize()?;
        let recording = device.record(RecordOptions::default())?;
        let count = || {
            let events = recording.events();
            events
                .iter()
                .filter(|event| event.kind == EventKind::Kernel)
                .count()
        };
        let step = graph::capture(&device, || x.update(|x| x + 1.0))?;
        device.synchronize()?;
        assert_eq!(count(), 0);
        step.launch()?;
        step.launch()?;
        device.synchronize()?;
        assert_eq!(count(), 2);
        assert_eq!(x.to_vec()?, [4.0; 1000]);
    }
    lock.end();
    Ok(())
}

#[test]
fn without_a_recording_no_time_is_marked() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let mut x = Array::<f32>::ones([1000])?;
        drop(device.record(RecordOptions::default())?);
        let marked = lock.calls_of("cuEventRecord", || {
            for _ in 0..10 {
                x.update(|x| x + 1.0).unwrap();
            }
        });
        assert_eq!(marked, 0);
    }
    lock.end();
    Ok(())
}

#[test]
fn operations_run_even_if_their_time_cannot_be_marked() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let mut x = Array::<f32>::ones([1000])?;
        x.update(|x| x + 1.0)?;
        let recording = device.record(RecordOptions::default())?;
        for call in [
            "cuEventCreate",
            "cuEventRecord",
            "cuEventQuery",
            "cuEventElapsedTime",
        ] {
            let failed = lock.control.failed();
            for nth in 1..=4 {
                lock.control.fail_named(call, nth, 999);
                for _ in 0..3 {
                    x.update(|x| x + 1.0)?;
                }
                // The synchronisation collects the times.
                device.synchronize()?;
                lock.control.fail_named(call, 0, 0);
            }
            assert!(lock.control.failed() > failed, "{call} was made to fail");
        }
        let events = recording.events();
        assert!(events.iter().any(|event| event.kind == EventKind::Kernel));
        assert_eq!(x.to_vec()?, [2.0 + 48.0; 1000]);
    }
    lock.end();
    Ok(())
}
