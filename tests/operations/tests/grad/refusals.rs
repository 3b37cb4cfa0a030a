//! Operations that are refused. The error names the operation.

use cachescope::grad::{stop_gradient, value_and_grad, value_and_grad_aux};
use cachescope::{Array, ErrorKind, Result};

use crate::grad::differences::numbers;

fn refused<T>(result: Result<T>) -> (ErrorKind, String) {
    let error = result.err().expect("it is refused");
    let line = error.location().expect("it has a line");
    (error.kind(), format!("{error} at {line}"))
}

#[test]
fn a_loss_of_several_values() {
    let (kind, text) = refused(value_and_grad(&numbers(&[3], 1.0), |x| Ok(x * 2.0)));
    assert_eq!(kind, ErrorKind::InvalidShape);
    assert!(text.contains("[3]"), "{text}");
}

#[test]
fn another_threads_variables() {
    let x = numbers(&[4], 1.0);
    let result = value_and_grad(&x, |x| {
        let x = x.clone();
        let other = std::thread::spawn(move || (&x * 2.0).eval()).join();
        other.expect("it does not panic")?.sum()
    });
    assert_eq!(refused(result).0, ErrorKind::Unsupported);
}

#[test]
fn copies_that_no_gradient_passes_through() {
    let x = numbers(&[4], 1.0);
    let (kind, text) = refused(value_and_grad(&x, |x| x.to_uncached()?.sum()));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.contains("to_uncached"), "{text}");
}

#[test]
fn edges_of_a_histogram() -> Result<()> {
    let x = numbers(&[4], 1.0);
    let (kind, text) = refused(value_and_grad(&x, |x| x.histogram(2)?.1.sum()));
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(
        text.contains("histogram") && text.contains("stop_gradient"),
        "{text}"
    );
    let (_, counts, _) = value_and_grad_aux(&x, |x| {
        let (counts, _) = stop_gradient(x).histogram(2)?;
        Ok((x.sum()?, counts))
    })?;
    assert_eq!(counts.sum()?.item()?, 4);
    Ok(())
}

#[test]
fn parameters_of_two_devices() {
    let other = cachescope::Device::host_with(cachescope::DeviceConfig::default()).unwrap();
    let parameters = (
        numbers(&[4], 1.0),
        numbers(&[4], 1.0).to_device(&other).unwrap(),
    );
    let (kind, _) = refused(value_and_grad(&parameters, |(a, b)| (a * b).sum()));
    assert_eq!(kind, ErrorKind::DeviceMismatch);
}

#[test]
fn an_error_inside_is_the_error() {
    let x = numbers(&[4], 1.0);
    let (kind, _) = refused(value_and_grad(&x, |x| (x + numbers(&[3], 1.0)).sum()));
    assert_eq!(kind, ErrorKind::ShapeMismatch);
    let kept: Result<(Array<f64>, Array<f64>)> = value_and_grad(&x, |x| (x * x).sum());
    assert!(kept.is_ok());
}
