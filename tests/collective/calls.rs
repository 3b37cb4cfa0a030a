//! The results of collective calls on threads, compared with results that one rank computes alone.

use std::sync::Barrier;

use cachescope::collective::{Group, Reduce};
use cachescope::{Array, Result};

use super::bodies;

/// Runs `body` on groups of these sizes.
fn on_threads(sizes: &[usize], body: fn(&Group) -> Result<()>) -> Result<()> {
    for size in sizes {
        Group::threads(*size, |group| body(&group))?;
    }
    Ok(())
}

#[test]
fn numbers_are_reduced() -> Result<()> {
    on_threads(&[1, 2, 3, 4], bodies::numbers_are_reduced)
}

#[test]
fn means_and_complex_numbers() -> Result<()> {
    on_threads(&[1, 4], bodies::means_and_complex_numbers)
}

#[test]
fn sums_are_in_the_order_of_the_ranks() -> Result<()> {
    on_threads(&[4], bodies::sums_are_in_the_order_of_the_ranks)
}

#[test]
fn one_rank_gives_and_one_gets() -> Result<()> {
    on_threads(&[3], bodies::one_rank_gives_and_one_gets)
}

#[test]
fn parts_are_sent_to_their_ranks() -> Result<()> {
    on_threads(&[3], bodies::parts_are_sent_to_their_ranks)
}

#[test]
fn arrays_are_sent_and_received_in_order() -> Result<()> {
    on_threads(&[3], bodies::arrays_are_sent_and_received_in_order)
}

#[test]
fn messages_of_groups_are_separate() -> Result<()> {
    on_threads(&[2], bodies::messages_of_groups_are_separate)
}

#[test]
fn views_are_read_and_written() -> Result<()> {
    on_threads(&[2], bodies::views_are_read_and_written)
}

#[test]
fn groups_divide() -> Result<()> {
    on_threads(&[5], bodies::groups_divide)
}

#[test]
fn a_world_of_one() -> Result<()> {
    on_threads(&[1], bodies::a_world_of_one)
}

#[test]
fn calls_are_ordered_like_any_operation() -> Result<()> {
    on_threads(&[3], bodies::calls_are_ordered_like_any_operation)
}

#[test]
fn debug_of_an_array_does_not_wait_for_an_exchange() -> Result<()> {
    let printed = Barrier::new(2);
    Group::threads(2, |group| {
        // Without checks, a call does not wait for the other ranks.
        let group = group.checks(false);
        let mut x = Array::full(2, 1.0f32)?;
        if group.rank() == 1 {
            printed.wait();
        }
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        if group.rank() == 0 {
            let text = format!("{x:?}");
            printed.wait();
            assert_eq!(text, "array(..., shape=[2], dtype=f32, device=host)");
        }
        assert_eq!(x.to_string(), "[2. 2.]");
        let text = "array([2., 2.], shape=[2], dtype=f32, device=host)";
        assert_eq!(format!("{x:?}"), text);
        Ok(())
    })?;
    Ok(())
}
