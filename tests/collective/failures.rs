//! The errors that a rank's calls return when other ranks fail.

use std::panic::Location;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cachescope::collective::{Group, Reduce};
use cachescope::{Array, Device, DeviceConfig, Error, ErrorKind, Result};

/// Runs `body` on each rank and returns each rank's result, which may be an error.
fn outcomes(size: usize, body: impl Fn(&Group) -> Result<()> + Sync) -> Vec<Result<()>> {
    let recorded = Outcomes::new(size);
    // The result of `Group::threads` is ignored: it may be an error that no rank waited for.
    let _whole = Group::threads(size, |group| {
        recorded.record(group.rank(), body(&group));
        Ok(())
    });
    recorded.all()
}

/// The results of the ranks, one slot each. There is no mutex, because ThreadSanitizer does not
/// recognise the order that a contended lock of the standard library establishes.
struct Outcomes(Vec<OnceLock<Result<()>>>);

impl Outcomes {
    fn new(size: usize) -> Self {
        Self(vec![OnceLock::new(); size])
    }

    fn record(&self, rank: usize, outcome: Result<()>) {
        self.0[rank].set(outcome).expect("it tells once");
    }

    /// Returns the results, after all ranks have ended.
    fn all(self) -> Vec<Result<()>> {
        self.0
            .into_iter()
            .filter_map(OnceLock::into_inner)
            .collect()
    }
}

fn assert_all(outcomes: Vec<Result<()>>, kind: ErrorKind, texts: &[&str]) {
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.expect_err("every rank hears of it");
        assert_eq!(error.kind(), kind, "rank {rank}: {error}");
        for text in texts {
            assert!(error.to_string().contains(text), "rank {rank}: {error}");
        }
        assert!(
            error
                .location()
                .is_some_and(|place| place.file() == file!())
        );
    }
}

#[test]
fn another_shape_is_an_error_on_all_ranks() {
    let all = outcomes(3, |group| {
        let mut x = Array::<f32>::zeros(if group.rank() == 1 { 4 } else { 3 })?;
        let group = group.clone().checks(true);
        group.all_reduce_in_place(&mut x, Reduce::Sum)
    });
    assert_all(all, ErrorKind::ShapeMismatch, &["all_reduce", "[3]", "[4]"]);
}

#[test]
fn another_type_or_operation_is_an_error_on_all_ranks() {
    let all = outcomes(2, |group| {
        let group = group.clone().checks(true);
        match group.rank() {
            0 => group.all_reduce_in_place(&mut Array::<f32>::zeros(3)?, Reduce::Sum),
            _ => group.all_reduce_in_place(&mut Array::<i32>::zeros(3)?, Reduce::Sum),
        }
    });
    assert_all(all, ErrorKind::InvalidArgument, &["f32", "i32"]);
    let all = outcomes(2, |group| {
        let group = group.clone().checks(true);
        let x = Array::<f32>::zeros(4)?;
        match group.rank() {
            0 => group.all_gather(&x).map(drop),
            _ => group.reduce_scatter(&x, Reduce::Max).map(drop),
        }
    });
    let texts = ["all_gather", "reduce_scatter (max)"];
    assert_all(all, ErrorKind::InvalidArgument, &texts);
    let all = outcomes(2, |group| {
        let group = group.clone().checks(true);
        group.broadcast_in_place(&mut Array::<f32>::zeros(4)?, group.rank())
    });
    assert_all(
        all,
        ErrorKind::InvalidArgument,
        &["from rank 0", "from rank 1"],
    );
}

#[test]
fn a_disagreement_leaves_the_group_as_it_was() -> Result<()> {
    let sums = Group::threads(2, |group| {
        let group = group.checks(true);
        let mut x = Array::full(3 + group.rank(), 1.0f32)?;
        assert!(group.all_reduce_in_place(&mut x, Reduce::Sum).is_err());
        assert_eq!(
            x.to_vec()?,
            vec![1.0; 3 + group.rank()],
            "nothing was written"
        );
        let mut x = Array::full(3, 1.0f32)?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        x.to_vec()
    })?;
    assert_eq!(sums, [[2.0; 3]; 2]);
    Ok(())
}

