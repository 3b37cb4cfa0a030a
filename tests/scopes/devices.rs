//! Rules 9 and 11: devices, and blocks that outlive their device.

use std::cell::RefCell;
use std::thread;

use cachescope::{
    Array, Buffer, Device, DeviceConfig, ErrorKind, MetaOptions, Policy, Result, cache_scope, scope,
};

use crate::scopes::{device, stats};

#[test]
fn the_same_name_on_two_devices_is_two_caches() -> Result<()> {
    let (one, two) = (device(), device());
    cache_scope!("loop", device = &one, {
        assert_eq!(Device::current(), one);
        cache_scope!("loop", device = &two, {
            assert_eq!(Device::current(), two);
            drop(Buffer::new(&two, 100)?);
            drop(Buffer::new(&one, 100)?); // The enclosing scope of `one` serves this request.
        });
        assert_eq!(Device::current(), one);
    });
    assert_eq!(
        (
            stats(&one, "loop").cached_blocks,
            stats(&two, "loop").cached_blocks
        ),
        (1, 1)
    );
    one.invalidate_cache("loop");
    assert_eq!(
        (
            stats(&one, "loop").cached_blocks,
            stats(&two, "loop").cached_blocks
        ),
        (0, 1)
    );
    Ok(())
}

#[test]
fn an_allocation_on_a_device_without_a_scope_belongs_to_none() -> Result<()> {
    let (one, two) = (device(), device());
    cache_scope!("loop", device = &one, {
        drop(Buffer::new(&two, 100)?);
        let _guard = two.enter();
        drop(Array::<u8>::zeros([100])?);
    });
    assert_eq!(stats(&one, "loop").misses, 0);
    assert_eq!(two.memory_stats().cached_bytes, 0);
    Ok(())
}

#[test]
fn arrays_of_nothing_allocate_nothing() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let before = device.memory_stats();
    let empty = Array::<f64>::zeros([0, 5])?;
    let buffer = Buffer::new(&device, 0)?;
    assert_eq!(device.memory_stats(), before);
    assert_eq!(
        (empty.device(), buffer.device(), buffer.size_bytes()),
        (&device, &device, 0)
    );
    cache_scope!("loop", {
        drop(Array::<u8>::zeros([1])?); // The idle block must not serve empty arrays.
        drop(Array::<u8>::zeros([0])?);
    });
    let stats = stats(&device, "loop");
    assert_eq!((stats.hits, stats.misses, stats.cached_blocks), (0, 1, 1));
    Ok(())
}

#[test]
fn a_size_that_overflows_is_an_invalid_shape() {
    for error in [
        Array::<f64>::zeros([usize::MAX / 4, 2]).unwrap_err(),
        Array::<u8>::zeros([usize::MAX, usize::MAX]).unwrap_err(),
        Buffer::new(&Device::host(), usize::MAX).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidShape, "{error}");
    }
}

#[test]
fn no_policy_serves_a_size_that_overflows_with_an_address() -> Result<()> {
    let device = device();
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        for _ in 0..3 {
            cache_scope!("large", policy = policy, device = &device, {
                let first = Buffer::new(&device, 1000)?;
                for beside in [0, 511, 1023, 1024, 100_000] {
                    let large = Buffer::new(&device, usize::MAX - beside);
                    let error = large.expect_err("nobody has so much");
                    assert_eq!(error.kind(), ErrorKind::InvalidShape, "{policy}: {error}");
                }
                let second = Buffer::new(&device, 1000)?;
                assert!(second.address().abs_diff(first.address()) >= 1000);
            });
        }
    }
    Ok(())
}

#[test]
fn arrays_outlive_every_handle_of_their_device() -> Result<()> {
    let (escaped, plain) = {
        let device = device();
        let _guard = device.enter();
        (
            cache_scope!("loop", { Array::<i16>::full([50], -3)? }),
            Array::<i16>::full([50], 4)?,
        )
    };
    assert_eq!(escaped.to_vec()?, vec![-3; 50]);
    assert_eq!(escaped.device(), plain.device());
    let device = plain.device().clone();
    assert_eq!(device.memory_stats().live_blocks, 2);
    drop((escaped, plain));
    assert_eq!(device.memory_stats().live_blocks, 0);
    Ok(())
}

/// Returns an array that is the only handle on its device. If `cached`, allocates it in a scope.
fn last_of_its_device(len: usize, cached: bool) -> Array<f32> {
    let device = device();
    let _guard = device.enter();
    if cached {
        cache_scope!("loop", { Array::full([len], 2.0).unwrap() })
    } else {
        Array::full([len], 2.0).unwrap()
    }
}

