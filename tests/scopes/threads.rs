//! Rules 8 and 10: threads.

use std::cell::RefCell;
use std::sync::Barrier;
use std::thread;

use cachescope::{Array, Buffer, Device, Result, cache_scope, scope};

use crate::scopes::{MIB, device, stats};

#[test]
fn two_threads_in_one_name_have_their_own_blocks_and_common_statistics() -> Result<()> {
    let device = device();
    let barrier = &Barrier::new(2);
    let addresses: Vec<u64> = thread::scope(|threads| {
        let device = &device;
        let workers: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(move || {
                    cache_scope!("loop", device = device, {
                        let address = Buffer::new(device, 4000).unwrap().address();
                        barrier.wait(); // Both threads are inside of the scope.
                        assert_eq!(Buffer::new(device, 4000).unwrap().address(), address);
                        barrier.wait();
                        address
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_ne!(addresses[0], addresses[1]);
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.entries, stats.misses, stats.hits, stats.cached_blocks),
        (2, 2, 2, 2)
    );
    Ok(())
}

#[test]
fn an_array_dropped_on_another_thread_returns_home() -> Result<()> {
    let device = device();
    cache_scope!("loop", device = &device, {
        let buffer = Buffer::new(&device, 4000)?;
        let address = buffer.address();
        thread::spawn(move || drop(buffer)).join().unwrap();
        assert_eq!(Buffer::new(&device, 4000)?.address(), address);
    });
    assert_eq!(stats(&device, "loop").misses, 1);
    Ok(())
}

#[test]
fn a_thread_that_ends_leaves_nothing_stranded() -> Result<()> {
    let device = device();
    for _ in 0..8 {
        let in_thread = device.clone();
        thread::spawn(move || {
            cache_scope!("loop", device = &in_thread, {
                drop(Buffer::new(&in_thread, MIB).unwrap());
            });
        })
        .join()
        .unwrap();
    }
    let stats = stats(&device, "loop");
    assert_eq!((stats.entries, stats.hits + stats.misses), (8, 8));
    assert_eq!(
        stats.cached_blocks, stats.misses,
        "found again, or idle: {stats:?}"
    );
    assert_eq!(
        device.invalidate_cache("loop").blocks as u64,
        stats.cached_blocks
    );
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn an_array_in_a_thread_local_returns_home_as_its_thread_ends() -> Result<()> {
    thread_local!(static KEPT: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) });
    let device = device();
    let in_thread = device.clone();
    thread::spawn(move || {
        // The thread-local is initialised before the library's thread-locals, so it is destroyed
        // after them.
        KEPT.with_borrow_mut(Vec::clear);
        std::mem::forget(in_thread.scope("loop").enter());
        KEPT.with_borrow_mut(|kept| kept.push(Buffer::new(&in_thread, 4000).unwrap()));
    })
    .join()
    .unwrap();
    let stats = stats(&device, "loop");
    assert_eq!(
        (stats.live_blocks, stats.cached_blocks, stats.escaped_blocks),
        (0, 1, 0)
    );
    Ok(())
}

#[test]
fn a_scope_does_not_pass_to_threads_but_its_handle_does() {
    let device = device();
    cache_scope!("loop", device = &device, {
        let handle = scope::current().unwrap();
        assert_eq!((handle.name(), handle.device()), ("loop", &device));
        thread::spawn(move || {
            assert!(scope::current().is_none());
            let _guard = handle.enter();
            assert_eq!(Device::current(), *handle.device());
            drop(Array::<u8>::zeros([100]).unwrap());
        })
        .join()
        .unwrap();
    });
    assert_eq!(stats(&device, "loop").misses, 1);
}

#[test]
fn guards_dropped_out_of_order_unbind_when_they_reach_the_top() -> Result<()> {
    let device = device();
    let name = || scope::current().map(|handle| handle.name().to_owned());
    let outer = device.scope("outer").enter();
    let inner = device.scope("inner").enter();
    drop(outer);
    assert_eq!(name().as_deref(), Some("inner"));
    drop(Buffer::new(&device, 100)?);
    drop(inner);
    assert_eq!(name(), None);
    assert_eq!(stats(&device, "inner").cached_blocks, 1);
    Ok(())
}
