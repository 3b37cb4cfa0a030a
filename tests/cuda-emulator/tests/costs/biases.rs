//! Tests of the launches of layers with a bias.

use cachescope::grad::nn::Linear;
use cachescope::grad::value_and_grad;
use cachescope::{Array, Device, DeviceConfig, Float, Result};
use half::bf16;

use crate::costs::EmulatorLock;

/// The calls that enqueue work: kernels, copies, products, and products with a bias.
const ENQUEUED: [&str; 4] = [
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cublasGemmStridedBatchedEx",
    "cublasLtMatmul",
];

/// Returns the number of calls that enqueue work, by function, and the bytes that kernels read and
/// write.
fn of(
    lock: &EmulatorLock,
    device: &Device,
    work: impl Fn() -> Result<()>,
) -> Result<([u64; 4], u64)> {
    work()?; // Compiles the kernels, and finds the algorithms.
    let count = || {
        device.synchronize()?;
        let calls = ENQUEUED.map(|name| lock.control.calls_of(name));
        Result::Ok((calls, lock.control.kernel_bytes()))
    };
    let (before, bytes) = count()?;
    work()?;
    let (after, all_bytes) = count()?;
    let calls = [0, 1, 2, 3].map(|at| after[at] - before[at]);
    Ok((calls, all_bytes - bytes))
}

fn steps<T: Float>(device: &Device, lock: &EmulatorLock) -> Result<()> {
    let layer = Linear::<T>::new(32, 64)?;
    let x = Array::<T>::randn([4, 8, 32])?;
    let (calls, bytes) = of(lock, device, || layer.forward(&x).map(drop))?;
    assert_eq!((calls, bytes), ([0, 0, 0, 1], 0), "forward in {}", T::NAME);
    let step = |layer: &Linear<T>| {
        of(lock, device, || {
            value_and_grad(layer, |layer| layer.forward(&x)?.sum()).map(drop)
        })
    };
    let without = Linear::<T> {
        bias: None,
        ..layer.clone()
    };
    let ([launches, copies, gemms, biased], _) = step(&layer)?;
    let ([fewer, others, products, none], _) = step(&without)?;
    // The additional launches sum the gradient of the bias, and round the sum to a half.
    let of_gradient = if T::NAME == "f32" { 1 } else { 2 };
    let expected = (fewer + of_gradient, others, products - 1, none + 1);
    assert_eq!((launches, copies, gemms, biased), expected, "{}", T::NAME);
    assert_eq!((gemms, none), (1, 0), "{}", T::NAME);
    Ok(())
}

#[test]
fn a_training_step_of_a_layer_launches_nothing_for_its_bias_but_the_gradient() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    steps::<bf16>(&device, &lock)?;
    steps::<f32>(&device, &lock)
}

#[test]
fn the_algorithm_of_a_shape_is_searched_once() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let search = "cublasLtMatmulAlgoGetHeuristic";
    let before = lock.control.calls_of(search);
    let layers = [Linear::<f32>::new(32, 64)?, Linear::<f32>::new(32, 64)?];
    for _ in 0..3 {
        for rows in [8, 16] {
            let x = Array::<f32>::zeros([rows, 32])?;
            for layer in &layers {
                layer.forward(&x)?;
            }
        }
    }
    assert_eq!(lock.control.calls_of(search) - before, 2);
    Ok(())
}
