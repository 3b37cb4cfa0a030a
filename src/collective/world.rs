//! A world of threads: its beginning and its end.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::{self, Builder, ScopedJoinHandle};

use super::carrier::{Carrier, HostCarrier};
use super::engine::Members;
use super::group::Group;
use super::threads::{RankStatus, ThreadEngine};
use super::worker::{Worker, not_started};
use crate::context::Device;
use crate::error::{AtCaller, Error, ErrorKind, Result};

impl Group {
    /// Runs `body` on `size` threads at once. Each thread is one rank of a group. Returns the
    /// results of the threads in rank order. Needs no other process, so it suits tests and machines
    /// with one device.
    ///
    /// Every thread starts with the caller's current device. A rank that needs another device must
    /// enter it. Every thread has its own scopes and random numbers. The group ends when this
    /// function returns. A later call on a clone of the group returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::collective::{Group, Reduce};
    ///
    /// let sums = Group::threads(3, |group| {
    ///     let mut x = Array::full([2, 2], group.rank() as f64)?;
    ///     group.all_reduce_in_place(&mut x, Reduce::Sum)?;
    ///     x.sum()?.item()
    /// })?;
    /// assert_eq!(sums, [12.0, 12.0, 12.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of one rank. If several ranks fail, errors that only report the end of another
    /// rank have the lowest precedence. If no waiting thread received the error of a failed
    /// exchange, it is the error of the rank that issued the exchange.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `size` is 0.
    /// [`Thread`](ErrorKind::Thread) if a thread cannot be started.
    ///
    /// # Panics
    ///
    /// If a rank panics. The panic resumes when all ranks have ended.
    #[track_caller]
    pub fn threads<R: Send>(
        size: usize,
        body: impl Fn(Self) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        if size == 0 {
            let text = "Group::threads: the group has 0 ranks, expected at least 1";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let device = Device::current();
        let run = |engine| {
            let _current = device.enter();
            run_rank(engine, size, &body)
        };
        let outcomes: Vec<_> = thread::scope(|threads| {
            let engines = ThreadEngine::world(size);
            let start = |engine: ThreadEngine| {
                let status = engine.status();
                let thread = Builder::new().spawn_scoped(threads, || run(engine));
                // The rank is marked as gone, because the other ranks may wait for it.
                thread.map_err(|error| absent(&status, not_started("the thread", error)))
            };
            let ranks: Vec<_> = engines.into_iter().map(start).collect();
            ranks
                .into_iter()
                .map(|rank| rank.map(ScopedJoinHandle::join))
                .collect()
        });
        let outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome?.unwrap_or_else(|panic| resume_unwind(panic)));
        all_or_first(outcomes.collect()).at_caller()
    }

    /// Returns a group whose only rank is this process.
    #[track_caller]
    pub(super) fn alone() -> Result<Self> {
        let engine = ThreadEngine::world(1)
            .pop()
            .expect("the world has one rank");
        let (worker, _) = Worker::start(0, Box::new(engine))?;
        Ok(Self::over(Carrier::Host(HostCarrier::new(
            worker,
            Members::all(0, 1),
        ))))
    }
}

/// Runs one rank. The rank's worker thread lives as long as the body, and completes the exchanges
/// that the body began.
fn run_rank<R>(engine: ThreadEngine, size: usize, body: &impl Fn(Group) -> Result<R>) -> Result<R> {
    let status = engine.status();
    let rank = status.rank;
    let started = Worker::start(rank, Box::new(engine));
    let (worker, thread) = started.map_err(|error| absent(&status, error))?;
    let carrier = HostCarrier::new(worker.clone(), Members::all(rank, size));
    let group = Group::over(Carrier::Host(carrier));
    match catch_unwind(AssertUnwindSafe(|| body(group))) {
        Ok(Ok(result)) => {
            worker.close();
            // If the worker thread panicked, the stream reports the panic to the threads that wait
            // for the stream.
            let unreported = thread.join().ok().flatten();
            status.mark_gone("it has ended");
            unreported.map_or(Ok(result), Err)
        }
        Ok(Err(error)) => {
            let error = absent(&status, error);
            worker.close();
            Err(error)
        }
        Err(panic) => {
            status.mark_gone("it panicked");
            worker.close();
            resume_unwind(panic)
        }
    }
}

/// Marks a rank as gone because of `error`, and returns the error.
fn absent(status: &RankStatus, error: Error) -> Error {
    status.mark_gone(&format!("it failed: {error}"));
    error
}

/// Returns the results of all ranks, or the error that caused the other errors.
fn all_or_first<R>(outcomes: Vec<Result<R>>) -> Result<Vec<R>> {
    let is_cause = |outcome: &Result<R>| {
        let error = outcome.as_ref().err();
        error.is_some_and(|error| error.kind() != ErrorKind::Communication)
    };
    let cause = outcomes.iter().position(is_cause);
    let failed = cause.or_else(|| outcomes.iter().position(Result::is_err));
    let Some(rank) = failed else {
        return outcomes.into_iter().collect();
    };
    let failed = outcomes.into_iter().nth(rank).and_then(Result::err);
    Err(failed.expect("it failed").of(&format!("rank {rank}")))
}
