//! Futures that are suspended within a scope, by an `.await` that the macro cannot see. A
//! single-threaded executor runs the futures, so they need not be `Send`. The futures must not
//! share memory, and the statistics count exits out of order.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use cachescope::{Array, Device, Policy, Result, cache_scope, scope};

use crate::scopes::{POLICIES, device, stats};

macro_rules! wait {
    ($future:expr) => {
        $future.await
    };
}

/// Suspends the future once.
async fn pause() {
    let mut is_over = false;
    poll_fn(|_| match std::mem::replace(&mut is_over, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

type Task<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Runs the task until it ends or is suspended. Returns whether the task has ended.
fn step(task: &mut Task<'_>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    match task.as_mut().poll(&mut context) {
        Poll::Ready(outcome) => {
            outcome.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

/// Returns a task that fills arrays in a scope that is open across suspensions, and reads them at
/// the end.
fn task<'a>(device: &'a Device, name: &'a str, policy: Policy, value: i32) -> Task<'a> {
    Box::pin(async move {
        cache_scope!(name, device = device, policy = policy, {
            let first = Array::full(1000, value)?;
            wait!(pause());
            let second = Array::full(1000, -value)?;
            drop(Array::full(1000, 77)?);
            wait!(pause());
            assert_eq!(first.to_vec()?, [value; 1000]);
            assert_eq!(second.to_vec()?, [-value; 1000]);
        });
        Ok(())
    })
}

/// Returns the name of this thread's innermost scope.
fn innermost() -> Option<String> {
    scope::current().map(|scope| scope.name().to_owned())
}

#[test]
fn scopes_of_two_futures_share_nothing_and_the_wrong_order_is_reported() {
    for policy in POLICIES {
        let device = device();
        for round in 1..=4 {
            let mut tasks = [
                task(&device, "first", policy, 1),
                task(&device, "second", policy, 2),
            ];
            for _ in 0..2 {
                assert!(!step(&mut tasks[0]) && !step(&mut tasks[1]));
            }
            // The scope that was entered first is also exited first.
            assert!(step(&mut tasks[0]));
            assert_eq!(innermost().as_deref(), Some("second"));
            assert!(step(&mut tasks[1]));
            assert_eq!(innermost(), None, "both are left");
            let (first, second) = (stats(&device, "first"), stats(&device, "second"));
            assert_eq!(
                (first.out_of_order_exits, second.out_of_order_exits),
                (round, 0)
            );
            assert_eq!((first.entries, second.entries), (round, round));
            assert_eq!((first.live_blocks, second.live_blocks), (0, 0), "{policy}");
        }
        let _guard = device.enter();
        let report = scope::report().to_string();
        assert_eq!(report.matches("suspended").count(), 1, "{report}");
        device.trim(0);
        assert_eq!(device.memory_stats().live_blocks, 0);
    }
}

#[test]
fn a_future_that_is_dropped_inside_of_its_scope_leaves_it() {
    let device = device();
    // Exits in the reverse order of the entries are in order.
    for (order, told) in [([1, 0], 0), ([0, 1], 1)] {
        let policy = Policy::Recycle;
        let mut tasks = ["first", "second"].map(|name| Some(task(&device, name, policy, 3)));
        for task in tasks.iter_mut().flatten() {
            assert!(!step(task));
        }
        for index in order {
            tasks[index] = None;
        }
        assert_eq!(innermost(), None);
        assert_eq!(stats(&device, "first").out_of_order_exits, told);
        assert_eq!(stats(&device, "second").out_of_order_exits, 0);
    }
    assert_eq!(device.memory_stats().live_blocks, 0);
}

#[test]
fn the_report_names_the_scope_that_is_left_too_early() -> Result<()> {
    let device = device();
    let outer = device.scope("outer").enter();
    cache_scope!("inner", device = &device, {
        let innermost = device.scope("innermost").enter();
        drop(Array::<f32>::zeros(10)?);
        drop(innermost);
    });
    let later = device.enter();
    drop(outer);
    drop(later);
    assert_eq!(stats(&device, "outer").out_of_order_exits, 1);
    for name in ["inner", "innermost"] {
        assert_eq!(stats(&device, name).out_of_order_exits, 0, "{name}");
    }
    assert_eq!(innermost(), None);
    Ok(())
}
