//! Tests of failing driver calls.

use cachescope::{
    Array, Complex, Device, DeviceConfig, Error, ErrorKind, PoolKind, Result, cache_scope, fft,
};

use crate::device::{EmulatorLock, POOLS, device, numbers};

/// Uses all functions of a device except kernels.
fn program(pool: PoolKind) -> Result<()> {
    let config = DeviceConfig {
        pool,
        ..DeviceConfig::default()
    };
    let device = Device::cuda_with(2, config)?;
    let _guard = device.enter();
    let sent = numbers(1, 300_000);
    let long = Array::from_slice(&sent, 300_000)?;
    assert_eq!(long.to_vec()?, sent);
    let stream = device.new_stream()?;
    {
        let _guard = stream.enter();
        let value = Array::full(5000, 1.5f64)?;
        assert_eq!(value.to_vec()?, [1.5; 5000]);
        assert_eq!(long.to_vec()?, sent);
        cache_scope!("loop", {
            for _ in 0..3 {
                drop(Array::from_slice(&sent[..1000], 1000)?);
            }
        });
        stream.synchronize()?;
    }
    drop(long);
    let other = Array::<u8>::zeros(3 << 20)?;
    device.trim(0);
    drop(other);
    device.trim(0);
    device.synchronize()
}

/// Returns the number of leaked objects. Each failed release leaks one object.
pub(super) fn leaks(report: cuda_emulator::Report, before: cuda_emulator::Report) -> u64 {
    let counts = |report: cuda_emulator::Report| {
        [
            report.allocations,
            report.host_allocations,
            report.pool_allocations,
            report.reservations,
            report.mappings,
            report.physical,
            report.streams,
            report.events,
            report.pools,
            report.descriptors,
        ]
    };
    let pairs = counts(report).into_iter().zip(counts(before));
    pairs.map(|(now, before)| now.saturating_sub(before)).sum()
}

/// Returns a device on which memory may leak. Other tests do not use it, because they need all
/// memory of their device.
fn leaking_device() -> Device {
    let config = DeviceConfig {
        pool: PoolKind::StreamOrdered,
        ..DeviceConfig::default()
    };
    Device::cuda_with(2, config).unwrap()
}

#[test]
fn each_failed_call_is_an_error_or_is_recovered() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        program(pool).unwrap();
        let before = lock.control.calls();
        program(pool).unwrap();
        let calls = lock.control.calls() - before;
        let (mut errors, mut kept) = (0, 0);
        for call in 1..=calls {
            // The driver's code 2 means that the device is out of memory.
            let codes: &[i32] = match pool {
                PoolKind::BestFit => &[999, 2],
                _ => &[999],
            };
            for &code in codes {
                let alive = lock.control.report();
                lock.control.fail_call(call, code);
                let outcome = program(pool);
                lock.control.fail_call(0, 0);
                if let Err(error) = outcome {
                    errors += 1;
                    assert_honest(&error);
                }
                let after = lock.control.report();
                // After a failed free, its memory stays in the pool. The driver reports such memory
                // when the pool is destroyed.
                lock.forgive_pools(after.pool_allocations - alive.pool_allocations);
                let left = leaks(after, alive);
                kept += left;
                assert!(
                    left <= 1,
                    "call {call} of {pool} failed with {code}: {left} are left"
                );
            }
        }
        println!("{pool}: {calls} calls, {errors} errors, {kept} things kept");
        assert!(errors > calls / 4, "{errors} errors of {calls} calls");
        program(pool).unwrap();
        lock.assert_no_misuse();
    }
}

#[track_caller]
fn assert_honest(error: &Error) {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Driver => assert!(
            text.contains("cuda:2: ") || text.contains("CUDA dr") || text.contains("CUDA dev"),
            "{text}"
        ),
        ErrorKind::OutOfMemory => {}
        _ => panic!("{error:?}"),
    }
}

/// Drops an array, and makes its free fail. The next call that checks for errors returns the error.
fn fail_to_free(lock: &EmulatorLock, array: Array<u8>) {
    let device = array.device().clone();
    lock.control.fail_named("cuMemFreeAsync", 1, 1);
    drop(array);
    assert_eq!(
        lock.calls_of("cuMemFreeAsync", || _ = device.memory_stats()),
        1
    );
}

