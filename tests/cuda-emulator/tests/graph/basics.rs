//! Tests of a graph's effects, of the memory that it pins, and of the calls that a capture refuses.

use cachescope::{Array, Device, DeviceConfig, ErrorKind, Policy, Result, cache_scope, graph};

/// Returns a new device, so that tests are independent.
fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

/// Computes x = 2 (x + 1) in a planned scope, with two temporaries.
fn step(x: &mut Array<i32>) -> Result<()> {
    cache_scope!("step", policy = Policy::Plan, {
        let more = (&*x + 1).eval()?;
        let twice = (&more * 2).eval()?;
        drop(more);
        let copy = twice.lazy().eval()?;
        x.assign(&copy)
    })
}

#[test]
fn each_launch_does_what_was_captured() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    let address = x.address();
    assert_eq!(x.to_vec()?, [6; 1000]);
    let graph = graph::capture(&device, || step(&mut x))?;
    assert_eq!(x.to_vec()?, [6; 1000], "nothing was done yet");
    graph.launch()?;
    assert_eq!(x.to_vec()?, [14; 1000]);
    graph.launch()?;
    graph.launch()?;
    assert_eq!(x.to_vec()?, [62; 1000]);
    // The graph pins the memory, but does not count as a handle that shares it.
    step(&mut x)?;
    assert_eq!((x.to_vec()?, x.address()), (vec![126; 1000], address));
    graph.launch()?;
    assert_eq!(x.to_vec()?, [254; 1000]);
    Ok(())
}

#[test]
fn what_it_uses_stays_reserved() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    let graph = graph::capture(&device, || step(&mut x))?;
    drop(x);
    device.invalidate_all_caches();
    device.trim(0);
    let others: Vec<_> = (0..20)
        .map(|number| Array::full(1000, number))
        .collect::<Result<_>>()?;
    cache_scope!("step", policy = Policy::Plan, {
        let first = Array::full(1000, 7)?;
        let second = (&first + 1).eval()?;
        graph.launch()?;
        graph.launch()?;
        assert_eq!(
            (first.to_vec()?, second.to_vec()?),
            (vec![7; 1000], vec![8; 1000])
        );
    });
    for (number, other) in (0..).zip(&others) {
        assert_eq!(other.to_vec()?, [number; 1000]);
    }
    drop(others);
    let before = device.memory_stats();
    assert!(before.live_blocks > 0, "{before:?}");
    drop(graph);
    device.invalidate_all_caches();
    device.trim(0);
    let after = device.memory_stats();
    assert_eq!((after.live_blocks, after.reserved_bytes), (0, 0));
    Ok(())
}

/// The partial sums are in scratch memory, for which no handle exists after the capture.
#[test]
fn room_that_is_taken_on_the_way_stays_reserved_too() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let x = Array::<i64>::ones(1 << 18)?;
    let mut sum = Array::<i64>::zeros([])?;
    let mut total = || sum.assign(&x.sum()?);
    total()?;
    let graph = graph::capture(&device, total)?;
    let others: Vec<_> = (0..500)
        .map(|number| Array::full(128, number))
        .collect::<Result<_>>()?;
    graph.launch()?;
    assert_eq!(sum.item()?, 1 << 18);
    for (number, other) in (0..).zip(&others) {
        assert_eq!(other.to_vec()?, [number; 128]);
    }
    graph.launch()?;
    assert_eq!(sum.item()?, 1 << 18);
    Ok(())
}

#[test]
fn other_streams_are_ordered_around_a_launch() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let other = device.new_stream()?;
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    let graph = graph::capture(&device, || step(&mut x))?;
    for iteration in 0..4 {
        let expected = {
            let _inside = other.enter();
            x.assign(iteration)?;
            2 * (iteration + 1)
        };
        graph.launch()?;
        let _inside = other.enter();
        let seen = (&x + 0).eval()?;
        assert_eq!(seen.to_vec()?, [expected; 1000]);
    }
    Ok(())
}

