//! The scratch memory of operations that compute in blocks. A dry run counts this memory, but does
//! not list it.

use cachescope::grad::value_and_grad;
use cachescope::record::{EventKind, Profile};
use cachescope::{
    Array, DeviceConfig, MetaOptions, Policy, Result, attention, cache_scope, dry_run,
};

use super::{agrees, agrees_for_all_pools};

/// Computes attention forward and backward in a scope, for heads and queries that need several
/// blocks.
fn blocks() -> Result<()> {
    let q = Array::<f32>::rand([2, 3, 520, 8])?;
    for _ in 0..2 {
        cache_scope!("step", {
            attention(&q, &q, &q, true)?;
            value_and_grad(&q, |q| attention(q, q, q, true)?.sum())?;
        });
    }
    attention(&q, &q, &q, false)?;
    Ok(())
}

#[test]
fn blocks_need_what_they_need_in_a_real_run() {
    agrees_for_all_pools(blocks);
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let config = DeviceConfig {
            policy,
            ..Default::default()
        };
        agrees(&config, blocks);
    }
}

fn count(profile: &Profile, kind: EventKind) -> usize {
    let events = profile.events.iter();
    events.filter(|event| event.kind == kind).count()
}

#[test]
fn one_operation_is_recorded_whatever_it_computes_by() -> Result<()> {
    let operations = |heads: usize| {
        let run = dry_run(MetaOptions::default(), move || {
            let q = Array::<f32>::rand([heads, 1024, 8])?;
            value_and_grad(&q, |q| attention(q, q, q, true)?.sum())
        })?;
        let profile = run.profile();
        let begun = count(profile, EventKind::OperationBegin);
        assert_eq!(count(profile, EventKind::OperationEnd), begun);
        let requests: u64 = run.by_call_site().iter().map(|own| own.allocations).sum();
        Ok((begun, profile.events.len(), requests))
    };
    let (few, few_events, few_requests) = operations(2)?;
    let (many, many_events, many_requests) = operations(64)?;
    assert_eq!(few, many);
    assert!(many_events <= few_events + 8, "{few_events}, {many_events}");
    assert!(many_requests > 10 * few_requests);
    assert!(many_events < 100, "{many_events}");
    Ok(())
}

#[test]
fn the_peak_is_listed() -> Result<()> {
    let run = dry_run(MetaOptions::default(), || {
        let q = Array::<f32>::rand([64, 1024, 8])?;
        value_and_grad(&q, |q| attention(q, q, q, true)?.sum())
    })?;
    let mut live = 0;
    let mut peak = 0;
    for event in &run.profile().events {
        if event.kind.is_allocation() {
            live += event.bytes;
        } else if event.kind.is_free() {
            live -= event.bytes;
        }
        peak = live.max(peak);
    }
    assert_eq!(peak, run.peak_live_bytes);
    Ok(())
}
