//! Arrays over foreign memory. They behave like any other array. After an array is dropped, the
//! next call that checks for memory to release calls the destructor once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use cachescope::ndarray::s;
use cachescope::{
    Array, Buffer, Complex, Device, DeviceConfig, ErrorKind, Policy, Result, cache_scope, concat,
    select,
};

use crate::interop::fails;

const N: usize = 1000;

fn device() -> Device {
    Device::host_with(DeviceConfig::default()).unwrap()
}

/// The number of destructor calls.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU64>);

impl Calls {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns an array over memory of the test. The destructor overwrites the memory.
    fn taken_in(&self, device: &Device, value: i32) -> Result<Array<i32>> {
        let mut values = vec![value; N];
        let address = values.as_mut_ptr().expose_provenance() as u64;
        let calls = self.clone();
        let destructor = move || {
            values.fill(-1);
            calls.0.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the vector is not used until the destructor is called.
        unsafe { Array::from_raw_parts(device, address, N, destructor) }
    }
}

#[test]
fn it_is_an_array_like_any_other() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    let mut array = calls.taken_in(&device, 3)?;
    let address = array.address();
    assert_eq!(array.sum()?.item()?, 3000);
    array.update(|a| a + 1)?;
    assert_eq!(array.address(), address, "nobody shares it");
    let view = array.reshape([10, 100])?;
    array.fill(7)?; // The view's memory does not change.
    assert_eq!((view.to_vec()?, array.to_vec()?), (vec![4; N], vec![7; N]));
    drop(array);
    device.synchronize()?;
    assert_eq!(calls.count(), 0, "a view is left");
    drop(view);
    assert_eq!(calls.count(), 0, "dropping calls nobody");
    device.synchronize()?;
    device.trim(0);
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn it_counts_as_live_and_as_nothing_else() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    device.set_memory_limit(Some(0));
    let array = calls.taken_in(&device, 1)?;
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (1, 4000));
    drop(array);
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0));
    for bytes in [
        stats.reserved_bytes,
        stats.allocated_bytes,
        stats.cached_bytes,
        stats.pending_bytes,
    ] {
        assert_eq!(bytes, 0);
    }
    Ok(())
}

