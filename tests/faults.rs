//! Programs in which each reservation fails in turn. A program ends with an error or succeeds, its
//! results are correct, and nothing leaks.

use cachescope::{Array, Device, DeviceConfig, FaultPlan, Policy, Result, cache_scope, concat};
use under_test::device_with;

/// The way in which a device reserves memory.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// By pages. An array has some pages alone.
    InPlace,
    /// By whole segments. Every array has a separate segment.
    BySegments,
}

const GROWTHS: [Growth; 2] = [Growth::InPlace, Growth::BySegments];

impl Growth {
    /// Returns the length of the program's arrays.
    fn len(self) -> usize {
        match self {
            Self::InPlace => 3 << 18,
            Self::BySegments => 3 << 20,
        }
    }
}

/// Runs steps with many temporaries, some of which escape. Returns a known sum.
fn program(device: &Device, policy: Policy, len: usize) -> Result<f64> {
    let _guard = device.enter();
    let mut x = Array::<f32>::full([len], 2.0)?;
    let mut sum = 0.0;
    for _ in 0..3 {
        let escaped = cache_scope!("step", policy = policy, {
            let y = (&x * 3.0 + 1.0).eval()?;
            let z = concat(&[&x, &y], 0)?;
            x.update(|x| x + 1.0)?;
            (&y + z.slice(cachescope::ndarray::s![..len])?).eval()?
        });
        sum += f64::from(escaped.mean()?.item()?);
    }
    Ok(sum)
}

fn device(fault: Option<FaultPlan>, growth: Growth) -> Device {
    let config = DeviceConfig {
        fault,
        expandable_segments: matches!(growth, Growth::InPlace),
        fill_recycled: Some(0xFF),
        ..Default::default()
    };
    device_with(config).unwrap()
}

/// Runs the program, checks that it releases all memory, and returns whether it succeeded.
fn survives(fault: Option<FaultPlan>, policy: Policy, growth: Growth) -> bool {
    let device = device(fault, growth);
    let outcome = program(&device, policy, growth.len());
    match &outcome {
        Ok(sum) => assert_eq!(*sum, (9.0 + 13.0 + 17.0), "{fault:?}"),
        Err(error) => assert!(error.is_out_of_memory(), "{fault:?}: {error}"),
    }
    let stats = device.memory_stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0), "{fault:?}");
    device.invalidate_all_caches();
    device.trim(0);
    let stats = device.memory_stats();
    assert_eq!(
        (stats.allocated_bytes, stats.reserved_bytes),
        (0, 0),
        "{fault:?}"
    );
    assert_eq!(stats.reserves, stats.releases, "{fault:?}");
    outcome.is_ok()
}

/// Returns all combinations of policies and growths.
fn setups() -> impl Iterator<Item = (Policy, Growth)> {
    let policies = [Policy::Recycle, Policy::Release].into_iter();
    policies.flat_map(|policy| GROWTHS.map(|growth| (policy, growth)))
}

#[test]
fn each_reservation_may_fail() {
    for (policy, growth) in setups() {
        assert!(survives(None, policy, growth));
        // One failure only causes a retry, which succeeds.
        assert!((1..12).all(|nth| survives(Some(FaultPlan::Nth(nth)), policy, growth)));
    }
}

#[test]
fn the_device_may_be_exhausted_at_any_point() {
    for (policy, growth) in setups() {
        let from = |nth| Some(FaultPlan::From(nth));
        let failures = (1..40).take_while(|&nth| !survives(from(nth), policy, growth));
        let failures = failures.count();
        assert!(
            (3..39).contains(&failures),
            "{growth:?}: {failures} failures"
        );
    }
}

#[test]
fn failures_at_random_do_no_harm() {
    for (seed, growth) in (0..12).flat_map(|seed| GROWTHS.map(|growth| (seed, growth))) {
        let plan = FaultPlan::Random {
            probability: 0.4,
            seed,
        };
        survives(Some(plan), Policy::default(), growth);
    }
}
