//! Dry-run devices that imitate a GPU. The suite `dry_runs` of the package `cuda-emulator` compares
//! dry runs with real runs.

use super::*;
use cachescope::collective::NcclId;
use cachescope::graph;
use cachescope::simulation::{DriverCall, DriverCosts};

fn gpu() -> MetaOptions {
    MetaOptions {
        like: MetaKind::Cuda,
        ..Default::default()
    }
}

#[test]
fn memory_comes_in_handles() -> Result<()> {
    let run = dry_run(gpu(), training)?;
    assert!(run.peak_reserved_bytes >= run.peak_live_bytes);
    assert!(run.peak_reserved_bytes.is_multiple_of(2 << 20));
    Ok(())
}

#[test]
fn calls_for_memory_are_charged_by_the_table() -> Result<()> {
    let run = dry_run(gpu(), training)?;
    let ledger = run.driver_ledger().expect("the driver is simulated");
    assert!(ledger.calls_of(DriverCall::MemCreate) > 0);
    let costs = DriverCosts::named("h100")?;
    assert!(ledger.microseconds() >= costs.nanos(DriverCall::MemCreate, 2 << 20) / 1e3);
    assert!(run.to_string().contains("driver calls for memory"));
    let host = dry_run(MetaOptions::default(), training)?;
    assert!(host.driver_ledger().is_none());
    Ok(())
}

#[test]
fn warm_steps_make_no_call_for_memory() -> Result<()> {
    let calls = |steps| {
        let run = dry_run(gpu(), || {
            let mut w = Array::<f32>::zeros([512, 512])?;
            for _ in 0..steps {
                cache_scope!("step", {
                    w.assign(&w - 0.1 * w.matmul(&w)?.softmax(1)?)?;
                });
            }
            Ok(())
        })?;
        Ok(run
            .driver_ledger()
            .expect("the driver is simulated")
            .calls())
    };
    assert_eq!(calls(2)?, calls(20)?);
    Ok::<(), cachescope::Error>(())
}

#[test]
fn segments_are_charged_and_released() -> Result<()> {
    let options = MetaOptions {
        config: DeviceConfig {
            pool: PoolKind::Direct,
            expandable_segments: false,
            ..Default::default()
        },
        ..gpu()
    };
    let run = dry_run(options, || {
        for _ in 0..3 {
            Array::<f32>::zeros([1 << 20])?;
        }
        Ok(())
    })?;
    let ledger = run.driver_ledger().expect("the driver is simulated");
    let calls = [DriverCall::MemAlloc, DriverCall::MemFree].map(|call| ledger.calls_of(call));
    assert_eq!(calls, [3, 3]);
    assert_eq!(run.peak_reserved_bytes, 4 << 20);
    Ok(())
}

#[test]
fn reads_give_zeros_and_lengths_are_assumed() -> Result<()> {
    let options = MetaOptions {
        assumed_count: Some(5),
        ..gpu()
    };
    let run = dry_run(options, || {
        let x = Array::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 7)?;
        let found = x.gt(0.0).eval()?.nonzero()?.shape()[0];
        Ok((x.to_vec()?, x.sum()?.item()?, found, x.unique()?.len()))
    })?;
    assert_eq!(run.value, (vec![0.0; 7], 0.0, 5, 5));
    Ok(())
}

#[test]
fn a_step_is_captured() -> Result<()> {
    let run = dry_run(gpu(), || {
        let mut y = Array::<f32>::zeros([64, 8])?;
        let step = graph::capture(&Device::current(), || y.assign((&y * 2.0).exp()))?;
        step.launch()?;
        y.sum()?.item()
    })?;
    assert_eq!(run.value, 0.0);
    Ok(())
}

#[test]
fn streams_and_other_threads_work() -> Result<()> {
    let device = Device::meta(gpu())?;
    let lengths = thread::scope(|scope| {
        let run = || -> Result<usize> {
            let _current = device.enter();
            let stream = device.new_stream()?;
            let _entered = stream.enter();
            Ok(Array::<f32>::rand(1000)?.sort(0)?.to_vec()?.len())
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        let lengths = threads.into_iter().map(|thread| thread.join().unwrap());
        lengths.collect::<Result<Vec<_>>>()
    })?;
    assert_eq!(lengths, [1000; 4]);
    device.synchronize()?;
    assert_eq!(device.memory_stats().live_bytes, 0);
    Ok(())
}

#[test]
fn ranks_exchange_without_data() -> Result<()> {
    let device = Device::meta(gpu())?;
    let sums = Group::threads(2, |group| {
        let _current = device.enter();
        let mut x = Array::<f32>::ones([1000])?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        x.sum()?.item()
    })?;
    assert_eq!(sums, [0.0; 2]);
    Ok(())
}

#[test]
fn foreign_code_is_refused() -> Result<()> {
    let device = Device::meta(gpu())?;
    let _current = device.enter();
    let x = Array::<f32>::ones(4)?;
    let errors = [
        device.cuda_context().map(drop).unwrap_err(),
        x.cuda_view().map(drop).unwrap_err(),
        Group::nccl(0, 1, NcclId::from_bytes([0; 128]))
            .map(drop)
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("without data"), "{error}");
    }
    Ok(())
}

#[test]
fn a_gpu_that_is_full_is_an_error_with_its_report() {
    let options = MetaOptions {
        capacity_bytes: 8 << 20,
        ..gpu()
    };
    let error = dry_run(options, || Array::<f32>::zeros([4 << 20])).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("meta"), "{error}");
}

/// The allocations of a second derivative have the call site of the differentiated operation.
#[test]
fn every_line_of_a_gradient_inside_of_a_gradient_is_known() -> Result<()> {
    let run = dry_run(gpu(), || {
        let (w, x) = (
            Array::<f32>::zeros([64, 64])?,
            Array::<f32>::zeros([32, 64])?,
        );
        value_and_grad(&w, |w| {
            let (_, slope) = value_and_grad(&x, |x| x.matmul(w)?.tanh().square().mean())?;
            slope.square().sum()
        })
    })?;
    let sites = run.by_call_site();
    assert!(sites.iter().all(|site| site.call_site.is_some()), "{run}");
    Ok(())
}
