//! Tests of cached cuFFT plans: their number, their users, and failures.

use cachescope::{
    Array, Complex, Device, DeviceConfig, ErrorKind, Policy, Result, cache_scope, fft, graph,
};
use cuda_emulator::Control;

type C64 = Complex<f64>;

/// Doubles the numbers by a transform and its inverse.
fn step(x: &mut Array<C64>) -> Result<()> {
    cache_scope!("transforms", policy = Policy::Plan, {
        let spectrum = fft::fft(x, 0)?;
        let again = fft::ifft(&spectrum, 0)?;
        x.assign(again * C64::from(2.0))
    })
}

#[track_caller]
fn assert_all(x: &Array<C64>, wanted: f64) -> Result<()> {
    let close = |value: &C64| (value - C64::from(wanted)).norm() < 1e-9 * wanted;
    assert!(x.to_vec()?.iter().all(close), "{x:?} instead of {wanted}");
    Ok(())
}

/// Checks that the first element of the transform equals the number of ones.
#[track_caller]
fn assert_counts(ones: &Array<C64>) -> Result<()> {
    let sum = fft::fft(ones, 0)?.slice([0.into()])?;
    assert_all(&sum, ones.len() as f64)
}

/// All checks are in one test, because injected failures affect the whole process.
#[test]
fn plans_of_graphs_are_kept_and_others_make_way() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let mut x = Array::full([20, 3], C64::ONE)?;
    step(&mut x)?;
    step(&mut x)?;
    assert_all(&x, 4.0)?;
    let graph = graph::capture(&device, || step(&mut x))?;
    graph.launch()?;
    assert_all(&x, 8.0)?;

    let control = Control::of_process();
    let destroyed = || (control.as_ref()).map_or(1, |control| control.calls_of("cufftDestroy"));
    for length in 1..100 {
        let row = Array::full(length, C64::ONE)?;
        assert_counts(&row)?;
    }
    let before = destroyed();
    assert!(before > 0, "a hundred plans are kept");
    graph.launch()?;
    assert_all(&x, 16.0)?;
    step(&mut x)?;
    assert_all(&x, 32.0)?;
    assert_eq!(destroyed(), before, "those of the graph are still there");

    let Some(control) = &control else {
        return Ok(());
    };
    // If the tables of a new plan do not fit into memory, all plans except the graph's are
    // destroyed.
    let row = Array::full(1000, C64::ONE)?;
    control.fail_named("cufftMakePlanMany64", 1, 2);
    assert_counts(&row)?;
    assert!(destroyed() > before + 50);
    graph.launch()?;
    assert_all(&x, 64.0)?;
    for call in [
        "cufftCreate",
        "cufftMakePlanMany64",
        "cufftSetWorkArea",
        "cufftExecZ2Z",
    ] {
        let row = Array::full(1001 + call.len(), C64::ONE)?;
        control.fail_named(call, 1, 999);
        let error = fft::fft(&row, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        assert!(error.to_string().contains(call), "{error}");
        assert_counts(&row)?;
    }
    drop((graph, x));
    assert_eq!(control.complaints(), 0);
    Ok(())
}

/// The tables of an evicted plan are freed only after the work that reads them.
#[test]
fn pending_transforms_keep_their_plans() -> Result<()> {
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let lengths = 2..150;
    let rows = lengths.map(|length| Array::full(length, C64::ONE));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    // All plans are created before the first result is read.
    let spectra = rows.iter().map(|row| fft::fft(row, 0));
    let spectra = spectra.collect::<Result<Vec<_>>>()?;
    for spectrum in &spectra {
        assert_all(&spectrum.slice([0.into()])?, spectrum.len() as f64)?;
    }
    Ok(())
}
