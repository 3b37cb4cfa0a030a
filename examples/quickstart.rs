//! Computes `sin(rand(n))` a thousand times: first without a scope, then inside a scope.

use cachescope::{Array, Device, Result, cache_scope, cache_stats, invalidate_cache};

const N: usize = 1 << 16;

fn main() -> Result<()> {
    let device = Device::current();
    for _ in 0..1000 {
        Array::<f32>::rand(N)?.sin().eval()?; // two arrays, two requests to the device's pool
    }
    let peak = device.memory_stats().peak_live_bytes;
    println!("without a scope: peak {peak} bytes, every array from the pool");

    device.reset_peaks();
    for _ in 0..1000 {
        cache_scope!("loop", {
            Array::<f32>::rand(N)?.sin().eval()?; // each entry reuses the same two blocks
        });
    }
    let peak = device.memory_stats().peak_live_bytes;
    let stats = cache_stats("loop").expect("the scope was entered");
    let (hits, misses) = (stats.hits, stats.misses);
    println!("in a scope: peak {peak} bytes, {misses} arrays from the pool, {hits} from the cache");

    let released = invalidate_cache("loop");
    println!("invalidated: {} bytes given back", released.bytes);
    Ok(())
}
