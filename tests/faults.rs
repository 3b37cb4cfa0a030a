//! Programs in which each reservation fails in turn. A program returns an error or correct results,
//! and leaks nothing.

use cachescope::{Array, Device, DeviceConfig, FaultPlan, Policy, Result, cache_scope, concat};
use under_test::device_with;

/// The growth of a device's reserved memory.
#[derive(Clone, Copy, Debug)]
enum Growth {
    /// Growth by pages. At least one page of each array contains no other array.
    InPlace,
    /// Growth by whole segments. Each array has a separate segment.
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

/// Runs the program, and checks that it releases all memory. Returns whether the program succeeded.
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

/// Updates two arrays of different shapes. Each update needs memory for a row that is computed
/// once. The second row is longer, so that it does not fit into the memory of the first row.
/// Returns whether the update succeeded, or `None` if an earlier call failed.
fn updates_all_or_none(nth: u64, growth: Growth) -> Option<bool> {
    let device = device(Some(FaultPlan::From(nth)), growth);
    let _guard = device.enter();
    let len = growth.len();
    let (mut a, mut b) = (
        Array::<f32>::full([2, len], 1.0).ok()?,
        Array::<f32>::full([2, 2 * len], 2.0).ok()?,
    );
    let (row, longer) = (
        Array::<f32>::zeros([len]).ok()?,
        Array::<f32>::zeros([2 * len]).ok()?,
    );
    let outcome = cachescope::update((&mut a, &mut b), |(a, b)| (a + row.exp(), b + longer.exp()));
    let expected = match &outcome {
        Ok(()) => (2.0, 3.0),
        Err(error) => {
            assert!(error.is_out_of_memory(), "{nth}: {error}");
            (1.0, 2.0)
        }
    };
    let is_all = |array: &Array<f32>, value: f32| {
        let elements = array.to_vec().unwrap();
        elements.iter().all(|&element| element == value)
    };
    assert!(is_all(&a, expected.0), "{nth}, {growth:?}");
    assert!(is_all(&b, expected.1), "{nth}, {growth:?}");
    Some(outcome.is_ok())
}

#[test]
fn an_update_of_several_shapes_writes_all_arrays_or_none() {
    for growth in GROWTHS {
        let mut outcomes: Vec<_> = Vec::new();
        while outcomes.last() != Some(&Some(true)) {
            assert!(outcomes.len() < 40, "{growth:?}: {outcomes:?}");
            outcomes.push(updates_all_or_none(outcomes.len() as u64 + 1, growth));
        }
        let failures = outcomes.iter().filter(|own| **own == Some(false)).count();
        assert!(failures >= 2, "{growth:?}: {outcomes:?}");
    }
}
