//! Dry-run devices. A program needs equal memory in a dry run and in a real run.

#[cfg(feature = "cuda")]
mod gpu;
mod scratch;

use std::sync::mpsc;
use std::thread;

use cachescope::collective::{Group, Reduce};
use cachescope::grad::nn::{Attention, Conv2d, LayerNorm, Linear};
use cachescope::grad::optim::{AdamW, clip_norm};
use cachescope::grad::{Parameters, checkpoint, value_and_grad};
use cachescope::{
    Array, CacheConfig, ConvOptions, Device, DeviceConfig, ErrorKind, FaultPlan, MetaKind,
    MetaOptions, Policy, PoolKind, Result, cache_scope, dry_run, largest_fit, manual_seed,
};

const GIB: u64 = 1 << 30;

fn like(config: DeviceConfig) -> MetaOptions {
    MetaOptions {
        capacity_bytes: 64 * GIB,
        config,
        ..Default::default()
    }
}

/// Asserts that a dry run and a real run have equal peaks, and equal allocations of each line.
#[track_caller]
fn agrees(config: &DeviceConfig, program: fn() -> Result<()>) {
    let real = Device::host_with(config.clone()).unwrap();
    let recording = real.record(Default::default()).unwrap();
    {
        let _current = real.enter();
        program().unwrap();
    }
    let stats = real.memory_stats();
    let dry = dry_run(like(config.clone()), program).unwrap();
    let peaks = (stats.peak_live_bytes, stats.peak_reserved_bytes);
    assert_eq!((dry.peak_live_bytes, dry.peak_reserved_bytes), peaks);
    let mut sites = recording.by_call_site();
    sites.sort_by_key(|site| std::cmp::Reverse(site.device_peak_bytes));
    let figures = |sites: Vec<cachescope::record::SiteSummary>| {
        let figures = sites.into_iter();
        let figures = figures.map(|site| (site.call_site, site.allocations, site.total_bytes));
        let mut figures: Vec<_> = figures.map(|figures| format!("{figures:?}")).collect();
        figures.sort();
        figures
    };
    assert_eq!(figures(dry.by_call_site()), figures(sites));
}

/// Runs `agrees` for each pool kind, with and without expandable segments.
#[track_caller]
fn agrees_for_all_pools(program: fn() -> Result<()>) {
    for pool in [PoolKind::BestFit, PoolKind::Binned, PoolKind::Direct] {
        for expandable_segments in [true, false] {
            let config = DeviceConfig {
                pool,
                expandable_segments,
                ..Default::default()
            };
            agrees(&config, program);
        }
    }
}

#[test]
fn operations_need_what_they_need_in_a_real_run() {
    agrees_for_all_pools(|| {
        let x = Array::<f32>::rand([300, 400])?;
        let y = x.matmul(&x.t()?)?;
        let z = (&y * 2.0 + 1.0).sin().eval()?.softmax(1)?;
        let sorted = z.sort(-1)?;
        let sums = sorted.cumsum(0)?.sum_axis(1)?;
        let picked = z.take(&Array::<i64>::arange(0, 200, 1)?, 0)?;
        let both = cachescope::concat(&[&picked, &picked], 0)?;
        both.mean()?.item()?;
        sums.var()?.item()?;
        z.transpose()?.to_uncached()?;
        Ok(())
    });
}

#[derive(Parameters)]
struct Network {
    filters: Conv2d,
    norm: LayerNorm,
    attention: Attention,
    out: Linear,
}

impl Network {
    fn new() -> Result<Self> {
        Ok(Self {
            filters: Conv2d::new((1, 4), [3, 3], ConvOptions::default())?,
            norm: LayerNorm::new(36)?,
            attention: Attention::new(36, 4, true)?,
            out: Linear::new(36, 10)?,
        })
    }

    fn loss(&self, x: &Array<f32>, classes: &Array<i64>) -> Result<Array<f32>> {
        let x = self.filters.forward(x)?.relu().eval()?;
        let x = x.reshape([x.shape()[0], 4, 36])?;
        let x = checkpoint(&x, |x| (x * 2.0).tanh().eval()?.softmax(1))?;
        let x = self.attention.forward(&self.norm.forward(&x)?)?;
        self.out.forward(&x.mean_axis(1)?)?.cross_entropy(classes)
    }
}

