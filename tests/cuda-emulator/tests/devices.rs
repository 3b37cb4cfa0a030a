//! Tests of the default CUDA device, on the emulator or on a real device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cachescope::{Array, Device, Result, cache_scope};
use cuda_emulator::Control;

/// Returns a lock that serialises the tests, because calls are counted per process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn arrays_are_copied_there_and_back() -> Result<()> {
    let _alone = alone();
    let device = Device::current();
    assert_eq!(device.to_string(), "cuda:0");
    let array = Array::from_vec((0..1000).collect::<Vec<i32>>(), 1000)?;
    assert_eq!(array.to_vec()?, (0..1000).collect::<Vec<i32>>());
    let full = Array::full([3, 5], 2.5f64)?;
    assert_eq!(full.to_vec()?, [2.5; 15]);
    Ok(())
}

#[test]
fn expressions_are_computed_there() -> Result<()> {
    let _alone = alone();
    let x = Array::from_vec((0..1000).map(|i| i as f32).collect(), 1000)?;
    let y = (&x * 2.0 + 1.0).sqrt().eval()?;
    let expected: Vec<f32> = (0..1000).map(|i| (i as f32 * 2.0 + 1.0).sqrt()).collect();
    assert_eq!(y.to_vec()?, expected);
    Ok(())
}

#[test]
fn a_hit_makes_no_call() -> Result<()> {
    let _alone = alone();
    let Some(control) = Control::of_process() else {
        return Ok(());
    };
    let device = Device::cuda_with(0, Default::default())?;
    let _guard = device.enter();
    for iteration in 0..3 {
        cache_scope!("hit", {
            drop(cachescope::Buffer::new(&device, 1000)?);
            let before = control.calls();
            let again = cachescope::Buffer::new(&device, 1000)?;
            assert_eq!(control.calls(), before, "iteration {iteration}");
            drop(again);
            assert_eq!(control.calls(), before, "iteration {iteration}");
        });
    }
    Ok(())
}
