//! Tests of the launches of norms, and of the bytes that their kernels read and write.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Device, DeviceConfig, Result};
use half::bf16;

use crate::costs::EmulatorLock;

const ROWS: u64 = 512;
const WIDTH: u64 = 768;
/// The bytes of a row.
const ROW: u64 = WIDTH * 2;
/// The bytes of the mean and the factor of each row.
const MOMENTS: u64 = 8;

/// The kernel reads each row once, and the weight and the bias for each row.
#[test]
fn a_norm_is_one_launch_that_reads_each_row_once() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let x = Array::<bf16>::randn([ROWS as usize, WIDTH as usize])?;
    let [weight, bias] = [0, 1].map(|_| Array::<bf16>::randn(WIDTH as usize));
    let (weight, bias) = (weight?, bias?);
    let epsilon = bf16::from_f32(1e-5);
    let layer_norm = || x.layer_norm(&weight, &bias, epsilon).map(drop);
    let [launches, _, bytes] = lock.costs_of(&device, &layer_norm)?;
    assert_eq!((launches, bytes), (1, ROWS * (4 * ROW + MOMENTS)));
    let rms_norm = || x.rms_norm(&weight, epsilon).map(drop);
    let [launches, _, bytes] = lock.costs_of(&device, &rms_norm)?;
    assert_eq!((launches, bytes), (1, ROWS * (3 * ROW + MOMENTS / 2)));
    Ok(())
}

/// One kernel reads each row and its gradient once. The other kernel adds the sums of each block.
#[test]
fn the_gradients_of_a_norm_are_two_launches() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let of_columns = || Array::<bf16>::randn(WIDTH as usize);
    let x = Array::<bf16>::randn([ROWS as usize, WIDTH as usize])?;
    let operands = (x, of_columns()?, of_columns()?);
    let epsilon = bf16::from_f32(1e-5);
    let [launches, _, bytes] = lock.costs_of(&device, &|| {
        let gradients = value_and_grad(&operands, |(x, weight, bias)| {
            x.layer_norm(weight, bias, epsilon)?.sum()
        });
        gradients.map(drop)
    })?;
    let [without, _, rest] = lock.costs_of(&device, &|| {
        value_and_grad(&operands.0, |x| x.sum()).map(drop)
    })?;
    // The gradient of the sum is copied, because it has gaps. The gradients of weight and bias are
    // rounded to their type.
    assert_eq!(launches, without + 1 + 3 + 2);
    let forward = ROWS * (4 * ROW + MOMENTS);
    // Each of 128 threads of a row reads the mean and the factor.
    let backward = ROWS * (4 * ROW + 128 * MOMENTS);
    // The copy, and the sums of blocks.
    let most = forward + backward + ROWS * (2 * ROW + ROW / 2);
    assert!(bytes - rest <= most, "{} of {most}", bytes - rest);
    Ok(())
}
