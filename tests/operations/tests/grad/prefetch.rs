//! Batches that another thread prepares.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachescope::grad::data::{Prefetch, Sampler};
use cachescope::{Array, Device, DeviceConfig, Error, ErrorKind, Result, manual_seed};

#[test]
fn batches_come_in_order_and_not_too_far_ahead() -> Result<()> {
    let prepared = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&prepared);
    let batches = (0..20).map(move |batch| {
        counter.fetch_add(1, Ordering::SeqCst);
        Array::full(3, batch)
    });
    let batches = Prefetch::new(3, batches)?;
    let mut found = Vec::new();
    for batch in batches {
        found.push(batch?.to_vec()?[2]);
        // At most three batches are prepared ahead.
        assert!(prepared.load(Ordering::SeqCst) <= found.len() + 3);
    }
    assert_eq!(found, (0..20).collect::<Vec<i32>>());
    assert_eq!(prepared.load(Ordering::SeqCst), 20);
    Ok(())
}

#[test]
fn a_step_runs_while_the_next_batch_is_prepared() -> Result<()> {
    let prepared = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&prepared);
    let batches = (0..3).map(move |batch| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(batch)
    });
    let mut batches = Prefetch::new(1, batches)?;
    batches.next().unwrap()?;
    // The test takes no batch here, so only the thread can increase the count.
    while prepared.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(batches.count(), 2);
    Ok(())
}

#[test]
fn the_thread_has_the_device_and_the_seed() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _guard = device.enter();
    let run = || -> Result<Vec<f32>> {
        manual_seed(5);
        let batches = Prefetch::new(2, (0..4).map(|_| Array::<f32>::rand(2)))?;
        let mut all = Vec::new();
        for batch in batches {
            let batch = batch?;
            assert_eq!(batch.device(), &device);
            all.extend((batch * Array::<f32>::ones(2)?).eval()?.to_vec()?);
        }
        Ok(all)
    };
    let first = run()?;
    assert_eq!(run()?, first);
    assert_ne!(first[..2], first[2..4]);
    assert_eq!(device.memory_stats().live_bytes, 0);
    Ok(())
}

#[test]
fn errors_and_panics_are_errors() -> Result<()> {
    let batches = (0..3).map(|batch| match batch {
        1 => Array::<f32>::ones([1; 9]),
        _ => Array::ones(batch),
    });
    let kinds: Vec<_> = Prefetch::new(1, batches)?
        .map(|batch| batch.err().map(|error| error.kind()))
        .collect();
    assert_eq!(kinds, [None, Some(ErrorKind::InvalidShape), None]);
    let batches = (0..3).map(|batch: i32| {
        assert!(batch < 1, "a batch that cannot be made");
        Ok::<_, Error>(batch)
    });
    let mut batches = Prefetch::new(2, batches)?;
    assert_eq!(batches.next().unwrap()?, 0);
    assert_eq!(
        batches.next().unwrap().unwrap_err().kind(),
        ErrorKind::Panic
    );
    assert!(batches.next().is_none());
    Ok(())
}

#[test]
fn a_drop_ends_the_thread() -> Result<()> {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let mut batches = Prefetch::new(
        2,
        (0..).map(move |batch: u64| {
            let _held = &held;
            Ok(batch)
        }),
    )?;
    assert_eq!(batches.next().unwrap()?, 0);
    drop(batches);
    assert_eq!(Arc::strong_count(&alive), 1);
    Ok(())
}

#[test]
fn ranks_share_the_batches_of_a_sampler() -> Result<()> {
    let whole = Sampler::new(10, 4).shuffle(3);
    let batches = |sampler: Sampler| -> Result<Vec<Vec<i64>>> {
        sampler.epoch(2)?.iter().map(Array::to_vec).collect()
    };
    let parts = [batches(whole.ranks(0, 2))?, batches(whole.ranks(1, 2))?];
    for (at, batch) in batches(whole)?.into_iter().enumerate() {
        assert_eq!([parts[0][at].clone(), parts[1][at].clone()].concat(), batch);
    }
    for (rank, size) in [(2, 2), (0, 3), (0, 0)] {
        let error = whole.ranks(rank, size).epoch(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    Ok(())
}
