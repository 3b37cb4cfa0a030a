//! Arrays that lie in a planned slab which a graph uses: they are ordered with its launches as any other.

use cachescope::{Array, Device, DeviceConfig, Policy, Result, cache_scope, graph};

const LENGTH: usize = 1000;

fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

/// An array of zeros that lies in the slab of a scope which it outlived.
pub(crate) fn escaped() -> Result<Array<i32>> {
    let once = || {
        cache_scope!("planned", policy = Policy::Plan, {
            let before = Array::<i32>::ones(LENGTH)?;
            (&before - 1).eval()
        })
    };
    cachescope::invalidate_cache("planned");
    // Dropped at once: the plan knows of none that escapes.
    let addresses = (0..3).map(|_| {
        cache_scope!("planned", policy = Policy::Plan, {
            let before = Array::<i32>::ones(LENGTH)?;
            let after = (&before - 1).eval()?;
            Ok((before.address(), after.address()))
        })
    });
    let addresses = addresses.collect::<Result<Vec<_>>>()?;
    let escaped = once()?;
    assert_eq!(addresses[1], addresses[2], "planned");
    assert_eq!(addresses[2].1, escaped.address(), "in the slab");
    Ok(escaped)
}

#[test]
fn a_pending_launch_keeps_the_slab_from_others() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut x = escaped()?;
    let graph = {
        let _inside = stream.enter();
        graph::capture(&device, || x.update(|x| x * 2 + 1))?
    };
    graph.launch()?;
    drop((graph, x));
    device.invalidate_all_caches();
    let others = (0..20).map(|value| Array::full(LENGTH, value));
    let others = others.collect::<Result<Vec<_>>>()?;
    for other in &others {
        other.to_vec()?;
    }
    device.synchronize()?;
    for (value, other) in (0..).zip(&others) {
        assert_eq!(other.to_vec()?, [value; LENGTH]);
    }
    Ok(())
}

#[test]
fn a_launch_reads_what_another_stream_wrote() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let mut y = Array::<i32>::zeros(LENGTH)?;
    let graph = {
        let _inside = own.enter();
        graph::capture(&device, || y.assign(&x + 1))?
    };
    for value in 1..5 {
        {
            let _inside = other.enter();
            x.fill(value)?;
        }
        graph.launch()?;
        assert_eq!(y.to_vec()?, [value + 1; LENGTH]);
    }
    Ok(())
}

#[test]
fn a_launch_waits_for_who_reads() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let graph = {
        let _inside = own.enter();
        graph::capture(&device, || x.update(|x| x + 1))?
    };
    for value in 0..4 {
        let seen = {
            let _inside = other.enter();
            (&x * 10).eval()?
        };
        graph.launch()?;
        own.synchronize()?;
        assert_eq!(seen.to_vec()?, [value * 10; LENGTH]);
    }
    assert_eq!(x.to_vec()?, [4; LENGTH]);
    Ok(())
}

#[test]
fn who_writes_waits_for_a_launch() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let graph = {
        let _inside = own.enter();
        graph::capture(&device, || x.update(|x| x + 1))?
    };
    for value in 5..8 {
        graph.launch()?;
        {
            let _inside = other.enter();
            x.fill(value)?;
        }
        other.synchronize()?;
        device.synchronize()?;
        assert_eq!(x.to_vec()?, [value; LENGTH]);
    }
    Ok(())
}

/// Each graph has a hold on the slab of its own, and there is one order.
#[test]
fn graphs_on_two_streams_share_a_slab() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let streams = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let mut graphs = Vec::new();
    for (stream, more) in streams.iter().zip([1, 2]) {
        let _inside = stream.enter();
        graphs.push(graph::capture(&device, || x.update(|x| x * 3 + more))?);
    }
    let mut expected = 0i32;
    for turn in [0, 1, 1, 0, 1, 0, 0] {
        graphs[turn].launch()?;
        expected = expected.wrapping_mul(3).wrapping_add([1, 2][turn]);
    }
    assert_eq!(x.to_vec()?, [expected; LENGTH]);
    Ok(())
}

#[test]
fn an_array_that_outlives_the_graph_is_behind_its_launches() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let graph = {
        let _inside = own.enter();
        graph::capture(&device, || x.update(|x| x + 1))?
    };
    graph.launch()?;
    drop(graph);
    let seen = {
        let _inside = other.enter();
        (&x * 10).eval()?
    };
    assert_eq!(seen.to_vec()?, [10; LENGTH]);
    assert_eq!(x.to_vec()?, [1; LENGTH]);
    drop((x, seen));
    device.synchronize()?;
    device.invalidate_all_caches();
    device.trim(0);
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.reserved_bytes), (0, 0));
    Ok(())
}