#[test]
fn an_array_that_outlived_its_device_is_computed_with_as_any_other() -> Result<()> {
    for (len, cached) in [(10, true), (10, false), (0, true), (0, false)] {
        let expected = vec![3.0; len];

        let first = last_of_its_device(len, cached);
        let second = (&first + 1.0).eval()?;
        drop(first);
        assert_eq!(second.to_vec()?, expected);
        let third = second.lazy().eval()?;
        drop(second);
        assert_eq!(third.to_vec()?, expected);
        drop(third);

        let first = last_of_its_device(len, cached);
        let mut shared = first.clone();
        shared.update(|x| x + 1.0)?;
        drop(first);
        assert_eq!(shared.to_vec()?, expected);

        let moved = shared
            .to_device(&Device::host())?
            .to_device(shared.device())?;
        drop(shared);
        assert_eq!(moved.to_vec()?, expected);
        cache_scope!("loop", device = moved.device(), {
            assert_eq!(Array::<f32>::full([len], 3.0)?.to_vec()?, expected);
        });
        assert_eq!(moved.to_vec()?, expected);
    }
    Ok(())
}

#[test]
fn threads_compute_with_an_array_that_outlived_its_device() {
    for cached in [true, false] {
        let array = last_of_its_device(1000, cached);
        thread::scope(|threads| {
            for _ in 0..4 {
                let own = array.clone();
                threads.spawn(move || {
                    let mut own = own;
                    for _ in 0..200 {
                        own = (&own + 0.0).eval().unwrap();
                        let _scope = own.device().scope("again").enter();
                        drop(Array::<f32>::full([100], 1.0).unwrap());
                    }
                    assert_eq!(own.to_vec().unwrap(), vec![2.0; 1000]);
                });
            }
            drop(array);
        });
    }
}

#[test]
fn a_scope_entered_in_the_last_moments_of_a_thread_binds_nothing() {
    struct Late(Option<Device>);
    impl Drop for Late {
        fn drop(&mut self) {
            let Some(device) = self.0.take() else { return };
            cache_scope!("late", device = &device, {
                drop(Buffer::new(&device, 100).unwrap());
            });
            let _scope = device.scope("late").enter();
            drop(Buffer::new(&device, 100).unwrap());
            assert!(scope::current().is_none());
        }
    }
    thread_local!(static LATE: RefCell<Late> = const { RefCell::new(Late(None)) });
    let device = device();
    let in_thread = device.clone();
    let ended = thread::spawn(move || {
        // The thread-local is initialised before the library's thread-locals, so it is destroyed
        // after them.
        LATE.with_borrow_mut(|late| late.0 = None);
        cache_scope!("early", device = &in_thread, {
            drop(Buffer::new(&in_thread, 100).unwrap())
        });
        LATE.with_borrow_mut(|late| late.0 = Some(in_thread));
    });
    ended.join().unwrap();
    assert_eq!(device.memory_stats().live_blocks, 0);
    assert!(device.cache_stats("late").is_none(), "nothing was bound");
}

#[test]
fn a_host_buffer_is_filled_and_written_in_place() -> Result<()> {
    #[derive(Clone, Copy)]
    #[repr(align(4096))]
    struct Page;

    let host = Device::host_with(DeviceConfig::default())?;
    let address = cache_scope!("fill", device = &host, {
        let mut buffer = Buffer::new(&host, 1001)?;
        let pairs = buffer.fill_host((7_u16, -1.5_f32))?;
        assert_eq!(pairs.len(), 1001 / 8);
        pairs[124].1 = 2.0;
        assert!(pairs[..124].iter().all(|pair| *pair == (7, -1.5)));
        assert!(buffer.fill_host([0_u64; 200])?.is_empty(), "none fits");
        assert!(buffer.fill_host(())?.is_empty());
        buffer.address()
    });
    let empty = Buffer::new(&host, 0)?.fill_host(1_u8)?.len();
    assert_eq!(empty, 0);

    let mut again = Buffer::new(&host, 8192)?;
    let shared = again.share();
    let refused = |result: Result<usize>| result.unwrap_err().kind() == ErrorKind::Unsupported;
    assert!(refused(again.fill_host(0_u8).map(|own| own.len())));
    drop(shared);
    assert_eq!(again.fill_host(0_u8)?.len(), 8192);
    if !again.address().is_multiple_of(4096) {
        assert!(refused(again.fill_host(Page).map(|own| own.len())));
    }
    let mut nothing = Buffer::new(&Device::meta(MetaOptions::default())?, 512)?;
    assert!(refused(nothing.fill_host(0_u8).map(|own| own.len())));
    assert_ne!(address, 0);
    Ok(())
}
