//! The policy Plan.

use std::sync::Mutex;

use cachescope::{
    Array, Buffer, CacheConfig, Device, DeviceConfig, Policy, Result, cache_scope, uncached,
};
use proptest::prelude::*;
use under_test::device_with;

use crate::scopes::{MIB, device, stats};

/// A step of an entry: an allocation of this number of bytes, or the drop of the nth allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    New(usize),
    Drop(usize),
}
use Step::{Drop as D, New as N};

/// Runs the steps in a scope, checks the contents of every array, and returns the addresses.
pub(crate) fn iteration(device: &Device, steps: &[Step]) -> Result<Vec<u64>> {
    cache_scope!("plan", policy = Policy::Plan, device = device, {
        body(steps)
    })
}

fn body(steps: &[Step]) -> Result<Vec<u64>> {
    let (mut live, mut addresses) = (Vec::new(), Vec::new());
    for step in steps {
        match *step {
            N(bytes) => {
                let array = Array::full([bytes], live.len() as u8)?;
                addresses.push(array.address());
                live.push(Some(array));
            }
            D(index) => {
                let array = live[index].take().expect("it is there");
                check(&array, index as u8)?;
            }
        }
    }
    for (index, array) in live.iter().enumerate() {
        array
            .iter()
            .try_for_each(|array| check(array, index as u8))?;
    }
    Ok(addresses)
}

fn check(array: &Array<u8>, value: u8) -> Result<()> {
    assert!(
        array.to_vec()?.iter().all(|byte| *byte == value),
        "somebody wrote there"
    );
    Ok(())
}

pub(crate) const FORWARD: [Step; 12] = [
    N(3000),
    N(70_000),
    N(512),
    D(1),
    N(40_000),
    N(40_000),
    D(0),
    N(100_000),
    D(2),
    D(3),
    D(4),
    D(5),
];

#[test]
fn addresses_are_the_same_on_every_entry() -> Result<()> {
    let device = device();
    iteration(&device, &FORWARD)?;
    let first = iteration(&device, &FORWARD)?;
    let planned = stats(&device, "plan");
    for _ in 0..1000 {
        assert_eq!(iteration(&device, &FORWARD)?, first);
    }
    let after = stats(&device, "plan");
    assert_eq!((after.misses, after.divergences), (planned.misses, 0));
    assert_eq!(after.hits, planned.hits + 6000);
    Ok(())
}

#[test]
fn the_slab_is_the_working_set() -> Result<()> {
    let device = device();
    // At most 60,000 bytes are live at a time. Greedy reuse of whole blocks needs more.
    let steps = [
        N(51_200),
        D(0),
        N(10_240),
        N(40_960),
        D(1),
        N(10_240),
        D(2),
        D(3),
    ];
    for _ in 0..3 {
        iteration(&device, &steps)?;
    }
    assert_eq!(stats(&device, "plan").cached_bytes, 51_200);
    Ok(())
}

#[test]
fn an_entry_that_differs_is_served_counted_and_planned_anew() -> Result<()> {
    let device = device();
    for _ in 0..3 {
        iteration(&device, &FORWARD)?;
    }
    let mut other = FORWARD;
    other[4] = N(41_000);
    iteration(&device, &other)?;
    assert_eq!(stats(&device, "plan").divergences, 1);
    iteration(&device, &other)?;
    let addresses = iteration(&device, &other)?;
    let planned = stats(&device, "plan");
    assert_eq!(planned.divergences, 1, "planned anew");
    for _ in 0..10 {
        assert_eq!(iteration(&device, &other)?, addresses);
    }
    assert_eq!(stats(&device, "plan").misses, planned.misses);
    Ok(())
}

#[test]
fn what_lives_longer_than_planned_is_not_overwritten() -> Result<()> {
    let device = device();
    let early = [N(5000), D(0), N(5000), D(1), N(5000), D(2)];
    let late = [N(5000), N(5000), D(0), N(5000), D(1), D(2)];
    for _ in 0..4 {
        iteration(&device, &early)?;
    }
    iteration(&device, &late)?;
    assert_eq!(stats(&device, "plan").divergences, 1);
    for _ in 0..4 {
        iteration(&device, &late)?;
        iteration(&device, &early)?;
    }
    assert_eq!(
        stats(&device, "plan").divergences,
        1,
        "one plan holds for both"
    );
    Ok(())
}

#[test]
fn an_escaped_array_does_not_block_the_plan() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let iteration = |value: u8| {
        cache_scope!("plan", policy = Policy::Plan, {
            let first = Array::full([60_000], 1u8)?;
            let loss = Array::full([1000], value)?;
            let second = Array::full([80_000], 2u8)?;
            let addresses = (first.address(), second.address());
            Ok::<_, cachescope::Error>((loss, addresses))
        })
    };
    let mut losses = Vec::new();
    let mut planned = None;
    for value in 0..50 {
        let (loss, addresses) = iteration(value)?;
        losses.push(loss);
        if value >= 1 {
            assert_eq!(*planned.get_or_insert(addresses), addresses);
        }
    }
    for (value, loss) in losses.iter().enumerate() {
        check(loss, value as u8)?;
    }
    assert_eq!(stats(&device, "plan").divergences, 0);
    assert_eq!(stats(&device, "plan").escaped_blocks, 50);
    Ok(())
}