#[test]
fn what_is_refused_stays_the_callers() {
    let device = device();
    let mut values = vec![0i32; 2];
    let address = values.as_mut_ptr().expose_provenance() as u64;
    let calls = Calls::default();
    let refused = |address: u64, shape: Vec<usize>, kind, text: &str| {
        let counted = calls.clone();
        let destructor = move || {
            counted.0.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the call fails, so no array accesses the memory.
        let array = unsafe { Array::<i32>::from_raw_parts(&device, address, shape, destructor) };
        fails(array, kind, &[text]);
    };
    refused(0, vec![1], ErrorKind::InvalidArgument, "null");
    refused(address + 2, vec![1], ErrorKind::InvalidArgument, "aligned");
    refused(u64::MAX - 3, vec![2], ErrorKind::InvalidArgument, "8 bytes");
    refused(
        address,
        vec![usize::MAX],
        ErrorKind::InvalidShape,
        "overflows",
    );
    refused(address, vec![1; 9], ErrorKind::InvalidShape, "9");
    device.synchronize().unwrap();
    assert_eq!(calls.count(), 0);
}

/// A `Complex<f32>` has size 8 but alignment 4, so kernels must not access it as a word of 8 bytes.
#[test]
fn complex_numbers_may_begin_between_words() -> Result<()> {
    let device = device();
    let _device = device.enter();
    let mut memory: Vec<f32> = (0..26).map(|at| at as f32).collect();
    let start = memory.as_mut_ptr().expose_provenance();
    let skipped = if start.is_multiple_of(8) { 1 } else { 0 };
    let numbers = memory[skipped..].as_chunks::<2>().0[..12].iter();
    let numbers: Vec<_> = numbers.map(|&[re, im]| Complex::new(re, im)).collect();
    let own = Array::from_slice(&numbers, [3, 4])?;
    let address = (start + 4 * skipped) as u64;
    assert_eq!(address % 8, 4);
    // SAFETY: the vector has 24 numbers after the address, and is not used until the destructor is
    // called.
    let foreign = unsafe { Array::from_raw_parts(&device, address, [3, 4], || drop(memory)) }?;
    let rows = Array::from_slice(&[2, 0], 2)?;
    let mask = Array::from_slice(&[true, false, true], 3)?;
    let elsewhere = Device::host_with(DeviceConfig::default())?;
    let moved = |x: &Array<Complex<f32>>| -> Result<Vec<Array<Complex<f32>>>> {
        let mut written = Array::zeros([3, 4])?;
        written.scatter(&rows.unsqueeze(1)?, &x.slice(s![..2, ..])?, 0)?;
        Ok(vec![
            x.to_uncached()?,
            x.to_device(&elsewhere)?.to_device(&device)?,
            x.lazy().eval()?,
            x.t()?.lazy().eval()?,
            x.t()?.reshape(12)?,
            x.slice(s![.., ..;2])?.repeat(2, 1)?,
            x.take(&rows, 0)?,
            x.gather(&rows.unsqueeze(1)?, 0)?,
            x.select_by(&mask)?,
            x.pad(&[(1, 0), (0, 1)], Complex::new(1.0, 2.0))?,
            x.tril(0)?,
            concat(&[x, x], 1)?,
            select(&mask.unsqueeze(1)?, x, x * x).eval()?,
            x.cumsum(1)?,
            x.matmul(&x.t()?)?,
            written,
        ])
    };
    for (number, pair) in moved(&foreign)?.iter().zip(moved(&own)?).enumerate() {
        assert_eq!(pair.0, &pair.1, "operation {number}");
    }
    Ok(())
}

#[test]
fn empty_imports_are_released_too() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    for address in [0, 64] {
        let counted = calls.clone();
        let destructor = move || {
            counted.0.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the array has no elements.
        let array = unsafe { Array::<f64>::from_raw_parts(&device, address, [3, 0], destructor)? };
        assert_eq!((array.to_vec()?, array.address()), (vec![], address));
    }
    device.synchronize()?;
    assert_eq!(calls.count(), 2);
    Ok(())
}

#[test]
fn the_next_allocation_below_the_caches_releases_it() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    let kept = Buffer::new(&device, 64)?;
    drop(calls.taken_in(&device, 1)?);
    let another = Buffer::new(&device, 64)?;
    assert_eq!(calls.count(), 1, "though the pool had enough");
    drop((kept, another));
    Ok(())
}

#[test]
fn the_next_import_releases_it() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    for round in 0..10 {
        drop(calls.taken_in(&device, 1)?);
        assert_eq!(calls.count(), round, "else they would pile up");
    }
    Ok(())
}

#[test]
fn scopes_leave_it_alone() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let (device, calls) = (device(), Calls::default());
        for round in 0..4 {
            cache_scope!("foreign", policy = policy, device = &device, {
                let inside = calls.taken_in(&device, 5)?;
                let double = (&inside * 2).eval()?;
                device.invalidate_cache("foreign");
                drop(inside);
                assert_eq!(double.to_vec()?, [10; N]);
            });
            device.synchronize()?;
            assert_eq!(calls.count(), round + 1);
        }
        let stats = device.cache_stats("foreign").unwrap();
        assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
        let escaped = cache_scope!("foreign", device = &device, { calls.taken_in(&device, 6)? });
        device.remove_cache("foreign");
        assert_eq!(escaped.to_vec()?, [6; N]);
    }
    Ok(())
}

#[test]
fn another_thread_may_drop_it() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    let array = calls.taken_in(&device, 5)?;
    let shared = array.clone();
    thread::scope(|scope| {
        scope.spawn(|| drop(array));
        scope.spawn(|| drop(shared));
    });
    assert_eq!(calls.count(), 0);
    device.synchronize()?;
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn the_devices_end_releases_it() -> Result<()> {
    let calls = Calls::default();
    let device = device();
    let (first, second) = (calls.taken_in(&device, 1)?, calls.taken_in(&device, 2)?);
    drop(first);
    drop(device);
    assert_eq!(calls.count(), 1, "the one that nobody had");
    assert_eq!(second.to_vec()?, [2; N]);
    thread::spawn(move || drop(second)).join().unwrap();
    assert_eq!(calls.count(), 2, "it was what kept the device");
    Ok(())
}

