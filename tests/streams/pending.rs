//! Blocks that are freed while a stream still uses them, and blocks that change streams.

use cachescope::{Array, Policy, Result, cache_scope};

use crate::streams::{MIB, assert_all, bytes, device, large, length, room_for, written};

#[test]
fn a_stream_that_takes_anothers_block_is_ordered_after_it() -> Result<()> {
    let device = room_for(2);
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = written(1)?;
    let address = x.address();
    let y = (&x + 1).eval()?;
    drop(x);
    let reserves = device.memory_stats().reserves;
    let _guard = stream.enter();
    let z = large(7)?;
    let stats = device.memory_stats();
    assert_eq!((z.address(), stats.reserves), (address, reserves));
    assert_eq!(stats.retries, 0, "nobody waited but the stream");
    assert_all(&z, 7); // If `y` were not ordered first, `z` would run first.
    assert_all(&y, 2);
    assert_eq!(device.memory_stats().pending_bytes, 0);
    Ok(())
}

#[test]
fn a_block_is_pending_while_another_stream_uses_it() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = written(1)?;
    let y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    let before = device.memory_stats();
    assert_eq!(before.pending_bytes, 0);
    drop(x);
    let after = device.memory_stats();
    assert_eq!((after.pending_bytes, after.live_bytes), (bytes(), bytes()));
    assert_eq!(after.allocated_bytes, before.allocated_bytes - bytes());
    let z = large(9)?;
    assert_all(&z, 9); // If `z` had the address of `x`, `z` would overwrite `x`.
    assert_eq!(
        device.memory_stats().pending_bytes,
        bytes(),
        "only `z` was waited for"
    );
    device.synchronize()?;
    assert_eq!(device.memory_stats().pending_bytes, 0);
    assert_all(&y, 2);
    Ok(())
}

#[test]
fn a_block_written_elsewhere_is_pending_as_well() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut x = written(1)?;
    {
        let _guard = stream.enter();
        x.fill(5)?;
    }
    drop(x);
    assert_eq!(device.memory_stats().pending_bytes, bytes());
    let z = large(9)?;
    stream.synchronize()?;
    assert_all(&z, 9);
    assert_eq!(device.memory_stats().pending_bytes, 0);
    Ok(())
}

#[test]
fn a_block_that_its_own_stream_wrote_last_is_not_pending() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut x = written(1)?;
    let y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    x.fill(3)?; // This fill, and later work on its stream, is ordered after `y`.
    drop(x);
    assert_eq!(device.memory_stats().pending_bytes, 0);
    let z = large(9)?;
    assert_all(&z, 9);
    assert_all(&y, 2);
    Ok(())
}

#[test]
fn what_is_done_is_taken_before_anything_is_reserved() -> Result<()> {
    let device = room_for(2);
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = written(1)?;
    let address = x.address();
    let y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    drop(x);
    let reserves = device.memory_stats().reserves;
    stream.synchronize()?;
    let z = large(9)?; // Rung 1 detects that the block is no longer pending.
    assert_eq!(z.address(), address);
    let stats = device.memory_stats();
    assert_eq!((stats.reserves, stats.retries), (reserves, 0));
    assert_all(&y, 2);
    Ok(())
}

#[test]
fn a_request_waits_where_all_memory_is_pending() -> Result<()> {
    let device = room_for(2);
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = written(1)?;
    let y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    drop(x);
    let z = large(9)?; // Rung 4 waits for the pending block.
    assert_eq!(device.memory_stats().retries, 1);
    assert_all(&z, 9);
    assert_all(&y, 2);
    assert!(large(0).unwrap_err().is_out_of_memory());
    Ok(())
}

/// The cache of a scope holds the pending block.
#[test]
fn rung_3_brings_what_is_pending_in_a_scope() -> Result<()> {
    let device = room_for(2);
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let y = cache_scope!("loop", {
        let x = written(1)?;
        let _guard = stream.enter();
        (&x + 1).eval()?
    });
    let stats = device.cache_stats("loop").unwrap();
    assert_eq!((stats.pending_blocks, stats.pending_bytes), (1, bytes()));
    assert_eq!((stats.cached_blocks, stats.cached_bytes), (0, 0));
    assert_eq!(device.memory_stats().pending_bytes, bytes());
    let z = large(9)?;
    assert_all(&z, 9);
    assert_all(&y, 2);
    assert_eq!(device.memory_stats().pending_bytes, 0);
    Ok(())
}

#[test]
fn a_scope_takes_a_pending_block_back_when_it_is_done() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut addresses = Vec::new();
    for round in 0..4 {
        cache_scope!("loop", {
            let x = written(round)?;
            addresses.push(x.address());
            let y = {
                let _guard = stream.enter();
                (&x + 1).eval()?
            };
            drop(x);
            assert_eq!(device.cache_stats("loop").unwrap().pending_blocks, 1);
            assert_all(&y, round + 1);
        });
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "it is done by the next entry");
    let stats = device.cache_stats("loop").unwrap();
    assert_eq!((stats.misses, stats.hits), (2, 6));
    Ok(())
}

#[test]
fn a_block_that_another_thread_drops_is_pending_too() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    for name in [None, Some("loop")] {
        let scope = name.map(|name| device.scope(name).enter());
        let x = written(1)?;
        let y = {
            let _guard = stream.enter();
            (&x + 1).eval()?
        };
        std::thread::spawn(move || drop(x)).join().unwrap();
        assert_eq!(device.memory_stats().pending_bytes, bytes(), "{name:?}");
        let z = large(9)?;
        assert_all(&z, 9);
        assert_all(&y, 2);
        drop((y, z, scope));
        device.synchronize()?;
        assert_eq!(device.memory_stats().pending_bytes, 0);
    }
    Ok(())
}

#[test]
fn an_orphan_of_a_removed_cache_is_pending_too() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = cache_scope!("gone", { written(1)? });
    device.remove_cache("gone");
    let y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    drop(x);
    assert_eq!(device.memory_stats().pending_bytes, bytes());
    let z = large(9)?;
    assert_all(&z, 9);
    assert_all(&y, 2);
    Ok(())
}

/// An entry does not reuse the suballocations of an arena. The next entry reuses the arena.
#[test]
fn a_chunk_waits_for_every_stream_that_used_a_part() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut results = Vec::new();
    for round in 0..4 {
        cache_scope!("bump", policy = Policy::Bump, {
            let x = Array::full(100, round)?;
            cache_scope!("bump", {
                let short = Array::full(100, 10 * round)?;
                let _guard = stream.enter();
                results.push(cachescope::uncached!((&x + &short).eval()?));
            });
            assert_eq!(Array::full(100, -1)?.to_vec()?, [-1; 100]);
        });
        let written = cache_scope!("bump", policy = Policy::Bump, {
            Array::full(300, -1)?.to_vec()?
        });
        assert_eq!(written, [-1; 300]);
    }
    for (round, result) in (0..).zip(&results) {
        assert_eq!(result.to_vec()?, [11 * round; 100]);
    }
    Ok(())
}

#[test]
fn fragmentation_does_not_count_what_is_pending() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = written(1)?;
    let _y = {
        let _guard = stream.enter();
        (&x + 1).eval()?
    };
    let before = device.memory_stats().fragmentation();
    drop(x);
    assert_eq!(device.memory_stats().fragmentation(), before);
    assert!(length() as u64 * 4 >= MIB);
    Ok(())
}
