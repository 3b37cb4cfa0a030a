//! Tests of warm steps, under all policies and without scopes. A warm step makes no memory calls,
//! and waits only for its result.

use std::collections::VecDeque;

use cachescope::grad::optim::Adam;
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{
    Array, Buffer, Device, DeviceConfig, Generator, Policy, PoolKind, Result, cache_scope,
};

use crate::costs::{EmulatorLock, MEMORY, WAITING};
use shared::dataset::Dataset;
use shared::digits::{CLASSES, PIXELS};
use shared::model::Model;

const BATCH: usize = 24;

/// A pool, and the policy of the steps' scope, or `None` without a scope.
type Way = (PoolKind, Option<Policy>);

/// A variant that some tests exclude. Irregular steps sometimes need a different slab, even after
/// many steps. If the pool does not split segments, such a slab requires a new segment.
const NEVER_QUIET: Way = (PoolKind::Binned, Some(Policy::Plan));

const POLICIES: [Option<Policy>; 5] = [
    None,
    Some(Policy::Recycle),
    Some(Policy::Release),
    Some(Policy::Bump),
    Some(Policy::Plan),
];

fn batch(images: usize) -> Result<Dataset> {
    let pixel = |index: usize| (index * 7 % 17) as f32 / 16.0;
    let label = |index: usize| (index * 3 % CLASSES) as i64;
    Ok(Dataset {
        images: Array::from_vec((0..images * PIXELS).map(pixel).collect(), [images, PIXELS])?,
        labels: Array::from_vec((0..images).map(label).collect(), images)?,
    })
}

/// Runs `step`. If the variant has a policy, `step` runs in a scope.
fn scoped<T>((_, policy): Way, step: impl FnOnce() -> Result<T>) -> Result<T> {
    match policy {
        None => step(),
        Some(policy) => cache_scope!("warm", policy = policy, { step() }),
    }
}

/// Runs the check for all policies with all caching pools.
fn everywhere(mut check: impl FnMut(&EmulatorLock, &Device, Way) -> Result<()>) -> Result<()> {
    let lock = EmulatorLock::take();
    for pool in [PoolKind::BestFit, PoolKind::Binned] {
        for policy in POLICIES {
            let config = DeviceConfig {
                pool,
                ..DeviceConfig::default()
            };
            let device = Device::cuda_with(0, config)?;
            let _current = device.enter();
            check(&lock, &device, (pool, policy))?;
        }
    }
    Ok(())
}

/// Checks that `steps` makes no memory calls and does not wait.
#[track_caller]
fn assert_quiet(lock: &EmulatorLock, what: &str, steps: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = [lock.calls(&MEMORY), lock.calls(&WAITING)];
    steps()?;
    assert_eq!(
        [lock.calls(&MEMORY), lock.calls(&WAITING)],
        before,
        "{what}"
    );
    Ok(())
}

#[test]
fn a_warm_step_of_the_digits_calls_no_driver() -> Result<()> {
    everywhere(|lock, device, way| {
        let mut model = Model::new(16, &mut Generator::new(1))?;
        let batch = batch(BATCH)?;
        let mut step = || scoped(way, || model.step(&batch).map(drop));
        for _ in 0..6 {
            step()?;
        }
        let before = lock.clock();
        let what = format!("{way:?}");
        assert_quiet(lock, &what, || (0..20).try_for_each(|_| step()))?;
        device.synchronize()?;
        println!("{way:?}: {:.0} us a step", (lock.clock() - before) / 20.0);
        Ok(())
    })
}

#[derive(Parameters)]
struct Network {
    first: Array<f32>,
    bias: Array<f32>,
    last: Array<f32>,
}

#[test]
fn a_warm_step_with_gradients_calls_no_driver() -> Result<()> {
    everywhere(|lock, _, way| {
        let mut generator = Generator::new(5);
        let mut random = |shape: [usize; 2]| Array::<f32>::randn_with(&mut generator, shape);
        let mut network = Network {
            first: random([PIXELS, 32])?,
            bias: Array::zeros(32)?,
            last: random([32, CLASSES])?,
        };
        let batch = batch(BATCH)?;
        let mut optimizer = Adam::new(0.01);
        let mut step = || {
            scoped(way, || {
                let (_, gradients) = value_and_grad(&network, |network| {
                    let inner = (batch.images.matmul(&network.first)? + &network.bias).relu();
                    let scores = inner.eval()?.matmul(&network.last)?;
                    scores.cross_entropy(&batch.labels)
                })?;
                optimizer.step(&mut network, &gradients)
            })
        };
        for _ in 0..6 {
            step()?;
        }
        assert_quiet(lock, &format!("{way:?}"), || {
            (0..20).try_for_each(|_| step())
        })
    })
}

