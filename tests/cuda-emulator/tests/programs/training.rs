//! Tests of steps of the example `train_digits`, with failing driver calls.

use cachescope::{
    Array, Device, DeviceConfig, ErrorKind, Generator, Policy, Result, cache_scope, graph,
};
use cuda_emulator::Control;

use crate::programs::turn;
use shared::dataset::Dataset;
use shared::digits::{CLASSES, PIXELS};
use shared::model::Model;

const BATCH: usize = 12;

/// The driver's code for an unknown error.
const UNKNOWN: i32 = 999;
/// The driver's code for exhausted memory.
const OUT_OF_MEMORY: i32 = 2;

fn batch() -> Result<Dataset> {
    let pixel = |index: usize| (index * 7 % 17) as f32 / 16.0;
    let label = |index: usize| (index * 3 % CLASSES) as i64;
    Ok(Dataset {
        images: Array::from_vec((0..BATCH * PIXELS).map(pixel).collect(), [BATCH, PIXELS])?,
        labels: Array::from_vec((0..BATCH).map(label).collect(), BATCH)?,
    })
}

fn step(model: &mut Model, batch: &Dataset) -> Result<f32> {
    cache_scope!("step", policy = Policy::Plan, { model.step(batch)?.item() })
}

/// Trains three steps on a new device. Returns the losses.
fn train(open: impl FnOnce() -> Result<Device>) -> Result<Vec<f32>> {
    let device = open()?;
    let _guard = device.enter();
    let mut model = Model::new(8, &mut Generator::new(1))?;
    let batch = batch()?;
    (0..3).map(|_| step(&mut model, &batch)).collect()
}

fn on_cuda() -> Result<Device> {
    Device::cuda_with(0, DeviceConfig::default())
}

fn are_near(left: &[f32], right: &[f32]) -> bool {
    let pairs = left.iter().zip(right);
    left.len() == right.len()
        && pairs
            .into_iter()
            .all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs())
}

#[test]
fn a_model_learns_what_it_does_on_the_host() -> Result<()> {
    let _turn = turn();
    let host = train(|| Device::host_with(DeviceConfig::default()))?;
    assert!(host[2] < host[0], "{host:?}");
    let cuda = train(on_cuda)?;
    assert!(are_near(&cuda, &host), "{cuda:?} {host:?}");
    Ok(())
}

/// For each call and each error code, the run returns its result, or an error that names the
/// failure. Only objects whose release failed remain.
#[test]
fn each_failed_call_is_an_error_or_recovered() -> Result<()> {
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    let _turn = turn();
    let expected = train(on_cuda)?;
    let before = control.calls();
    train(on_cuda)?;
    let calls = control.calls() - before;
    let (mut errors, complaints) = (0, control.complaints());
    for call in 1..=calls {
        for code in [UNKNOWN, OUT_OF_MEMORY] {
            let alive = control.report();
            control.fail_call(call, code);
            let outcome = train(on_cuda);
            control.fail_call(0, 0);
            match outcome {
                Ok(losses) => assert!(are_near(&losses, &expected), "call {call}: {losses:?}"),
                Err(error) => {
                    errors += 1;
                    let kinds = [ErrorKind::Driver, ErrorKind::OutOfMemory];
                    assert!(kinds.contains(&error.kind()), "call {call}: {error}");
                }
            }
            let left = control.report();
            assert!(left.streams <= alive.streams + 1, "call {call}: {left:?}");
            assert!(
                left.allocations <= alive.allocations + 1,
                "call {call}: {left:?}"
            );
            assert!(left.mappings <= alive.mappings + 1, "call {call}: {left:?}");
            assert_eq!(
                left.pending, 0,
                "call {call}: work is left that nobody waited for"
            );
        }
    }
    println!("{calls} calls, {errors} errors of {} runs", 2 * calls);
    assert!(errors > calls / 2, "{errors} errors of {calls} calls");
    assert_eq!(
        control.complaints(),
        complaints,
        "{}",
        control.last_complaint()
    );
    assert!(are_near(&train(on_cuda)?, &expected));
    Ok(())
}

/// From the n-th reservation on, the device is out of memory.
#[test]
fn a_full_device_is_an_error_at_each_allocation() -> Result<()> {
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    let _turn = turn();
    let expected = train(on_cuda)?;
    for name in ["cuMemAlloc_v2", "cuMemCreate"] {
        let before = control.calls_of(name);
        train(on_cuda)?;
        for call in 1..=control.calls_of(name) - before {
            control.fail_named(name, call, OUT_OF_MEMORY);
            let outcome = train(on_cuda);
            control.fail_named(name, 0, 0);
            match outcome {
                Ok(losses) => assert!(are_near(&losses, &expected), "{name} {call}: {losses:?}"),
                Err(error) => assert!(error.is_out_of_memory(), "{name} {call}: {error}"),
            }
        }
    }
    Ok(())
}

#[test]
fn a_captured_step_learns_as_well() -> Result<()> {
    let _turn = turn();
    let expected = train(on_cuda)?;
    let device = on_cuda()?;
    let _guard = device.enter();
    let mut model = Model::new(8, &mut Generator::new(1))?;
    let batch = batch()?;
    let mut loss = Array::<f32>::zeros([])?;
    // Two steps are eager. The third step is captured.
    let mut losses = Vec::new();
    for _ in 0..2 {
        cache_scope!("step", policy = Policy::Plan, {
            loss.assign(&model.step(&batch)?)?;
        });
        losses.push(loss.item()?);
    }
    let graph = graph::capture(&device, || {
        cache_scope!("step", policy = Policy::Plan, {
            loss.assign(&model.step(&batch)?)
        })
    })?;
    graph.launch()?;
    losses.push(loss.item()?);
    assert!(are_near(&losses, &expected), "{losses:?} {expected:?}");
    for _ in 0..20 {
        graph.launch()?;
    }
    assert!(loss.item()? < expected[2]);
    Ok(())
}