#[test]
fn one_that_escapes_for_once_sets_the_slab_aside() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let iteration = |keep: bool| {
        cache_scope!("plan", policy = Policy::Plan, {
            let first = Array::full([60_000], 7u8)?;
            drop(Array::full([1000], 8u8)?);
            Ok::<_, cachescope::Error>(keep.then_some(first))
        })
    };
    for _ in 0..3 {
        iteration(false)?;
    }
    let kept = iteration(true)?.expect("it was kept");
    for _ in 0..5 {
        iteration(false)?;
        check(&kept, 7)?;
    }
    drop(kept);
    device.invalidate_cache("plan");
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn invalidation_and_pressure_take_the_slab_and_the_plan_lives_on() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(2 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    for _ in 0..3 {
        iteration(&device, &FORWARD)?;
    }
    assert!(device.invalidate_cache("plan").bytes > 0);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    iteration(&device, &FORWARD)?;
    assert!(stats(&device, "plan").cached_bytes > 0);
    drop(Buffer::new(&device, 2 * MIB)?);
    assert_eq!(
        stats(&device, "plan").cached_bytes,
        0,
        "taken back under pressure"
    );
    let misses = stats(&device, "plan").misses;
    iteration(&device, &FORWARD)?;
    let after = stats(&device, "plan");
    assert_eq!((after.misses, after.divergences), (misses + 1, 0));
    Ok(())
}

#[test]
fn a_slab_lost_in_the_middle_of_an_entry_that_differs_later_is_long_enough() -> Result<()> {
    let device = device();
    let entry = |is_invalidated: bool, last: usize| -> Result<()> {
        cache_scope!("plan", policy = Policy::Plan, device = &device, {
            let first = Array::full([MIB], 1u8)?;
            let others: Vec<Array<u8>> = uncached!({
                let others = (0..100).map(|_| Array::full([MIB / 32], 7));
                others.collect::<Result<_>>()?
            });
            check(&first, 1)?;
            others.iter().try_for_each(|other| check(other, 7))?;
            drop((first, others));
            if is_invalidated {
                device.invalidate_cache("plan");
            }
            let second = Array::full([512], 2u8)?;
            let third = Array::full([last], 3u8)?;
            check(&second, 2)?;
            check(&third, 3)
        })
    };
    for _ in 0..2 {
        entry(false, 1024)?;
    }
    entry(true, 2048)?;
    assert_eq!(stats(&device, "plan").divergences, 1);
    for _ in 0..3 {
        entry(false, 2048)?;
    }
    Ok(())
}

#[test]
fn a_callback_that_allocates_does_not_lead_the_plan_astray() -> Result<()> {
    let device = device();
    let mut escaped = Vec::new();
    let mut entry = |held: bool, limit: Option<u64>| -> Result<()> {
        cache_scope!("plan", policy = Policy::Plan, device = &device, {
            let first = Array::full([8 * MIB], 1u8)?;
            let first = held.then_some(first);
            device.set_memory_limit(limit.map(|more| device.memory_stats().reserved_bytes + more));
            escaped.push(Array::full([4 * MIB], 2u8)?);
            device.set_memory_limit(None);
            for value in [3, 4] {
                let next = Array::full([8 * MIB], value)?;
                check(&next, value)?;
                first.iter().try_for_each(|first| check(first, 1))?;
            }
            Ok(())
        })
    };
    for _ in 0..3 {
        entry(false, None)?;
    }
    // Under pressure, the callback makes a request of the planned size before the entry's request
    // is served.
    let spare = Mutex::new(Some(Buffer::new(&device, 12 * MIB)?));
    let (kept, inside) = (Mutex::new(Vec::new()), device.clone());
    let _guard = device.on_memory_pressure(move |_| {
        let given = spare.lock().unwrap().take();
        let bytes = given.map_or(0, |buffer| buffer.size_bytes() as u64);
        if bytes > 0 {
            kept.lock()
                .unwrap()
                .push(Buffer::new(&inside, 4 * MIB).unwrap());
        }
        bytes
    });
    entry(true, Some(0))?;
    escaped.iter().try_for_each(|array| check(array, 2))
}

#[test]
fn where_there_is_no_room_for_the_slab_requests_are_served_as_recycle_serves_them() -> Result<()> {
    let device = device();
    let steps: Vec<_> = (0..10).map(|_| N(10_000)).collect();
    for _ in 0..5 {
        cache_scope!(
            "plan",
            policy = Policy::Plan,
            max_bytes = 60_000,
            device = &device,
            { body(&steps)? }
        );
        let stats = stats(&device, "plan");
        assert!(stats.live_bytes + stats.cached_bytes <= 60_000, "{stats:?}");
    }
    Ok(())
}