#[test]
fn a_panic_of_a_destructor_is_reported_later() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    let mut value = Box::new(1u8);
    let address = (&raw mut *value).expose_provenance() as u64;
    let destructor = move || {
        drop(value);
        panic!("a destructor fails");
    };
    // SAFETY: the box is not used until the destructor is called.
    drop(unsafe { Array::<u8>::from_raw_parts(&device, address, 1, destructor)? });
    // The next import runs the destructor and returns its error.
    fails(calls.taken_in(&device, 1), ErrorKind::Panic, &["panicked"]);
    device.synchronize()?;
    assert_eq!(calls.count(), 0);
    Ok(())
}

#[test]
fn a_destructor_may_use_the_device() -> Result<()> {
    let (device, calls) = (device(), Calls::default());
    let mut values = vec![1i64; N];
    let address = values.as_mut_ptr().expose_provenance() as u64;
    let (inner, counted) = (device.clone(), calls.clone());
    let destructor = move || {
        let _scope = inner.scope("inner").enter();
        let array = Array::from_vec(values, N).unwrap();
        inner.synchronize().unwrap();
        assert_eq!(array.sum().unwrap().item().unwrap(), N as i64);
        counted.0.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: the vector is not used until the destructor is called.
    drop(unsafe { Array::<i64>::from_raw_parts(&device, address, N, destructor)? });
    let _scope = device.scope("inner").enter();
    let _guard = device.enter();
    let zeros = Array::<i64>::zeros(N)?;
    assert_eq!(calls.count(), 1);
    assert_eq!(zeros.to_vec()?, [0; N]);
    Ok(())
}

/// Returns a host device whose streams run their work as late as possible.
fn delaying() -> Device {
    let config = DeviceConfig {
        delay_streams: true,
        ..DeviceConfig::default()
    };
    Device::host_with(config).unwrap()
}

#[test]
fn it_is_kept_while_a_stream_uses_it() -> Result<()> {
    let (device, calls) = (delaying(), Calls::default());
    let stream = device.new_stream()?;
    let array = calls.taken_in(&device, 5)?;
    let here = (&array + 1).eval()?;
    let there = {
        let _guard = stream.enter();
        (&array + 2).eval()?
    };
    drop(array);
    drop(calls.taken_in(&device, 0)?); // An import checks for memory to release, but does not wait.
    assert_eq!(calls.count(), 0, "neither stream has read it");
    assert_eq!(here.to_vec()?, [6; N]);
    let _ = device.memory_stats();
    assert!(calls.count() < 2, "the other stream has not");
    stream.synchronize()?;
    let _ = device.memory_stats();
    assert_eq!(there.to_vec()?, [7; N]);
    device.synchronize()?;
    assert_eq!(calls.count(), 2);
    Ok(())
}

#[test]
fn its_own_stream_is_waited_for() -> Result<()> {
    let (device, calls) = (delaying(), Calls::default());
    let sum = {
        let array = calls.taken_in(&device, 5)?;
        array.sum()?
    };
    let _ = device.memory_stats();
    assert_eq!(calls.count(), 0);
    device.trim(0);
    assert_eq!(calls.count(), 1);
    assert_eq!(sum.item()?, 5000);
    Ok(())
}

#[test]
fn trimming_waits_for_it_where_nothing_else_is_held() -> Result<()> {
    let (device, calls) = (delaying(), Calls::default());
    let mut array = calls.taken_in(&device, 5)?;
    array.fill(6)?;
    drop(array);
    assert_eq!(device.memory_stats().reserved_bytes, 0);
    assert_eq!(calls.count(), 0, "nobody has waited for the stream");
    assert_eq!(device.trim(0), 0);
    assert_eq!(calls.count(), 1);
    Ok(())
}

#[test]
fn a_device_that_ends_waits_for_its_streams_first() -> Result<()> {
    let calls = Calls::default();
    let device = delaying();
    let sum = calls.taken_in(&device, 5)?.sum()?;
    drop(device);
    assert_eq!(sum.item()?, 5000);
    drop(sum);
    assert_eq!(calls.count(), 1);
    Ok(())
}
