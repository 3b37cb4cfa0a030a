//! Rules 1 and 2: the blocks that a scope reuses.

use cachescope::{Array, Buffer, Policy, Result, cache_scope};

use crate::scopes::{MIB, device, stats};

#[test]
fn the_first_use_of_a_size_misses_and_the_second_hits_the_same_address() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    cache_scope!("loop", {
        let first = Array::<f32>::zeros([1, 2, 3])?.address();
        assert_eq!(
            (stats(&device, "loop").hits, stats(&device, "loop").misses),
            (0, 1)
        );
        let second = Array::<i32>::zeros([3, 2, 1])?.address();
        assert_eq!(first, second, "the key is bytes");
        assert_eq!(
            (stats(&device, "loop").hits, stats(&device, "loop").misses),
            (1, 1)
        );
    });
    Ok(())
}

#[test]
fn later_entries_find_what_earlier_ones_left() -> Result<()> {
    let device = device();
    let mut addresses = Vec::new();
    for _ in 0..5 {
        let address = cache_scope!("loop", device = &device, {
            Buffer::new(&device, 5000)?.address()
        });
        addresses.push(address);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1);
    let stats = stats(&device, "loop");
    assert_eq!((stats.entries, stats.hits, stats.misses), (5, 4, 1));
    Ok(())
}

#[test]
fn a_hundred_temporaries_take_one_block() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release] {
        let device = device();
        let _guard = device.enter();
        cache_scope!("loop", policy = policy, {
            for _ in 0..100 {
                Array::<f32>::zeros([MIB])?;
            }
            let stats = stats(&device, "loop");
            assert_eq!((stats.cached_blocks, stats.live_blocks), (1, 0));
            assert_eq!(stats.peak_live_bytes, 4 * MIB as u64);
        });
        assert_eq!(device.memory_stats().peak_live_bytes, 4 * MIB as u64);
    }
    Ok(())
}
