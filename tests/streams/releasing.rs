//! Memory is released to the device only after the work on it is done. Calls that release memory
//! wait for this work. A drop does not wait, and leaves the release to later calls.

use cachescope::{Array, Buffer, Device, DeviceConfig, PoolKind, Result, cache_scope};
use under_test::device_with;

use crate::streams::{assert_all, bytes, large, written};

/// Returns a device on which each block is a segment, so that idle blocks can be released.
fn device() -> Device {
    device_of(PoolKind::Binned, None)
}

fn device_of(pool: PoolKind, memory_limit: Option<u64>) -> Device {
    device_with(DeviceConfig {
        pool,
        memory_limit,
        delay_streams: true,
        ..Default::default()
    })
    .unwrap()
}

#[test]
fn trimming_waits_for_the_work_on_what_it_releases() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let (a, b) = (written(1)?, written(2)?);
    let sum = (&a + &b).eval()?; // The stream of `a` and `b` adds.
    let product = {
        let _guard = stream.enter();
        (&b * 3).eval()? // Another stream multiplies.
    };
    drop((a, b));
    let before = device.memory_stats();
    assert_eq!(before.pending_bytes, bytes());
    let released = device.trim(0);
    let after = device.memory_stats();
    assert_eq!(released, 2 * bytes());
    assert_eq!(after.reserved_bytes, before.reserved_bytes - released);
    assert_all(&sum, 3);
    assert_all(&product, 6);
    Ok(())
}

#[test]
fn a_lower_limit_waits_for_the_work_on_what_it_releases() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let a = written(1)?;
    let b = (&a + 1).eval()?;
    drop(a);
    device.set_memory_limit(Some(bytes()));
    assert_eq!(device.memory_stats().reserved_bytes, bytes());
    assert_all(&b, 2);
    Ok(())
}

#[test]
fn invalidating_and_removing_wait_for_the_work_on_what_they_release() -> Result<()> {
    for remove in [false, true] {
        let device = device();
        let _guard = device.enter();
        let stream = device.new_stream()?;
        let (sum, product) = cache_scope!("loop", {
            let (a, b) = (written(1)?, written(2)?);
            let sum = cachescope::uncached!((&a + &b).eval()?);
            let _guard = stream.enter();
            (sum, cachescope::uncached!((&b * 3).eval()?))
        });
        let before = device.memory_stats();
        let given = if remove {
            device.remove_cache("loop")
        } else {
            device.invalidate_cache("loop")
        };
        assert_eq!((given.blocks, given.bytes), (2, 2 * bytes()));
        let after = device.memory_stats();
        assert_eq!(after.reserved_bytes, before.reserved_bytes - given.bytes);
        assert_eq!(after.pending_bytes, 0);
        assert_all(&sum, 3);
        assert_all(&product, 6);
    }
    Ok(())
}

/// If a scope was invalidated while it was entered, its exit releases the blocks. The exit must not
/// wait for pending work. A later call releases blocks with pending work.
#[test]
fn an_exit_after_an_invalidation_does_not_wait() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let b = cache_scope!("loop", {
        let a = written(1)?;
        let b = cachescope::uncached!((&a + 1).eval()?);
        drop(a);
        let other = device.clone();
        std::thread::spawn(move || other.invalidate_cache("loop"))
            .join()
            .unwrap();
        b
    });
    assert_eq!(device.memory_stats().reserved_bytes, 2 * bytes());
    assert_eq!(device.memory_stats().pending_bytes, bytes());
    device.synchronize()?;
    assert_eq!(device.memory_stats().reserved_bytes, bytes());
    assert_all(&b, 2);
    Ok(())
}

#[test]
fn dropping_does_not_wait_where_each_block_is_a_reservation() -> Result<()> {
    let device = device_of(PoolKind::Direct, Some(2 * bytes()));
    let _guard = device.enter();
    let a = written(1)?;
    let b = (&a + 1).eval()?;
    drop(a);
    assert_eq!(device.memory_stats().pending_bytes, bytes(), "not run yet");
    let c = large(5)?; // Rung 4 waits: under the limit, only the memory of `a` remains.
    assert_all(&b, 2);
    assert_all(&c, 5);
    drop((b, c));
    device.synchronize()?;
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    Ok(())
}

#[test]
fn a_request_of_another_size_waits_for_the_work_on_an_idle_segment() -> Result<()> {
    let device = device_of(PoolKind::Binned, Some(3 * bytes()));
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let a = written(1)?;
    let b = (&a + 1).eval()?;
    drop(a);
    let _guard = stream.enter();
    let longer = Buffer::new(&device, 2 * bytes() as usize)?;
    assert_all(&b, 2);
    drop(longer);
    Ok(())
}

#[test]
fn a_device_ends_after_the_work_on_its_memory() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    let guard = stream.enter();
    let a = written(1)?;
    let b = (&a + 1).eval()?;
    drop((guard, stream, device, a));
    assert_all(&b, 2);
    let c = (&b + 1).eval()?;
    drop(b);
    assert_all(&c, 3);
    Ok(())
}

#[test]
fn an_array_of_nothing_that_other_streams_read_outlives_its_device() -> Result<()> {
    let device = device();
    let guard = device.enter();
    let stream = device.new_stream()?;
    let nothing = Array::<i32>::zeros(0)?;
    let one = written(1)?;
    let in_stream = stream.enter();
    assert_eq!((&nothing + 1).eval()?.len(), 0);
    drop((in_stream, stream, guard, device));
    drop(nothing);
    assert_all(&one, 1);
    Ok(())
}