/// The lengths recur in an irregular order, like the lengths of text batches.
#[test]
fn drifting_lengths_call_no_driver_after_a_hundred_iterations() -> Result<()> {
    everywhere(|lock, _, way| {
        if way == NEVER_QUIET {
            return Ok(());
        }
        let mut state = 7_u64;
        let mut turn_of = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let length = 16 + 8 * ((state >> 33) % 24) as usize;
            scoped(way, || {
                let x = Array::<f32>::ones([length, 64])?;
                let y = (&x * 2.0 + 1.0).eval()?;
                let z = y.matmul(&y.transpose()?)?;
                let scores = z.softmax(1)?;
                let w = scores.matmul(&x)?;
                (&w - &y).eval().map(drop)
            })
        };
        for _ in 0..100 {
            turn_of()?;
        }
        assert_quiet(lock, &format!("{way:?}"), || {
            (0..200).try_for_each(|_| turn_of())
        })
    })
}

/// The activations of a small transformer, in bytes per token.
const LAYERS: [usize; 30] = [
    4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096,
    12288, 4096, 4096, 16384, 16384, 4096, 4096, 12288, 4096, 4096, 16384, 16384, 4096, 4096,
    128_000,
];

/// The blocks have up to hundreds of megabytes, and irregularly recurring lengths. Several blocks
/// are live at a time.
#[test]
fn drifting_lengths_of_large_blocks_call_no_driver_after_a_hundred_iterations() -> Result<()> {
    for (alive, share) in [(3, 1), (8, 1), (30, 1), (3, 4), (8, 4), (30, 4), (8, 16)] {
        everywhere(|lock, device, way| {
            // While few pages are reserved, pages are released until the bound has increased. Under
            // the policy Plan, the bound increases more slowly.
            let learns_long = share > 1 && way.1 == Some(Policy::Plan);
            if way == NEVER_QUIET || learns_long {
                return Ok(());
            }
            let (mut state, mut working_set_bytes) = (11_u64, 0);
            let mut turn_of = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let length = 32 + 32 * ((state >> 33) % 16) as usize;
                scoped(way, || {
                    let mut live = VecDeque::new();
                    for bytes in LAYERS {
                        if live.len() == alive {
                            live.pop_front();
                        }
                        live.push_back(Buffer::new(device, bytes * length / share)?);
                        let live_bytes = live.iter().map(Buffer::size_bytes).sum();
                        working_set_bytes = working_set_bytes.max(live_bytes);
                    }
                    Ok(())
                })
            };
            for _ in 0..100 {
                turn_of()?;
            }
            let what = format!("{way:?}, {alive} alive, 1/{share}");
            assert_quiet(lock, &what, || (0..400).try_for_each(|_| turn_of()))?;
            if way == (PoolKind::BestFit, Some(Policy::Recycle)) {
                let peak_bytes = device.memory_stats().peak_reserved_bytes as f64;
                // The bound includes two pages: one for small blocks and one for large blocks.
                let bound_bytes = 1.2 * working_set_bytes as f64 + f64::from(4 << 20);
                assert!(peak_bytes < bound_bytes, "{what}: {peak_bytes}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_warm_step_in_a_scope_leaves_the_driver_s_pool_alone() -> Result<()> {
    let lock = EmulatorLock::take();
    for policy in [Policy::Recycle, Policy::Bump, Policy::Plan] {
        let config = DeviceConfig {
            pool: PoolKind::StreamOrdered,
            ..DeviceConfig::default()
        };
        let device = Device::cuda_with(0, config)?;
        let _current = device.enter();
        let mut model = Model::new(16, &mut Generator::new(1))?;
        let batch = batch(BATCH)?;
        let mut step = || {
            scoped((PoolKind::StreamOrdered, Some(policy)), || {
                model.step(&batch).map(drop)
            })
        };
        for _ in 0..6 {
            step()?;
        }
        assert_quiet(&lock, &format!("{policy}"), || {
            (0..20).try_for_each(|_| step())
        })?;
    }
    Ok(())
}
