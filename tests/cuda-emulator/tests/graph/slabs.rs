//! Tests of arrays in a planned slab that a graph uses. Like other arrays, they must be ordered
//! with the graph's launches.

use cachescope::graph::{Graph, capture};
use cachescope::{Array, Device, DeviceConfig, Policy, Result, Stream, cache_scope};

const LENGTH: usize = 1000;

fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

/// Returns an array of zeros in a scope's slab. The array outlives the scope.
fn escaped() -> Result<Array<i32>> {
    let mut last = None;
    let addresses = (0..4).map(|iteration| {
        cache_scope!("planned", policy = Policy::Plan, {
            let before = Array::<i32>::ones(LENGTH)?;
            let after = (&before - 1).eval()?;
            let addresses = (before.address(), after.address());
            // All iterations except the last drop the array immediately. So the plan has no
            // escaping array.
            last = Some(after).filter(|_| iteration == 3);
            Ok(addresses)
        })
    });
    let addresses = addresses.collect::<Result<Vec<_>>>()?;
    assert_eq!(addresses[1..], [addresses[3]; 3], "planned");
    Ok(last.unwrap())
}

/// A graph on its own stream that computes `x = 3 y + 1`.
pub(crate) struct Lent {
    pub(crate) graph: Graph,
    /// The array that the capture created in the graph's slab.
    pub(crate) x: Array<i32>,
    pub(crate) y: Array<i32>,
    pub(crate) own: Stream,
}

impl Lent {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let own = device.new_stream()?;
        let y = Array::<i32>::zeros(LENGTH)?;
        let mut x = None;
        let make = || {
            cache_scope!("lent", policy = Policy::Plan, {
                let tripled = (&y * 3).eval()?;
                (&tripled + 1).eval()
            })
        };
        let inside = own.enter();
        // The array is dropped inside of the scope, so the plan has no escaping array.
        let mut planned = 0;
        for _ in 0..3 {
            let _scope = device.scope("lent").enter();
            planned = make()?.address();
        }
        let graph = capture(device, || {
            let _scope = device.scope("lent").enter();
            make().map(|made| x = Some(made))
        })?;
        drop(inside);
        let x = x.unwrap();
        assert_eq!(x.address(), planned, "in the slab");
        Ok(Self { graph, x, y, own })
    }

    /// Sets `y` on the stream of the graph.
    pub(crate) fn set(&mut self, value: i32) -> Result<()> {
        let _inside = self.own.enter();
        self.y.fill(value)
    }
}

#[test]
fn a_pending_launch_keeps_its_slab_from_others() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let Lent { graph, x, y, .. } = Lent::new(&device)?;
    graph.launch()?;
    drop((graph, x, y));
    device.invalidate_all_caches();
    let others = (0..20).map(|value| Array::full(LENGTH, value));
    let others = others.collect::<Result<Vec<_>>>()?;
    others
        .iter()
        .try_for_each(|other| other.to_vec().map(drop))?;
    device.synchronize()?;
    for (value, other) in (0..).zip(&others) {
        assert_eq!(other.to_vec()?, [value; LENGTH]);
    }
    Ok(())
}

/// The last launch is on another stream than the slab's stream. Only the slab records this launch.
#[test]
fn a_launch_on_another_stream_keeps_the_slab_from_others() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let Lent {
        graph,
        mut x,
        y,
        own,
    } = Lent::new(&device)?;
    let other = device.new_stream()?;
    let second = {
        let (_inside, _scope) = (other.enter(), device.scope("lent").enter());
        capture(&device, || x.update(|x| x * 3 + 2))?
    };
    {
        let _inside = own.enter();
        x.fill(5)?;
    }
    second.launch()?;
    drop((graph, second, x, y));
    let _inside = own.enter();
    device.invalidate_all_caches();
    let others = (0..20).map(|value| Array::full(LENGTH, value));
    let others = others.collect::<Result<Vec<_>>>()?;
    others
        .iter()
        .try_for_each(|other| other.to_vec().map(drop))?;
    device.synchronize()?;
    for (value, other) in (0..).zip(&others) {
        assert_eq!(other.to_vec()?, [value; LENGTH]);
    }
    Ok(())
}

