//! With either evaluator, a recording contains the operation and its line.

use cachescope::grad::value_and_grad;
use cachescope::record::{EventKind, RecordOptions};
use cachescope::{Array, Device, DeviceConfig, Result};

#[test]
fn evaluating_and_assigning_are_one_operation_of_their_line_each() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _device = device.enter();
    let x = Array::<f32>::ones([100, 10])?;
    let mut y = Array::<f32>::zeros([100, 10])?;
    let recording = device.record(RecordOptions::default())?;
    let line = line!() + 1;
    let z = (&x + 1.0).eval()?;
    y.assign(&x * &z)?;
    y.update(|y| y * 0.5)?;
    let mut begun = recording.events();
    begun.retain(|event| event.kind == EventKind::OperationBegin);
    let lines: Vec<_> = (begun.iter())
        .map(|event| event.call_site.as_ref().map(|site| site.line))
        .collect();
    assert_eq!(lines, [Some(line), Some(line + 1), Some(line + 2)]);
    assert_eq!(y.to_vec()?, [1.0; 1000]);
    Ok(())
}

/// A backward pass evaluates broadcasting expressions internally. The events of these expressions
/// have the call site of the loss.
#[test]
fn a_backward_pass_reports_lines_of_the_program_alone() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _device = device.enter();
    let logits = Array::<f32>::ones([40, 50])?;
    let classes = Array::<i64>::zeros(40)?;
    let recording = device.record(RecordOptions::default())?;
    value_and_grad(&logits, |logits| logits.cross_entropy(&classes))?;
    let others: Vec<_> = (recording.events().into_iter())
        .filter_map(|event| event.call_site)
        .filter(|site| !site.file.ends_with("recorded.rs"))
        .collect();
    assert_eq!(others, []);
    Ok(())
}
