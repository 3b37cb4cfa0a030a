//! Scopes under the policy Plan whose entries alternate between sequences.

use cachescope::Result;

use crate::scopes::plan::FORWARD;
use crate::scopes::plan::Step::{self, Drop as D, New as N};
use crate::scopes::plan::iteration;
use crate::scopes::{device, stats};

/// A sequence that begins like [`FORWARD`], but ends differently.
const EVALUATE: [Step; 8] = [N(3000), N(70_000), N(512), D(1), N(9000), D(0), D(2), D(3)];
const OTHER: [Step; 4] = [N(100), D(0), N(200), D(1)];
const ALL: [&[Step]; 3] = [&FORWARD, &EVALUATE, &OTHER];

#[test]
fn each_of_several_sequences_has_its_addresses() -> Result<()> {
    let device = device();
    for _ in 0..3 {
        ALL.iter()
            .try_for_each(|steps| iteration(&device, steps).map(drop))?;
    }
    let planned = stats(&device, "plan");
    let expected = ALL.map(|steps| iteration(&device, steps).unwrap());
    // The sequences alternate in many orders.
    for number in 0..1000usize {
        let which = (number ^ (number / 10)) % 3;
        assert_eq!(
            iteration(&device, ALL[which])?,
            expected[which],
            "turn {number}"
        );
    }
    let after = stats(&device, "plan");
    assert_eq!(
        (after.misses, after.divergences),
        (planned.misses, planned.divergences)
    );
    Ok(())
}

#[test]
fn all_sequences_share_one_slab() -> Result<()> {
    let alone = device();
    for _ in 0..3 {
        iteration(&alone, &FORWARD)?;
    }
    let device = device();
    for _ in 0..5 {
        ALL.iter()
            .try_for_each(|steps| iteration(&device, steps).map(drop))?;
    }
    let longest = stats(&alone, "plan").cached_bytes;
    assert_eq!(stats(&device, "plan").cached_bytes, longest);
    Ok(())
}

/// Both sequences make equal requests in the forward pass. Only in training, the arrays stay live
/// for the backward pass.
#[test]
fn sequences_that_begin_alike_may_drop_at_other_times() -> Result<()> {
    let device = device();
    let train = [
        N(4000),
        N(5000),
        N(6000),
        N(7000),
        N(20_000),
        D(4),
        D(3),
        D(2),
        N(5000),
        D(1),
        D(5),
        D(0),
    ];
    let evaluate = [
        N(4000),
        N(5000),
        D(0),
        N(6000),
        D(1),
        N(7000),
        D(2),
        N(900),
        D(3),
        D(4),
    ];
    for _ in 0..4 {
        iteration(&device, &train)?;
        iteration(&device, &evaluate)?;
    }
    let planned = stats(&device, "plan");
    assert_eq!(planned.cached_bytes, 43_008, "what training needs");
    let expected = (iteration(&device, &train)?, iteration(&device, &evaluate)?);
    for _ in 0..20 {
        assert_eq!(iteration(&device, &train)?, expected.0);
        assert_eq!(iteration(&device, &evaluate)?, expected.1);
        assert_eq!(iteration(&device, &evaluate)?, expected.1);
    }
    let after = stats(&device, "plan");
    assert_eq!(
        (after.misses, after.divergences),
        (planned.misses, planned.divergences)
    );
    Ok(())
}

/// An entry may change to another sequence in the middle. The other sequence's memory does not
/// overlap the arrays that are already live.
#[test]
fn what_one_sequence_left_alive_is_not_overwritten_by_another() -> Result<()> {
    let device = device();
    let mut bodies = vec![vec![N(8000), N(30_000), N(1000)]];
    for size in [10_000, 40_000, 2000, 50_000, 700] {
        let mut body = vec![
            N(8000),
            N(30_000),
            N(1000),
            N(size),
            D(0),
            N(size * 2),
            D(3),
        ];
        body.extend([N(size), D(1)]);
        bodies.push(body);
    }
    for round in 0..40usize {
        for number in 0..bodies.len() {
            iteration(&device, &bodies[(number * (round + 1)) % bodies.len()])?;
        }
    }
    Ok(())
}