#[test]
fn a_failed_release_is_returned_by_the_next_call_and_others_are_counted() {
    let lock = EmulatorLock::take();
    {
        let device = leaking_device();
        let _guard = device.enter();
        let arrays = [1, 2, 3].map(|_| Array::<u8>::zeros(1 << 20).unwrap());
        for array in arrays {
            fail_to_free(&lock, array);
        }
        let error = Array::<u8>::zeros(1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Driver);
        let text = error.to_string();
        assert!(
            text.contains(
                "cuda:2: releasing memory to a pool: cuMemFreeAsync failed with CUDA_ERROR_INVALID_VALUE"
            ),
            "{text}"
        );
        assert!(text.contains("and 2 more errors"), "{text}");
        Array::<u8>::zeros(1000).unwrap();
        device.synchronize().unwrap();
    }
    lock.forgive_pools(1);
}

#[test]
fn transfers_return_deferred_errors() {
    let lock = EmulatorLock::take();
    {
        let device = leaking_device();
        let _guard = device.enter();
        let kept = Array::<u8>::zeros(1000).unwrap();
        for tell in [
            || Array::from_slice(&[1u8; 1000], 1000).map(drop),
            || Device::current().synchronize(),
        ] {
            let array = Array::<u8>::zeros(1 << 20).unwrap();
            fail_to_free(&lock, array);
            let error = kept.to_vec().unwrap_err();
            assert!(error.to_string().contains("cuMemFreeAsync"), "{error}");
            assert_eq!(kept.to_vec().unwrap(), [0; 1000]);
            let array = Array::<u8>::zeros(1 << 20).unwrap();
            fail_to_free(&lock, array);
            assert!(tell().unwrap_err().to_string().contains("cuMemFreeAsync"));
            tell().unwrap();
        }
    }
    lock.forgive_pools(1);
}

/// The driver runs out of memory after it has mapped some of the requested pages.
#[test]
fn pages_of_a_failed_commit_are_released() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let first = Array::<u8>::zeros(1 << 20).unwrap();
        let before = lock.control.report();
        lock.control.fail_named("cuMemCreate", 4, 2);
        // The second array is in a separate segment, which needs no pages.
        let second = Array::<u8>::full(12 << 20, 3).unwrap();
        assert_eq!(lock.control.report().mappings, before.mappings);
        assert!(second.to_vec().unwrap().iter().all(|&byte| byte == 3));
        for call in ["cuMemMap", "cuMemSetAccess", "cuMemCreate"] {
            lock.control.fail_named(call, 1, 999);
            let error = Array::<u8>::zeros(12 << 20).unwrap_err();
            assert!(error.to_string().contains(call), "{error}");
            assert_eq!(lock.control.report().mappings, before.mappings, "{call}");
            assert_eq!(lock.control.report().physical, before.physical, "{call}");
        }
        drop((first, second));
    }
    lock.end();
}

/// If the driver does not unmap a page, the page stays mapped, and is reused.
#[test]
fn a_page_that_stays_is_used_again() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        drop(Array::<u8>::zeros(8 << 20).unwrap());
        device.synchronize().unwrap();
        lock.control.fail_named("cuMemUnmap", 2, 999);
        device.trim(0);
        assert_eq!(lock.control.report().mappings, lock.before.mappings + 1);
        assert!(device.synchronize().is_err());
        let array = Array::<u8>::full(8 << 20, 6).unwrap();
        assert_eq!(lock.control.report().mappings, lock.before.mappings + 4);
        assert!(array.to_vec().unwrap().iter().all(|&byte| byte == 6));
    }
    lock.end();
}

#[test]
fn a_plan_whose_tables_fail_is_destroyed() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let row = Array::full(64, Complex::<f32>::ONE)?;
        device.synchronize()?;
        lock.control.fail_named("cuStreamSynchronize", 1, 999);
        let destroyed = lock.calls_of("cufftDestroy", || {
            let error = fft::fft(&row, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        });
        assert_eq!(destroyed, 1);
        let sum = fft::fft(&row, 0)?.slice([0.into()])?.to_vec()?;
        assert_eq!(sum, [Complex::from(64.0)]);
    }
    lock.end();
    Ok(())
}