/// Without checks, a collective call returns at once. Later, a read, a synchronisation and
/// `Group::threads` return the error.
#[test]
fn without_checks_the_reader_gets_the_error() {
    let all = outcomes(2, |group| {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let group = group.clone().checks(false);
        let mut x = Array::<f32>::zeros(3 + group.rank())?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)?;
        let whole = device.synchronize();
        assert_eq!(whole.unwrap_err().kind(), ErrorKind::ShapeMismatch);
        let read = x.to_vec().map(drop);
        // The error has the line of the collective call, not of the read.
        let place = read.as_ref().err().and_then(Error::location);
        assert_eq!(place.map(Location::line), Some(line!() - 6));
        read
    });
    assert!(all.iter().all(Result::is_err));
    let ended = Group::threads(2, |group| {
        let device = Device::host_with(DeviceConfig::default())?;
        let _current = device.enter();
        let group = group.checks(false);
        let mut x = Array::<f32>::zeros(3 + group.rank())?;
        group.all_reduce_in_place(&mut x, Reduce::Sum)
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn a_failure_that_the_body_has_handled_is_no_failure_of_the_rank() {
    for waits_by_reading in [true, false] {
        let handled = Group::threads(2, |group| {
            let group = group.checks(false);
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let mut x = Array::<f32>::zeros(3 + group.rank())?;
            group.all_reduce_in_place(&mut x, Reduce::Sum)?;
            Ok(match waits_by_reading {
                true => x.to_vec().is_err(),
                false => device.synchronize().is_err(),
            })
        });
        assert_eq!(handled.unwrap(), [true; 2]);
    }
}

/// Runs `body` on rank 2, which then ends, and an all-reduce on ranks 0 and 1. Checks that ranks 0
/// and 1 fail in time, with an error that contains `text`.
fn ending(body: impl Fn(&Group) -> Result<()> + Sync, text: &str) {
    for checks in [true, false] {
        let began = Instant::now();
        let recorded = Outcomes::new(3);
        let ended = Group::threads(3, |group| {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let group = group.checks(checks);
            if group.rank() == 2 {
                return body(&group);
            }
            let mut x = Array::full(1000, 1.0f32)?;
            let exchanged = group.all_reduce_in_place(&mut x, Reduce::Sum);
            let read = exchanged.and_then(|()| x.to_vec().map(drop));
            recorded.record(group.rank(), read);
            Ok(())
        });
        drop(ended);
        let outcomes = recorded.all();
        assert_eq!(outcomes.len(), 2);
        for outcome in outcomes {
            let error = outcome.expect_err("the third never came");
            assert_eq!(error.kind(), ErrorKind::Communication);
            assert!(error.to_string().contains("rank 2"), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_rank_that_ends_is_named() {
    ending(|_| Ok(()), "it has ended");
}

#[test]
fn a_rank_that_fails_is_named_with_its_error() {
    ending(
        |_| Array::<f32>::zeros(2)?.reshape(3).map(drop),
        "it failed: reshape",
    );
}

#[test]
fn a_rank_without_memory_is_named() {
    let without_memory = |_: &Group| {
        let device = Device::host_with(DeviceConfig {
            memory_limit: Some(1 << 20),
            ..DeviceConfig::default()
        })?;
        let _current = device.enter();
        Array::<f32>::zeros(1 << 20).map(drop)
    };
    ending(without_memory, "out of memory");
    // `Group::threads` returns the original error, not the error of rank 0.
    let ended = Group::threads(2, |group| match group.rank() {
        0 => group.barrier(),
        _ => without_memory(&group),
    });
    assert!(ended.unwrap_err().is_out_of_memory());
}

#[test]
fn a_rank_that_panics_ends_the_others() {
    let ended = std::panic::catch_unwind(|| {
        Group::threads(2, |group| {
            assert_eq!(group.rank(), 0, "this rank panics");
            let error = group.barrier().unwrap_err();
            assert!(error.to_string().contains("rank 1"), "{error}");
            assert!(error.to_string().contains("it panicked"), "{error}");
            Ok(())
        })
    });
    let panic = ended.unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("this rank panics"));
}

#[test]
fn a_rank_that_hangs_is_named_in_time() {
    let all = outcomes(3, |group| {
        let group = group.clone().timeout(Duration::from_millis(200));
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(900));
        }
        group.barrier()
    });
    for (rank, outcome) in all.into_iter().enumerate() {
        let text = outcome.unwrap_err().to_string();
        match rank {
            // Rank 1 calls after the other ranks have timed out.
            1 => assert!(text.contains("no longer participates"), "{text}"),
            _ => assert!(
                text.contains("rank 1 has not made the matching call within 200ms"),
                "{text}"
            ),
        }
    }
}

#[test]
fn groups_in_two_orders_are_an_error() {
    for checks in [true, false] {
        let began = Instant::now();
        let all = outcomes(2, |group| {
            let device = Device::host_with(DeviceConfig::default())?;
            let _current = device.enter();
            let group = group.clone().checks(checks);
            let mut both = [group.split(0, 0)?, group.split(0, 0)?];
            if group.rank() == 1 {
                both.reverse();
            }
            let mut x = Array::full(100, 1.0f32)?;
            for group in &both {
                group.all_reduce_in_place(&mut x, Reduce::Sum)?;
            }
            x.to_vec().map(drop)
        });
        for outcome in all {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Communication);
            assert!(error.to_string().contains("one order"), "{error}");
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

/// In this deadlock of three ranks, no two ranks wait for each other.
#[test]
fn a_deadlock_of_groups_is_an_error() {
    let all = outcomes(3, |group| {
        let own = group.rank();
        let pairs: Vec<Group> = (0..3)
            .map(|left_out| group.split(usize::from(own == left_out), 0))
            .collect::<Result<_>>()?;
        // Group `i` contains all ranks except rank `i`. Ranks 0, 1 and 2 begin with groups 2, 0 and
        // 1.
        let order = [2, 0, 1][own];
        pairs[order].barrier()?;
        pairs[(order + 2) % 3].barrier()
    });
    assert!(all.iter().any(Result::is_err));
    for error in all.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Communication, "{error}");
    }
}

#[test]
fn a_group_is_not_used_after_its_end() -> Result<()> {
    let groups = Group::threads(2, Ok)?;
    assert_eq!(groups[1].rank(), 1);
    let mut x = Array::<f32>::zeros(3)?;
    let errors: [Error; 3] = [
        groups[0]
            .all_reduce_in_place(&mut x, Reduce::Sum)
            .unwrap_err(),
        groups[1].barrier().unwrap_err(),
        groups[1].split(0, 0).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("after its end"), "{error}");
    }
    assert_eq!(x.to_vec()?, [0.0; 3]);
    Ok(())
}

#[test]
fn a_group_that_a_rank_dropped_is_an_error() -> Result<()> {
    Group::threads(2, |group| {
        let part = group.split(0, 0)?;
        part.barrier()?;
        if group.rank() == 0 {
            drop(part);
            std::thread::sleep(Duration::from_millis(700));
            return Ok(());
        }
        let error = part.barrier().unwrap_err().to_string();
        assert!(error.contains("rank 0"), "{error}");
        assert!(error.contains("it has dropped the group"), "{error}");
        Ok(())
    })?;
    Ok(())
}

#[test]
fn arguments_that_no_group_takes() -> Result<()> {
    assert_eq!(
        Group::threads(0, |_| Ok(())).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    Group::threads(2, |group| {
        let mut x = Array::<f32>::zeros(3)?;
        let kind = |outcome: Result<()>| outcome.unwrap_err().kind();
        assert_eq!(
            kind(group.broadcast_in_place(&mut x, 2)),
            ErrorKind::InvalidArgument
        );
        assert_eq!(kind(group.send(&x, 5)), ErrorKind::InvalidArgument);
        assert_eq!(
            kind(group.all_to_all(&x).map(drop)),
            ErrorKind::InvalidShape
        );
        let mut mask = Array::from_slice(&[true], 1)?;
        assert_eq!(
            kind(group.all_reduce_in_place(&mut mask, Reduce::Sum)),
            ErrorKind::InvalidArgument
        );
        let mut whole = Array::<i32>::zeros(1)?;
        assert_eq!(
            kind(group.all_reduce_in_place(&mut whole, Reduce::Mean)),
            ErrorKind::InvalidArgument
        );
        // A receive into an array of another length fails.
        let other = 1 - group.rank();
        group.send(&x, other)?;
        let received = group
            .clone()
            .checks(true)
            .recv(&mut Array::<f32>::zeros(4)?, other);
        assert_eq!(kind(received), ErrorKind::ShapeMismatch);
        Ok(())
    })?;
    Ok(())
}

/// Gradients do not pass through collective calls.
#[test]
fn refuses_tracked_values() -> Result<()> {
    Group::threads(2, |group| {
        let x = Array::<f32>::ones(3)?;
        let outcome = cachescope::grad::value_and_grad(&x, |x| {
            let mut squares = x.square().eval()?;
            group.all_reduce_in_place(&mut squares, Reduce::Sum)?;
            squares.sum()
        });
        assert_eq!(
            outcome.map(drop).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        Ok(())
    })?;
    Ok(())
}
