//! Uses scratch buffers in a loop on the host. The device has its own pool, and a scope surrounds
//! the loop's body. Each entry smooths a signal by a running mean over a table of prefix sums.

use cachescope_memory::{
    Buffer, CacheStats, Device, DeviceConfig, PoolKind, Result, cache_scope, scope,
};

const LENGTH: usize = 4096;
const ENTRIES: usize = 300;
const WIDTH: usize = 8;
const TOLERANCE: f64 = 1e-9;

/// Allocates a buffer for `length` numbers.
fn numbers(device: &Device, length: usize) -> Result<Buffer> {
    Buffer::new(device, length * size_of::<f64>())
}

/// Returns the sum of the running means over `WIDTH` adjacent numbers.
fn smooth(device: &Device, signal: &[f64]) -> Result<f64> {
    let mut sums = numbers(device, signal.len() + 1)?;
    let sums = sums.fill_host(0.0)?;
    for (i, value) in signal.iter().enumerate() {
        sums[i + 1] = sums[i] + value;
    }
    let mut means = numbers(device, signal.len() + 1 - WIDTH)?;
    let means: &mut [f64] = means.fill_host(0.0)?;
    for (i, mean) in means.iter_mut().enumerate() {
        *mean = (sums[i + WIDTH] - sums[i]) / WIDTH as f64;
    }
    Ok(means.iter().sum())
}

/// Returns the result of [`smooth`], computed without buffers.
fn expected(signal: &[f64]) -> f64 {
    let means = signal
        .windows(WIDTH)
        .map(|window| window.iter().sum::<f64>() / WIDTH as f64);
    means.sum()
}

fn check(stats: &CacheStats) {
    assert_eq!(stats.entries, ENTRIES as u64);
    assert_eq!(stats.hits + stats.misses, 2 * stats.entries);
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
    // The two buffers of the first entry serve every later entry.
    assert_eq!(stats.misses, 2);
}

fn main() -> Result<()> {
    let device = Device::host_with(DeviceConfig {
        pool: PoolKind::BestFit,
        memory_limit: Some(16 << 20),
        ..Default::default()
    })?;
    let _current = device.enter();
    for entry in 0..ENTRIES {
        let start = (entry * LENGTH) as f64;
        let signal: Vec<f64> = (0..LENGTH).map(|i| (start + i as f64).sin()).collect();
        let sum = cache_scope!("smooth", { smooth(&device, &signal)? });
        assert!((sum - expected(&signal)).abs() < TOLERANCE);
    }
    println!("{}", scope::report());
    println!("{}", device.memory_report());
    check(&device.cache_stats("smooth").expect("the scope was entered"));

    let released = device.invalidate_cache("smooth");
    println!("invalidated: {} bytes released", released.bytes);
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    Ok(())
}
