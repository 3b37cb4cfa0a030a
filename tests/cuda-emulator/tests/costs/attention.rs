//! Tests of the launches of fused attention, and of the bytes that its kernels read and write.

use cachescope::grad::value_and_grad;
use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, Result, attention};
use half::bf16;

use crate::costs::EmulatorLock;

const HEADS: u64 = 2;
const LENGTH: u64 = 256;
const WIDTH: u64 = 64;
/// The number of queries of a tile, and of keys of a tile.
const TILE: u64 = 64;
/// The bytes of an operand of one head.
const MATRIX: u64 = LENGTH * WIDTH * 2;

/// A block reads its queries once, and all keys and values once.
#[test]
fn attention_reads_keys_and_values_once_per_tile_of_queries() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let [q, k, v] = [0; 3].map(|_| Array::<bf16>::randn([2, 256, 64]));
    let (q, k, v) = (q?, k?, v?);
    let [launches, products, bytes] =
        lock.costs_of(&device, &|| attention(&q, &k, &v, false).map(drop))?;
    assert_eq!((launches, products), (1, 0));
    // A query's softmax has 8 bytes.
    let expected = HEADS * (MATRIX * (1 + 2 * LENGTH / TILE) + MATRIX + LENGTH * 8);
    assert_eq!(bytes, expected);
    // A causal attention reads half of the tiles, and those on the diagonal.
    let [_, _, bytes] = lock.costs_of(&device, &|| attention(&q, &k, &v, true).map(drop))?;
    let tiles = LENGTH / TILE * (LENGTH / TILE + 1) / 2;
    let expected = HEADS * (MATRIX * 2 + 2 * tiles * TILE * WIDTH * 2 + LENGTH * 8);
    assert_eq!(bytes, expected);
    Ok(())
}

/// A gradient adds two launches to the launches of the loss, and no conversion.
#[test]
fn a_gradient_of_attention_has_two_more_launches() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let of_operand = || Array::<bf16>::randn([2, 256, 64]);
    let operands = (of_operand()?, of_operand()?, of_operand()?);
    let [launches, products, bytes] = lock.costs_of(&device, &|| {
        let gradients = value_and_grad(&operands, |(q, k, v)| attention(q, k, v, false)?.sum());
        gradients.map(drop)
    })?;
    let [without, _, rest] = lock.costs_of(&device, &|| {
        let loss = value_and_grad(&operands.0, |q| q.sum());
        loss.map(drop)
    })?;
    assert_eq!((launches, products), (without + 3, 0));
    let forward = MATRIX * (1 + 2 * LENGTH / TILE) + MATRIX + LENGTH * 8;
    // The first pass of the gradient of the queries is left out, because no weight is nearly 1.
    // Four threads read the softmax of a query.
    let of_queries = MATRIX * (4 + 2 * LENGTH / TILE) + MATRIX + LENGTH * (4 * 8 + 8);
    let of_keys = MATRIX * (2 + 2 * LENGTH / TILE) + 2 * MATRIX + LENGTH / TILE * LENGTH * 16;
    assert_eq!(bytes - rest, HEADS * (forward + of_queries + of_keys));
    Ok(())
}

/// The gradients of three parts of one array are written to one array, without a launch that joins
/// them.
#[test]
fn gradients_of_parts_are_written_to_one_array() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let joint = Array::<bf16>::randn([2, 40, 3, 2, 64])?;
    let of_parts = |joint: &Array<bf16>| {
        let part = |at: usize| joint.slice(s![.., .., at, .., ..])?.swap_axes(1, 2);
        attention(&part(0)?, &part(1)?, &part(2)?, true)?.sum()
    };
    let [launches, _, _] =
        lock.costs_of(&device, &|| value_and_grad(&joint, of_parts).map(drop))?;
    // The result, its sum, the gradient of the sum, and the two kernels of the gradient.
    assert_eq!(launches, 5);
    let (_, gradient) = value_and_grad(&joint, of_parts)?;
    let host = Device::host();
    let wide = joint.to_device(&host)?.cast::<f64>().eval()?;
    let (_, expected) = value_and_grad(&wide, |joint| {
        let part = |at: usize| joint.slice(s![.., .., at, .., ..])?.swap_axes(1, 2);
        attention(&part(0)?, &part(1)?, &part(2)?, true)?.sum()
    })?;
    let expected = expected.to_vec()?;
    let largest = expected
        .iter()
        .fold(0.0, |most: f64, own| most.max(own.abs()));
    for (own, expected) in gradient.to_vec()?.iter().zip(&expected) {
        assert!(
            (own.to_f64() - expected).abs() < 0.02 * largest,
            "{own}, {expected}"
        );
    }
    Ok(())
}
