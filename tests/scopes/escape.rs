//! Arrays that leave their scope (rule 3), and the memory that Release releases.

use std::thread;

use cachescope::{Array, Buffer, Device, Policy, Result, cache_scope};

use crate::scopes::{MIB, device, stats};

#[test]
fn an_escaped_array_keeps_its_contents_and_is_never_aliased() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let escaped = cache_scope!("loop", { Array::<i32>::from_vec(vec![7; 1000], [1000])? });
    assert_eq!(stats(&device, "loop").escaped_blocks, 1);
    for value in 0..10 {
        cache_scope!("loop", {
            let other = Array::<i32>::full([1000], value)?;
            assert_ne!(other.address(), escaped.address());
        });
        device.invalidate_cache("loop");
    }
    assert_eq!(escaped.to_vec()?, vec![7; 1000]);
    assert_eq!(stats(&device, "loop").escaped_blocks, 1);
    drop(escaped);
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.escaped_blocks, stats.live_blocks, stats.cached_blocks),
        (0, 0, 0)
    );
    Ok(())
}

#[test]
fn an_escaped_array_returns_home_when_it_drops() -> Result<()> {
    let device = device();
    let escaped = cache_scope!("loop", device = &device, { Buffer::new(&device, 3000)? });
    let address = escaped.address();
    drop(escaped);
    assert_eq!(stats(&device, "loop").cached_blocks, 1);
    let again = cache_scope!("loop", device = &device, {
        Buffer::new(&device, 3000)?.address()
    });
    assert_eq!(again, address);
    Ok(())
}

#[test]
fn an_escaped_array_returns_to_the_pool_after_invalidation_or_removal() -> Result<()> {
    let device = device();
    for forget in [Device::invalidate_cache, Device::remove_cache] {
        let escaped = cache_scope!("loop", device = &device, { Buffer::new(&device, 3000)? });
        assert_eq!(forget(&device, "loop").blocks, 0, "it is not idle");
        drop(escaped);
        assert_eq!(device.memory_stats().allocated_bytes, 0);
        assert!(device.trim(0) > 0);
    }
    Ok(())
}

#[test]
fn an_array_outlives_the_thread_whose_scope_made_it() -> Result<()> {
    let device = device();
    let in_thread = device.clone();
    let escaped = thread::spawn(move || -> Result<Array<u8>> {
        let _guard = in_thread.enter();
        cache_scope!("loop", { Array::full([500], 3) })
    })
    .join()
    .unwrap()?;
    assert_eq!(escaped.to_vec()?, vec![3; 500]);
    drop(escaped);
    assert_eq!(stats(&device, "loop").cached_blocks, 1);
    Ok(())
}

#[test]
fn release_frees_everything_idle_at_the_exit() -> Result<()> {
    let device = device();
    let escaped = cache_scope!("loop", policy = Policy::Release, device = &device, {
        drop([Buffer::new(&device, 1000)?, Buffer::new(&device, MIB)?]);
        assert_eq!(stats(&device, "loop").cached_blocks, 2);
        Buffer::new(&device, 1000)?
    });
    assert_eq!(stats(&device, "loop").cached_blocks, 0);
    assert_eq!(device.memory_stats().allocated_bytes, 1024, "what escaped");
    drop(escaped);
    assert_eq!(
        device.memory_stats().allocated_bytes,
        0,
        "and then that too"
    );
    Ok(())
}
