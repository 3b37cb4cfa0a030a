//! Backward passes that check for NaN.

use cachescope::grad::optim::Sgd;
use cachescope::grad::{Tape, checkpoint, detect_anomaly, hvp, value_and_grad, value_and_step};
use cachescope::{Array, Device, DeviceConfig, Error, Result};

use crate::grad::differences::numbers;

/// The line of the operation in [`loss`] that passes NaN back.
const LINE: u32 = line!() + 6;

/// Returns a loss whose gradient is NaN, because the backward pass multiplies the infinite slope of
/// the root by zero.
fn loss(x: &Array<f64>) -> Result<Array<f64>> {
    let scaled = (x * 2.0).eval()?;
    let root = scaled.sqrt().eval()?;
    (root * scaled * 0.0).sum()
}

fn zero() -> Array<f64> {
    Array::from_slice(&[0.0, 1.0], 2).unwrap()
}

#[track_caller]
fn check<T>(result: Result<T>) {
    let error: Error = result.err().expect("it is found");
    assert!(error.to_string().contains("NaN"), "{error}");
    let place = error.location().expect("it has a line");
    assert!(place.file().ends_with("anomalies.rs"), "{error}");
    assert_eq!(place.line(), LINE, "{error}");
}

#[test]
fn nan_is_reported_at_the_line_of_its_operation() -> Result<()> {
    value_and_grad(&zero(), loss)?;
    let guard = detect_anomaly();
    check(value_and_grad(&zero(), loss));
    check(value_and_step(&mut zero(), &mut Sgd::new(0.1), loss));
    check(hvp(&zero(), &zero(), loss));
    check(value_and_grad(&zero(), |x| {
        checkpoint(x, |x| loss(x)?.reshape([1]))?.sum()
    }));
    drop(guard);
    value_and_grad(&zero(), loss)?;
    Ok(())
}

#[test]
fn a_guard_inside_of_the_closure_covers_its_backward_pass() -> Result<()> {
    let guarded = |x: &Array<f64>| {
        let _anomalies = detect_anomaly();
        loss(x)
    };
    check(value_and_grad(&zero(), guarded));
    check(value_and_step(&mut zero(), &mut Sgd::new(0.1), guarded));
    check(hvp(&zero(), &zero(), guarded));
    // The tape of the failed pass has ended.
    value_and_grad(&zero(), loss)?;
    Ok(())
}

#[test]
fn a_guard_that_drops_inside_of_the_closure_covers_its_backward_pass() {
    let guard = detect_anomaly();
    check(value_and_grad(&zero(), move |x| {
        drop(guard);
        loss(x)
    }));
}

#[test]
fn a_guard_covers_the_tape_that_is_open() -> Result<()> {
    let mut tape = Tape::begin()?;
    let x = tape.track(&zero())?;
    let value = loss(&x)?;
    let guard = detect_anomaly();
    drop(guard);
    check(tape.gradients(value, x));
    Ok(())
}

#[test]
fn errors_of_a_backward_pass_have_the_line_of_their_operation() {
    let line = line!() + 3;
    let error = value_and_grad(&numbers(&[3], 1.0), |x| {
        let runs = std::cell::Cell::new(0_usize);
        let whole = checkpoint(x, move |x| {
            runs.set(runs.get() + 1);
            x.broadcast_to([runs.get(), 3])?.exp().eval()
        })?;
        whole.sum()
    });
    let error = error.unwrap_err();
    assert_eq!(error.location().unwrap().line(), line, "{error}");
}

/// An out-of-memory error of a backward pass has the line of the differentiated operation.
#[test]
fn memory_of_a_backward_pass_is_missing_at_the_line_of_its_operation() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(12 << 20),
        ..DeviceConfig::default()
    };
    let device = Device::host_with(config)?;
    let _current = device.enter();
    // `x` has 8 MiB of the limit of 12 MiB. The backward pass needs another array of 8 MiB.
    let x = Array::<f64>::ones(1 << 20)?;
    let line = line!() + 2;
    let error = value_and_grad(&x, |x| {
        let loss = x.exp().sum()?;
        (loss * 2.0).eval()
    });
    let error = error.unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    Ok(())
}