/// Trains three steps. The last step has a larger batch.
fn training() -> Result<()> {
    let mut network = Network::new()?;
    let mut optimizer = AdamW::new(0.01);
    for batch in [8, 8, 12] {
        let x = Array::<f32>::rand([batch, 1, 8, 8])?;
        let classes = Array::<i64>::zeros([batch])?;
        cache_scope!("step", {
            let (_loss, gradients) = value_and_grad(&network, |own| own.loss(&x, &classes))?;
            let (gradients, _norm) = clip_norm(gradients, 1.0)?;
            optimizer.step(&mut network, &gradients)?;
        });
    }
    Ok(())
}

#[test]
fn a_training_needs_what_it_needs_in_a_real_run() {
    agrees_for_all_pools(training);
}

#[test]
fn every_policy_needs_what_it_needs_in_a_real_run() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let config = DeviceConfig {
            policy,
            ..Default::default()
        };
        agrees(&config, training);
    }
}

#[test]
fn reads_give_zeros_and_nothing_is_written() -> Result<()> {
    let device = Device::meta(MetaOptions::default())?;
    let _current = device.enter();
    assert_eq!(device.to_string(), "meta");
    let mut x = Array::from_slice(&[1.0_f32, 2.0], 2)?;
    assert_eq!(x.to_vec()?, [0.0, 0.0]);
    x.fill(3.0)?;
    x.assign(&x + 1.0)?;
    assert_eq!(
        (x.sum()?.item()?, (&x * 2.0).eval()?.to_vec()?),
        (0.0, vec![0.0; 2])
    );
    let mut rows = Array::<i32>::ones([3, 2])?;
    rows.slice_mut(cachescope::ndarray::s![1, ..])?.assign(7)?;
    assert_eq!(rows.to_vec()?, [0; 6]);
    assert_eq!(Array::<f64>::eye(3)?.sort(0)?.to_vec()?, [0.0; 9]);
    assert!(format!("{x}").contains('0'));
    let other = Device::host_with(DeviceConfig::default())?;
    assert_eq!(x.to_device(&other)?.to_vec()?, [0.0, 0.0]);
    assert_eq!(
        Array::from_slice(&[5.0], 1)?
            .to_device(&other)?
            .to_device(&device)?
            .to_vec()?,
        [0.0]
    );
    Ok(())
}

/// Returns the bytes of resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() << 10
}

