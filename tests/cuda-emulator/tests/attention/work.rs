//! The memory and the launches of fused attention.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Device, Result, attention};
use half::bf16;

use super::own_device;

/// Returns the peak of a gradient of attention, beyond what was live before.
fn peak(device: &Device, length: usize) -> Result<u64> {
    let joint = Array::<bf16>::randn([2, length, 32])?;
    device.reset_peaks();
    let before = device.memory_stats().live_bytes;
    value_and_grad(&joint, |x| attention(x, x, x, true)?.sum())?;
    Ok(device.memory_stats().peak_live_bytes - before)
}

/// The scores of 512 queries would take 16 times as much memory as the scores of 128 queries.
#[test]
fn memory_grows_by_the_length() -> Result<()> {
    let device = own_device()?;
    let _guard = device.enter();
    peak(&device, 64)?;
    let (short, long) = (peak(&device, 128)?, peak(&device, 512)?);
    assert!(long <= 4 * short + (64 << 10), "{short}, {long}");
    Ok(())
}

/// The gradients of keys and values that eight heads share are summed by the kernel. Gradients of
/// each head would take eight times as much memory.
#[test]
fn shared_keys_have_one_gradient() -> Result<()> {
    let device = own_device()?;
    let _guard = device.enter();
    let q = Array::<bf16>::randn([2, 8, 128, 64])?;
    let k = Array::<bf16>::randn([2, 1, 128, 64])?;
    let operands = (q, k.clone(), k);
    let gradients = || value_and_grad(&operands, |(q, k, v)| attention(q, k, v, true)?.sum());
    gradients()?;
    device.reset_peaks();
    let before = device.memory_stats().live_bytes;
    let (_, (of_q, of_k, of_v)) = gradients()?;
    assert_eq!(of_k.shape(), [2, 1, 128, 64]);
    assert_eq!(of_v.shape(), [2, 1, 128, 64]);
    // The result and the gradient of the queries have one size, and 16 bytes are saved per query.
    let queries = of_q.len() as u64 * 2;
    let keys = of_k.len() as u64 * 2;
    let peak = device.memory_stats().peak_live_bytes - before;
    let most = 2 * queries + 2 * keys + 2 * 8 * 128 * 16 + (16 << 10);
    assert!(peak <= most, "{peak} {most}");
    Ok(())
}
