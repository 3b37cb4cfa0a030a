//! Tests of reductions, scans, softmax, sorting and matrix-vector products on CUDA, compared with
//! the host's results.

mod gradients;
mod lines;
mod long_lines;
mod order;
mod reductions;
mod tiles;
mod vectors;

use cachescope::{Array, Device, Element, Result};

/// Returns arrays with these elements on the host and on the CUDA device.
fn both<T: Element>(values: &[T], shape: &[usize]) -> Result<[Array<T>; 2]> {
    let host = Device::host();
    let _guard = host.enter();
    let array = Array::from_slice(values, shape)?;
    let copy = array.to_device(&Device::cuda(0)?)?;
    Ok([array, copy])
}

/// Returns numbers in an irregular order, so that a wrongly ordered result is detected.
fn numbers(count: usize) -> impl Iterator<Item = u64> {
    let next = |state: &u64| Some(state.wrapping_mul(6364136223846793005).wrapping_add(99));
    std::iter::successors(Some(7), next)
        .map(|state| state >> 33)
        .take(count)
}

fn floats(count: usize) -> Vec<f32> {
    numbers(count)
        .map(|number| (number % 2001) as f32 / 1000.0 - 1.0)
        .collect()
}

/// Checks that two arrays have equal elements. All NaN are equal.
#[track_caller]
fn same<T: Element>(what: &str, host: &Array<T>, cuda: &Array<T>) -> Result<()> {
    assert_eq!(host.shape(), cuda.shape(), "{what}");
    let (host, cuda) = (host.to_vec()?, cuda.to_vec()?);
    for (index, (one, other)) in host.iter().zip(&cuda).enumerate() {
        let are_nan = one.to_f64().is_nan() && other.to_f64().is_nan();
        let alike = one == other || are_nan;
        assert!(
            alike,
            "{what}: {one} and {other} at {index} of {}",
            host.len()
        );
    }
    Ok(())
}

/// Checks that elements differ by at most `tolerance`. The difference is relative to the host's
/// element, or to 1 if that is larger.
#[track_caller]
fn near<T: Element>(what: &str, tolerance: f64, host: &Array<T>, cuda: &Array<T>) -> Result<()> {
    assert_eq!(host.shape(), cuda.shape(), "{what}");
    let (host, cuda) = (host.to_vec()?, cuda.to_vec()?);
    for (index, (one, other)) in host.iter().zip(&cuda).enumerate() {
        let (one, other) = (one.to_f64(), other.to_f64());
        let alike = one == other || (one.is_nan() && other.is_nan());
        let near = (one - other).abs() <= tolerance * one.abs().max(1.0);
        assert!(
            alike || near,
            "{what}: {one} and {other} at {index} of {}",
            host.len()
        );
    }
    Ok(())
}