#[test]
fn a_limit_just_above_the_working_set_is_enough() -> Result<()> {
    let steps: Vec<_> = (0..40)
        .flat_map(|index| {
            [
                Some(N(200_000 + 1000 * index)),
                (index >= 3).then(|| D(index - 3)),
            ]
        })
        .flatten()
        .collect();
    let free = device();
    for _ in 0..3 {
        iteration(&free, &steps)?;
    }
    let working_set = stats(&free, "plan").peak_live_bytes;
    let config = DeviceConfig {
        memory_limit: Some(working_set * 105 / 100),
        ..Default::default()
    };
    let device = device_with(config)?;
    for _ in 0..10 {
        iteration(&device, &steps)?;
    }
    Ok(())
}

#[test]
fn a_nested_entry_continues_the_plan() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let iteration = || {
        cache_scope!("plan", policy = Policy::Plan, {
            let first = Array::full([5000], 1u8)?;
            let inner = cache_scope!("plan", { Array::full([7000], 2u8)? });
            check(&first, 1)?;
            check(&inner, 2)?;
            Ok::<_, cachescope::Error>((first.address(), inner.address()))
        })
    };
    iteration()?;
    let planned = iteration()?;
    for _ in 0..5 {
        assert_eq!(iteration()?, planned);
    }
    Ok(())
}

#[test]
fn a_record_has_every_allocation_with_its_place_and_its_life() -> Result<()> {
    let device = device();
    let _current = device.enter();
    device.configure_cache(
        "recorded",
        CacheConfig {
            record: true,
            ..Default::default()
        },
    );
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        for _ in 0..3 {
            let kept = cache_scope!("recorded", policy = policy, {
                let first = Buffer::new(&device, 1000)?;
                let second = Buffer::new(&device, 2000)?;
                drop(first);
                drop(Buffer::new(&device, 1000)?);
                second
            });
            let record = device.cache_record("recorded");
            let steps = |record: &cachescope::AllocationRecord| {
                (record.bytes, record.allocated_at, record.freed_at)
            };
            let steps: Vec<_> = record.iter().map(steps).collect();
            assert_eq!(
                steps,
                [(1000, 0, Some(2)), (2000, 1, None), (1000, 3, Some(4))],
                "{policy}"
            );
            for record in &record {
                assert_eq!(record.call_site.file(), file!());
            }
            assert_eq!(record[1].call_site.line(), record[0].call_site.line() + 1);
            drop(kept);
        }
    }
    assert_eq!(device.cache_record("unknown"), []);
    Ok(())
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(
        (1usize..50_000, 0usize..3, any::<prop::sample::Index>()),
        1..count,
    )
    .prop_map(|choices| {
        let (mut steps, mut live, mut made) = (Vec::new(), Vec::new(), 0);
        for (bytes, drops, which) in choices {
            steps.push(N(bytes));
            live.push(made);
            made += 1;
            for _ in 0..drops.min(live.len()) {
                steps.push(D(live.swap_remove(which.index(live.len()))));
            }
        }
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: crate::regressions(), ..ProptestConfig::default() })]

    /// Entries run a few bodies in random order. Some entries end early, and some invalidate the
    /// cache. Every array keeps its contents, and no memory remains at the end.
    #[test]
    fn entries_of_several_bodies_never_share_memory(
        bodies in prop::collection::vec(steps(20), 1..6),
        iterations in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, 0u8..20), 1..60),
    ) {
        let device = device();
        let mut escaped = Vec::new();
        for (number, (which, cut, action)) in iterations.into_iter().enumerate() {
            let steps = which.get(&bodies);
            let steps = &steps[..steps.len().saturating_sub(if cut < 5 { cut } else { 0 }).max(1)];
            let kept = cache_scope!("plan", policy = Policy::Plan, device = &device, {
                if action == 0 {
                    device.invalidate_cache("plan");
                }
                body(steps).unwrap();
                (action == 1).then(|| Array::full([3000], number as u8).unwrap())
            });
            escaped.extend(kept.map(|kept| (kept, number as u8)));
            match action {
                2 => drop(device.invalidate_cache("plan")),
                3 => drop(device.trim(0)),
                4 => drop(escaped.pop()),
                5 => {
                    let taken = std::mem::take(&mut escaped);
                    std::thread::spawn(move || drop(taken)).join().unwrap();
                }
                _ => {}
            }
            for (kept, value) in &escaped {
                check(kept, *value).unwrap();
            }
        }
        drop(escaped);
        device.invalidate_cache("plan");
        let stats = device.memory_stats();
        prop_assert_eq!((stats.live_blocks, stats.cached_bytes, stats.allocated_bytes), (0, 0, 0));
    }
}