/// A launch is ordered after earlier reads and writes.
#[test]
fn a_use_of_a_suballocation_is_ordered_after_a_launch() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let other = device.new_stream()?;
    let mut lent = Lent::new(&device)?;
    for value in 1..4 {
        lent.set(value)?;
        lent.graph.launch()?;
        let seen = {
            let _inside = other.enter();
            (&lent.x * 10).eval()?
        };
        lent.set(-1)?;
        lent.graph.launch()?;
        lent.own.synchronize()?;
        assert_eq!(seen.to_vec()?, [30 * value + 10; LENGTH]);
        {
            let _inside = other.enter();
            lent.x.fill(value)?;
        }
        other.synchronize()?;
        device.synchronize()?;
        assert_eq!(
            lent.x.to_vec()?,
            [value; LENGTH],
            "written after the launch"
        );
        {
            let _inside = other.enter();
            lent.x.fill(value)?;
        }
        lent.set(value)?;
        lent.graph.launch()?;
        // The array is read on the stream of the last write. This stream is not the home stream of
        // any array.
        assert_eq!(
            lent.x.to_vec()?,
            [3 * value + 1; LENGTH],
            "launched after the write"
        );
        device.synchronize()?;
        assert_eq!(lent.x.to_vec()?, [3 * value + 1; LENGTH]);
        lent.graph.launch()?;
        {
            let _inside = other.enter();
            lent.x.fill(-value)?;
        }
        other.synchronize()?;
        device.synchronize()?;
        assert_eq!(
            lent.x.to_vec()?,
            [-value; LENGTH],
            "by who wrote last before"
        );
    }
    Ok(())
}

#[test]
fn an_array_that_outlives_the_graph_is_behind_its_launches() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let other = device.new_stream()?;
    let mut lent = Lent::new(&device)?;
    lent.set(5)?;
    lent.graph.launch()?;
    let Lent { graph, x, y, .. } = lent;
    drop((graph, y));
    let seen = {
        let _inside = other.enter();
        (&x * 10).eval()?
    };
    assert_eq!(seen.to_vec()?, [160; LENGTH]);
    assert_eq!(x.to_vec()?, [16; LENGTH]);
    drop((x, seen));
    device.synchronize()?;
    device.invalidate_all_caches();
    device.trim(0);
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.reserved_bytes), (0, 0));
    Ok(())
}

/// Each graph pins the slab, and all launches are ordered.
#[test]
fn graphs_on_two_streams_share_a_slab() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut lent = Lent::new(&device)?;
    let other = device.new_stream()?;
    let second = {
        let (_inside, _scope) = (other.enter(), device.scope("lent").enter());
        capture(&device, || lent.x.update(|x| x * 3 + 2))?
    };
    for value in 0..4 {
        lent.set(value)?;
        lent.graph.launch()?;
        second.launch()?;
        second.launch()?;
        assert_eq!(lent.x.to_vec()?, [9 * (3 * value + 1) + 8; LENGTH]);
        second.launch()?;
    }
    Ok(())
}

#[test]
fn a_pending_launch_keeps_a_detached_slab_from_others() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let mut x = escaped()?;
    let graph = {
        let _inside = stream.enter();
        capture(&device, || x.update(|x| x * 2 + 1))?
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
        capture(&device, || y.assign(&x + 1))?
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
fn a_launch_waits_for_readers() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let graph = {
        let _inside = own.enter();
        capture(&device, || x.update(|x| x + 1))?
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
fn a_write_waits_for_a_launch() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let [own, other] = [device.new_stream()?, device.new_stream()?];
    let mut x = escaped()?;
    let graph = {
        let _inside = own.enter();
        capture(&device, || x.update(|x| x + 1))?
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
