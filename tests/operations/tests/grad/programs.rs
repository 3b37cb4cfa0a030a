//! Gradients of whole functions, with branches, scopes, streams and memory.

use cachescope::grad::{stop_gradient, value_and_grad, value_and_grad_aux};
use cachescope::testing::peak_of;
use cachescope::{Array, Device, DeviceConfig, Policy, Result, cache_scope, uncached};

use crate::grad::differences::{check, numbers};

#[test]
fn branches_loops_and_scopes() {
    check(&numbers(&[4], 1.0), |x| {
        let mut y = x.clone();
        for iteration in 0..5 {
            y = cache_scope!("grad-programs", policy = Policy::Plan, {
                if iteration % 2 == 0 {
                    (&y * x).eval()?
                } else {
                    uncached!({ (y.sin() + x).eval()? })
                }
            });
        }
        y.sum()
    });
}

#[test]
fn assignments_are_tracked() {
    check(&numbers(&[4], 1.0), |x| {
        let mut y = (x * 2.0).eval()?;
        let before = y.clone();
        y.update(|y| y * x)?;
        y.assign(y.exp() * &before)?;
        y.sum()
    });
}

#[test]
fn what_is_overwritten_has_no_gradient() -> Result<()> {
    let (_, gradient) = value_and_grad(&numbers(&[4], 1.0), |x| {
        let mut y = (x * 2.0).eval()?;
        y.slice_mut(cachescope::ndarray::s![1..])?.assign(0.0)?;
        y.sum()
    })?;
    assert_eq!(gradient.to_vec()?, [2.0, 0.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn what_does_not_depend_on_a_parameter_has_zeros() -> Result<()> {
    let (x, y) = (numbers(&[3], 1.0), numbers(&[2], 1.0));
    let (value, (gx, gy)) = value_and_grad(&(x, y), |(x, _)| (x * 2.0).sum())?;
    assert!(value.item()? > 0.0);
    assert_eq!((gx.to_vec()?, gy.to_vec()?), (vec![2.0; 3], vec![0.0; 2]));
    let (_, gradient) = value_and_grad(&gx, |x| stop_gradient(x).sum())?;
    assert_eq!(gradient.to_vec()?, [0.0; 3]);
    Ok(())
}

#[test]
fn values_leave_without_their_tape() -> Result<()> {
    let x = numbers(&[3], 1.0);
    let (_, inside, _) = value_and_grad_aux(&x, |x| {
        let y = (x * 2.0).eval()?;
        Ok((y.sum()?, y))
    })?;
    let (_, gradient) = value_and_grad(&x, |x| (x * &inside).sum())?;
    assert_eq!(gradient.to_vec()?, inside.to_vec()?);
    let (_, gradient) = value_and_grad(&x, |x| (stop_gradient(x) * 2.0).sum())?;
    assert_eq!(gradient.to_vec()?, [0.0; 3]);
    Ok(())
}

#[test]
fn positions_and_truths_are_constants() -> Result<()> {
    let x = numbers(&[2, 3], 1.0);
    let (_, (best, above), gradient) = value_and_grad_aux(&x, |x| {
        let above = x.gt(0.3).sum()?.item()?;
        Ok((x.sum()?, (x.argmax_axis(1)?, above)))
    })?;
    assert_eq!(best.shape(), [2]);
    assert!(above > 0);
    assert_eq!(gradient.to_vec()?, [1.0; 6]);
    Ok(())
}

#[test]
fn a_backward_pass_keeps_what_it_needs_and_frees_it() -> Result<()> {
    const N: usize = 10_000;
    const ARRAY: u64 = 4 * N as u64;
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let x = Array::<f32>::full([N], 0.5)?;
    // A sum saves nothing, and a long expression is only one step.
    let (_, peak) = peak_of(&device, || value_and_grad(&x, |x| (x + 1.0).sum()))?;
    assert!(peak < 2 * ARRAY, "{peak}");
    let (_, peak) = peak_of(&device, || {
        value_and_grad(&x, |x| (x.sin() * x.exp() + x.tanh() * x).mean())
    })?;
    assert!(peak < 2 * ARRAY, "{peak}");
    // Each of the 20 steps saves one array. The backward pass holds two gradients at a time.
    let (_, peak) = peak_of(&device, || {
        value_and_grad(&x, |x| {
            let mut y = x.clone();
            for _ in 0..20 {
                y = y.tanh().eval()?;
            }
            y.sum()
        })
    })?;
    assert!(peak < 24 * ARRAY, "{peak}");
    assert_eq!(device.memory_stats().live_bytes, ARRAY);
    Ok(())
}