/// An earlier event of the stream does not include a later launch, even if the stream has no other
/// later work.
#[test]
fn a_launch_is_awaited_by_an_earlier_reader() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let other = device.new_stream()?;
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    let graph = graph::capture(&device, || step(&mut x))?;
    let z = Array::<i32>::ones(1000)?;
    for expected in [14, 30, 62] {
        let before = {
            let _inside = other.enter();
            (&z + 1).eval()?
        };
        graph.launch()?;
        let _inside = other.enter();
        assert_eq!((&x + 0).eval()?.to_vec()?, [expected; 1000]);
        assert_eq!(before.to_vec()?, [2; 1000]);
    }
    Ok(())
}

#[test]
fn other_threads_work_on_meanwhile_on_other_streams() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    // The fill is enqueued, but has not run yet.
    let z = Array::<i32>::full(5000, 5)?;
    let graph = graph::capture(&device, || {
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                let stream = device.new_stream()?;
                let _inside = stream.enter();
                let y = Array::<i32>::ones(5000)?;
                assert_eq!((&y + 1).eval()?.to_vec()?, [2; 5000]);
                assert_eq!((&z + 1).eval()?.to_vec()?, [6; 5000]);
                Ok::<_, cachescope::Error>(())
            });
            elsewhere.join().unwrap()
        })?;
        step(&mut x)
    })?;
    graph.launch()?;
    assert_eq!(x.to_vec()?, [14; 1000]);
    Ok(())
}

/// Each error names the mistake, and the device remains usable.
#[test]
fn what_is_wrong_in_a_graph_is_refused() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut x = Array::<i32>::zeros(1000)?;
    step(&mut x)?;
    step(&mut x)?;
    let other = device.new_stream()?;
    let y = Array::<i32>::ones(1000)?;
    type Body<'a> = Box<dyn FnOnce() -> Result<()> + 'a>;
    let mut z = Array::<i32>::ones(1000)?;
    let inner = graph::capture(&device, || z.update(|z| z + 1))?;
    let bodies: [(&str, Body<'_>); 8] = [
        // Each launch of the outer graph would launch the inner graph, possibly after the inner
        // graph is dropped.
        ("another graph", Box::new(|| inner.launch())),
        (
            "run the scope twice",
            Box::new(|| Array::<i32>::zeros(50 << 20).map(drop)),
        ),
        (
            "from the host",
            Box::new(|| Array::from_vec(vec![1; 1000], 1000).map(drop)),
        ),
        ("to the host", Box::new(|| y.to_vec().map(drop))),
        ("waiting", Box::new(|| device.synchronize())),
        (
            "must go to the captured stream",
            Box::new(|| {
                let _inside = other.enter();
                (&y + 1).eval().map(drop)
            }),
        ),
        (
            "another thread",
            Box::new(|| {
                let elsewhere = || {
                    let _guard = device.enter();
                    (&y + 1).eval().map(drop)
                };
                std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap())
            }),
        ),
        (
            "already in progress",
            Box::new(|| {
                let inner = graph::capture(&device, || Ok(()));
                inner.map(drop)
            }),
        ),
    ];
    // This caches memory for the allocation of the second body.
    drop(Array::<i32>::zeros(1000)?);
    for (word, body) in bodies {
        let error = graph::capture(&device, body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
        device.synchronize()?;
        assert_eq!((&y + 1).eval()?.to_vec()?, [2; 1000]);
    }
    let graph = graph::capture(&device, || step(&mut x))?;
    graph.launch()?;
    assert_eq!(x.to_vec()?, [14; 1000]);
    Ok(())
}

#[test]
fn a_panic_in_the_body_ends_the_capture() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let caught =
        std::panic::catch_unwind(|| graph::capture(&device, || panic!("of the body")).map(drop));
    assert!(caught.is_err());
    assert_eq!(Array::<i32>::ones(10)?.to_vec()?, [1; 10]);
    assert!(
        graph::capture(&device, || Ok(())).is_ok(),
        "a graph of nothing"
    );
    Ok(())
}

#[test]
fn the_host_has_no_graphs() {
    let error = graph::capture(&Device::host(), || Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