#[test]
#[cfg(target_os = "linux")]
fn a_device_of_many_gigabytes_uses_no_memory() -> Result<()> {
    let kinds = [MetaKind::Host, MetaKind::Cuda];
    let count = 1 + usize::from(cfg!(feature = "cuda"));
    for kind in kinds.into_iter().take(count) {
        let options = MetaOptions {
            like: kind,
            capacity_bytes: 1000 * GIB,
            ..Default::default()
        };
        let before = resident_bytes();
        let run = dry_run(options, || {
            let x = Array::<f32>::ones([1 << 18, 1 << 15])?;
            let y = (&x + 1.0).exp().eval()?;
            let z = y.matmul(&Array::<f32>::rand([1 << 15, 1 << 10])?)?;
            y.sum_axis(0)?.to_vec()?;
            Array::<f32>::arange(0.0, 1e10, 1.0)?;
            Array::<f64>::linspace(0.0, 1.0, 1 << 33)?;
            x.transpose()?.to_uncached()?;
            z.softmax(1)
        })?;
        assert!(run.peak_live_bytes > 64 * GIB && run.fits(200 * GIB));
        assert!(resident_bytes().saturating_sub(before) < 64 << 20);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error_with_its_report() {
    let options = MetaOptions {
        capacity_bytes: 1 << 20,
        ..Default::default()
    };
    let error = dry_run(options, || Array::<f32>::zeros([1 << 20])).unwrap_err();
    assert!(error.is_out_of_memory());
    assert!(error.to_string().contains("meta"), "{error}");
    assert!(error.to_string().contains("dry_runs/mod.rs"), "{error}");
    // Before a dry run fails for lack of memory, it releases idle memory of other scopes.
    let config = DeviceConfig {
        memory_limit: Some(24 << 20),
        ..Default::default()
    };
    let two_scopes = || {
        cache_scope!("first", { Array::<f32>::zeros([4 << 20])? });
        cache_scope!("second", { Array::<f32>::zeros([5 << 20])? });
        Ok(())
    };
    assert!(dry_run(like(config), two_scopes).unwrap().fits(24 << 20));
    let config = DeviceConfig {
        fault: Some(FaultPlan::From(1)),
        ..Default::default()
    };
    let refused = dry_run(like(config), || Array::<f32>::zeros([1 << 20]));
    assert!(refused.unwrap_err().is_out_of_memory());
}

#[test]
fn lengths_that_depend_on_data_are_assumed() -> Result<()> {
    let found = |assumed_count| {
        let options = MetaOptions {
            assumed_count,
            ..Default::default()
        };
        dry_run(options, || {
            let x = Array::<f32>::ones([3, 4])?;
            let positions = x.gt(0.0).eval()?.nonzero()?;
            Ok((positions.shape()[0], x.unique()?.len()))
        })
    };
    assert_eq!(found(None)?.value, (12, 12));
    assert_eq!(found(Some(5))?.value, (5, 5));
    assert_eq!(found(Some(100))?.value, (12, 12));
    Ok(())
}

#[test]
fn the_generator_of_the_thread_is_left_as_it_was() -> Result<()> {
    manual_seed(7);
    let expected = Array::<f32>::rand(4)?.to_vec()?;
    manual_seed(7);
    dry_run(MetaOptions::default(), || Array::<f32>::rand(1000))?;
    assert!(
        dry_run(MetaOptions::default(), || Array::<f32>::rand(1000)?
            .reshape(7))
        .is_err()
    );
    assert_eq!(Array::<f32>::rand(4)?.to_vec()?, expected);
    Ok(())
}

#[test]
fn arrays_of_another_device_do_not_mix() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let outside = {
        let _current = device.enter();
        Array::<f32>::ones(4)?
    };
    let run = dry_run(MetaOptions::default(), || {
        (Array::<f32>::ones(4)? + &outside).eval()
    });
    let error = run.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    assert!(error.to_string().contains("meta"), "{error}");
    assert_eq!(outside.to_vec()?, [1.0; 4]);
    Ok(())
}

#[test]
fn runs_nest_and_leave_the_scopes_outside_alone() -> Result<()> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _current = device.enter();
    cache_scope!("outer", {
        let before = device.cache_stats("outer").unwrap().live_blocks;
        let outer = dry_run(MetaOptions::default(), || {
            let x = Array::<f32>::ones(1000)?;
            let inner = dry_run(MetaOptions::default(), || {
                cache_scope!("outer", { Array::<f64>::ones(10)? });
                Ok(())
            })?;
            drop(x);
            Ok(inner.peak_live_bytes)
        })?;
        assert_eq!((outer.value, outer.peak_live_bytes), (80, 4000));
        assert_eq!(device.cache_stats("outer").unwrap().live_blocks, before);
        assert_eq!(Device::current(), device);
    });
    Ok(())
}

#[test]
fn a_real_run_in_another_thread_is_not_disturbed() -> Result<()> {
    let (send, receive) = mpsc::sync_channel(1);
    let real = thread::spawn(move || -> Result<f32> {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let mut sum = 0.0;
        for round in 0..50 {
            cache_scope!("step", {
                sum += Array::full(1000, 1.0_f32)?.sum()?.item()?
            });
            if round == 10 {
                send.send(()).unwrap();
            }
        }
        Ok(sum)
    });
    receive.recv().unwrap();
    let run = dry_run(MetaOptions::default(), training)?;
    assert_eq!(real.join().unwrap()?, 50_000.0);
    assert_eq!(
        run.peak_live_bytes,
        dry_run(MetaOptions::default(), training)?.peak_live_bytes
    );
    Ok(())
}

#[test]
fn ranks_that_are_threads_exchange_without_data() -> Result<()> {
    let device = Device::meta(MetaOptions::default())?;
    let peaks = Group::threads(2, |group| {
        let _current = device.enter();
        let mut x = Array::<f32>::ones([1 << 20])?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        let all = group.all_gather(&x)?;
        Ok((x.sum()?.item()?, all.len()))
    })?;
    assert_eq!(peaks, [(0.0, 2 << 20); 2]);
    assert!(device.memory_stats().peak_live_bytes >= 4 * (4 << 20));
    Ok(())
}

#[test]
fn segments_of_their_own_count_their_bytes_alone() -> Result<()> {
    let config = DeviceConfig {
        pool: PoolKind::Direct,
        ..Default::default()
    };
    let options = MetaOptions {
        capacity_bytes: 512 * 1000,
        config,
        ..Default::default()
    };
    let device = Device::meta(options)?;
    let _current = device.enter();
    for _ in 0..2 {
        let small = (0..1000).map(|_| Array::<u8>::zeros(512));
        let small = small.collect::<Result<Vec<_>>>()?;
        assert_eq!(device.memory_stats().reserved_bytes, 512 * 1000);
        assert!(Array::<u8>::zeros(1).unwrap_err().is_out_of_memory());
        drop(small);
    }
    Ok(())
}

