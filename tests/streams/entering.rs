//! Entries of streams, between scopes and out of order. A block serves only requests of its own
//! stream, so the served block identifies the current stream.

use cachescope::{Buffer, Device, Result, Stream, cache_scope};

use crate::streams::device;

/// Returns the address of an allocation. In a scope, successive allocations of one size have equal
/// addresses.
fn address(device: &Device) -> u64 {
    Buffer::new(device, 4096).unwrap().address()
}

#[test]
fn streams_are_equal_by_identity() -> Result<()> {
    let device = device();
    let (first, second) = (device.new_stream()?, device.new_stream()?);
    assert_eq!(first, first.clone());
    assert_ne!(first, second);
    assert_ne!(first, device.default_stream());
    assert_ne!(device.default_stream(), Device::host().default_stream());
    assert_eq!(first.device(), &device);
    fn send_and_sync<T: Send + Sync>(_: &T) {}
    send_and_sync(&first);
    Ok(())
}

#[test]
fn entering_a_stream_makes_its_device_current() -> Result<()> {
    let device = device();
    assert_ne!(Device::current(), device);
    {
        let _guard = device.new_stream()?.enter();
        assert_eq!(Device::current(), device);
    }
    assert_ne!(Device::current(), device);
    Ok(())
}

#[test]
fn a_scope_serves_each_stream_from_its_own_blocks() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    cache_scope!("loop", device = &device, {
        let default = address(&device);
        let other = {
            let _guard = stream.enter();
            address(&device)
        };
        assert_ne!(default, other);
        assert_eq!(address(&device), default);
        let _guard = stream.enter();
        assert_eq!(address(&device), other);
        cache_scope!("inner", {
            assert_ne!(address(&device), other);
        });
        assert_eq!(address(&device), other, "the stream is kept in scopes");
    });
    let stats = device.cache_stats("loop").unwrap();
    assert_eq!((stats.misses, stats.hits), (2, 3));
    Ok(())
}

/// A probe that finds the index of the current stream by the block that is served. Index 0 is the
/// default stream.
struct Probe<'a> {
    device: &'a Device,
    addresses: Vec<u64>,
}

impl<'a> Probe<'a> {
    fn new(device: &'a Device, streams: &[&Stream]) -> Self {
        let mut addresses = vec![address(device)];
        for stream in streams {
            let _guard = stream.enter();
            addresses.push(address(device));
        }
        Self { device, addresses }
    }

    fn current(&self) -> Option<usize> {
        let address = address(self.device);
        self.addresses.iter().position(|other| *other == address)
    }
}

#[test]
fn guards_nest_and_may_leave_out_of_order() -> Result<()> {
    let device = device();
    let (one, two) = (device.new_stream()?, device.new_stream()?);
    let _scope = device.scope("loop").enter();
    let probe = Probe::new(&device, &[&one, &two]);
    assert_eq!(probe.current(), Some(0));
    let outer = one.enter();
    let inner = two.enter();
    assert_eq!(probe.current(), Some(2));
    let default = device.default_stream().enter();
    assert_eq!(probe.current(), Some(0), "entered again inside of another");
    drop(default);
    drop(outer);
    assert_eq!(probe.current(), Some(2), "the inner one is still entered");
    drop(inner);
    assert_eq!(probe.current(), Some(0), "and the outer one left with it");
    let kept = one.enter();
    let _device = device.enter();
    assert_eq!(probe.current(), Some(1), "a device keeps its stream");
    drop(kept);
    Ok(())
}

#[test]
fn a_forgotten_guard_ends_with_its_thread() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    let worker = {
        let (device, stream) = (device.clone(), stream.clone());
        std::thread::spawn(move || {
            std::mem::forget(stream.enter());
            let _scope = device.scope("loop").enter();
            address(&device)
        })
    };
    worker.join().unwrap();
    assert_ne!(Device::current(), device);
    drop(stream);
    let _guard = device.new_stream()?.enter();
    address(&device);
    Ok(())
}

/// The streams are compared by their debug text, because a dropped stream cannot be compared.
#[test]
fn a_stream_is_no_other_one_until_every_thread_has_left_it() -> Result<()> {
    let (first, second) = (device(), device());
    let _scope = first.scope("loop").enter();
    let stream = first.new_stream()?;
    let number = format!("{stream:?}");
    let probe = Probe::new(&first, &[&stream]);
    let guard = stream.enter();
    let above = second.enter();
    drop((guard, stream));
    assert_eq!(probe.current(), Some(1), "what was entered later keeps it");
    let fresh = first.new_stream()?;
    assert_ne!(format!("{fresh:?}"), number);
    {
        let _guard = fresh.enter();
        assert_eq!(probe.current(), None);
    }
    drop(above);
    assert_eq!(probe.current(), Some(0));
    assert_eq!(format!("{:?}", first.new_stream()?), number, "it is free");
    Ok(())
}

#[test]
fn a_forgotten_guard_keeps_its_stream_until_its_thread_ends() -> Result<()> {
    let device = device();
    let stream = device.new_stream()?;
    let number = format!("{stream:?}");
    let worker = device.clone();
    std::thread::spawn(move || {
        std::mem::forget(stream.enter());
        drop(stream);
        let fresh = worker.new_stream().unwrap();
        assert_ne!(format!("{fresh:?}"), number);
        (worker, fresh, number)
    })
    .join()
    .map(|(device, _fresh, number)| {
        assert_eq!(format!("{:?}", device.new_stream().unwrap()), number);
    })
    .unwrap();
    Ok(())
}

#[test]
fn each_device_has_a_current_stream_of_its_own() -> Result<()> {
    let (first, second) = (device(), device());
    let (of_first, of_second) = (first.new_stream()?, second.new_stream()?);
    let _scope = first.scope("loop").enter();
    let probe = Probe::new(&first, &[&of_first]);
    let _first = of_first.enter();
    let _second = of_second.enter();
    assert_eq!(Device::current(), second);
    assert_eq!(probe.current(), Some(1));
    Ok(())
}

#[test]
fn streams_of_the_plain_host_work_too() -> Result<()> {
    let device = Device::host();
    let stream = device.new_stream()?;
    let a = cachescope::Array::full(3, 1)?;
    let b = {
        let _guard = stream.enter();
        (&a + 1).eval()?
    };
    drop(a);
    assert_eq!(b.to_vec()?, [2; 3]);
    stream.synchronize()?;
    device.synchronize()
}
