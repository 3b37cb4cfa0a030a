//! Tests of library handles and plans that are created or destroyed during a capture. Some library
//! calls wait for the whole context. Such a call ends the captures of all threads in the context.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cachescope::graph::capture;
use cachescope::{Array, Complex, Device, DeviceConfig, Error, ErrorKind, Result, fft, linalg};
use cuda_emulator::Control;

fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

/// Captures `x + 1`, calls `beside` in the middle, and checks two launches.
fn assert_captured(device: &Device, beside: impl FnOnce() -> Result<()>) -> Result<()> {
    let _guard = device.enter();
    let mut x = Array::<i32>::zeros(10)?;
    x.update(|x| x + 1)?;
    let graph = capture(device, || {
        beside()?;
        x.update(|x| x + 1)
    })?;
    graph.launch()?;
    graph.launch()?;
    assert_eq!(x.to_vec()?, [3; 10]);
    Ok(())
}

/// Returns a device that already has library handles and a plan.
fn used_device() -> Result<Device> {
    let device = device();
    let _guard = device.enter();
    let a = Array::from_slice(&[2.0f32, 1.0, 1.0, 3.0], [2, 2])?;
    assert_eq!(a.matmul(&a)?.to_vec()?, [5.0, 5.0, 5.0, 10.0]);
    assert_eq!(linalg::cholesky(&a)?.shape(), [2, 2]);
    fft::fft(&Array::full(149, Complex::<f32>::ONE)?, 0)?;
    Ok(device.clone())
}

#[test]
fn a_device_is_dropped_during_a_capture() -> Result<()> {
    let other = used_device()?;
    assert_captured(&device(), || {
        thread::spawn(move || drop(other)).join().unwrap();
        Ok(())
    })?;
    if let Some(control) = Control::of_process() {
        assert_eq!(control.complaints(), 0, "{}", control.last_complaint());
    }
    used_device().map(drop)
}

#[test]
fn another_thread_needs_a_new_plan_during_a_capture() -> Result<()> {
    let (begun, has_begun) = mpsc::channel();
    let (device, other) = (device(), device());
    thread::scope(|scope| {
        let transform = scope.spawn(move || {
            let _guard = other.enter();
            let row = Array::full(131, Complex::<f64>::ONE)?;
            begun.send(()).expect("the capture is awaited");
            fft::fft(&row, 0)?.slice([0.into()])?.to_vec()
        });
        assert_captured(&device, || {
            has_begun.recv().expect("the other thread begins");
            // If the other thread created the plan now, the creation would end the capture.
            thread::sleep(Duration::from_millis(100));
            Ok(())
        })?;
        let sum = transform.join().unwrap()?[0];
        assert!((sum.re - 131.0).abs() < 1e-9, "{sum}");
        Ok(())
    })
}

#[test]
fn a_new_plan_cannot_be_captured() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let row = Array::full(137, Complex::<f64>::ONE)?;
    let refused = |outcome: Result<()>| {
        let error: Error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(
            error
                .to_string()
                .contains("a new plan of fft cannot be captured"),
            "{error}"
        );
    };
    assert_captured(&device, || {
        refused(fft::fft(&row, 0).map(drop));
        Ok(())
    })
}