#[test]
fn the_largest_batch_that_fits_is_found() -> Result<()> {
    let options = |mib: u64| MetaOptions {
        capacity_bytes: mib << 20,
        ..Default::default()
    };
    let step = |batch: usize| match batch {
        0..2000 => Array::<u8>::zeros([batch, 1 << 20]).map(drop),
        _ => Array::<u8>::zeros([1 << 40]).map(drop),
    };
    for (mib, range, expected) in [
        (100, 1..=4096, Some(100)),
        (100, 1..=50, Some(50)),
        (100, 100..=100, Some(100)),
        (100, 101..=200, None),
        (100, 0..=0, Some(0)),
        (1, 1..=usize::MAX, Some(1)),
        (1, usize::MAX..=usize::MAX, None),
        (1000, 7..=1234, Some(1000)),
    ] {
        assert_eq!(largest_fit(range, options(mib), step)?, expected);
    }
    #[expect(clippy::reversed_empty_ranges, reason = "no number to try")]
    let none = largest_fit(5..=4, options(1), |_| panic!("no number is tried"))?;
    assert_eq!(none, None);
    let wrong = |_| Array::<u8>::zeros(4)?.reshape(5).map(drop);
    let error = largest_fit(1..=9, options(1), wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidShape);
    Ok(())
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let no_memory = MetaOptions {
        capacity_bytes: 0,
        ..Default::default()
    };
    let error = Device::meta(no_memory.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(dry_run(no_memory, || Ok(())).is_err());
    let driver = DeviceConfig {
        pool: PoolKind::StreamOrdered,
        ..Default::default()
    };
    let error = Device::meta(like(driver)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn the_text_has_the_peaks_and_the_largest_lines() -> Result<()> {
    let run = dry_run(MetaOptions::default(), || {
        let small = Array::<f32>::ones(256)?;
        let large = Array::<f32>::ones(1 << 20)?;
        (&small + large.sum()?).eval()
    })?;
    let text = run.to_string();
    let mut lines = text.lines();
    assert!(
        lines.next().unwrap().starts_with("dry run: 4 MiB"),
        "{text}"
    );
    let largest = lines.next().unwrap();
    assert!(
        largest.contains("dry_runs/mod.rs") && largest.contains("4 MiB"),
        "{text}"
    );
    let device = run.value.device().clone();
    drop(run.value);
    assert_eq!(device.memory_stats().live_bytes, 0);
    Ok(())
}

#[test]
fn plans_and_limits_of_a_cache_hold() -> Result<()> {
    let device = Device::meta(MetaOptions::default())?;
    let _current = device.enter();
    let config = CacheConfig {
        policy: Policy::Plan,
        ..Default::default()
    };
    device.configure_cache("step", config);
    for _ in 0..5 {
        cache_scope!("step", {
            let x = Array::<f32>::ones(1 << 16)?;
            let y = (&x + 1.0).eval()?;
            drop(x);
            (&y * 2.0).eval()?;
        });
    }
    let stats = device.cache_stats("step").unwrap();
    assert!(stats.hits > stats.misses && stats.escaped_blocks == 0);
    Ok(())
}

#[test]
fn the_text_has_the_peaks_of_the_first_and_the_last_entry() -> Result<()> {
    let run = dry_run(MetaOptions::default(), || {
        let mut kept = Vec::new();
        for _ in 0..3 {
            cache_scope!("outer", {
                let x = Array::<f32>::zeros(1 << 20)?;
                cache_scope!("inner", {
                    Array::<f32>::zeros(1 << 20)?;
                });
                kept.push(x);
            });
        }
        cache_scope!("once", {
            Array::<f32>::zeros(1 << 20)?;
        });
        Ok(())
    })?;
    let text = run.to_string();
    for scope in ["outer", "inner"] {
        let line = format!(
            "scope \"{scope}\": 8 MiB live at the peak of the first of 3 entries, 16 MiB of the last"
        );
        assert!(text.contains(&line), "{text}");
    }
    assert!(!text.contains("once"), "{text}");
    Ok(())
}
