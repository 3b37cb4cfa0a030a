//! The transport of a group's calls: the worker of this rank, or NCCL.

use super::call::{Call, Operation};
use super::engine::{Members, Settings, WORLD, Work};
use super::memory::Spans;
use super::nccl::NcclCarrier;
use super::worker::Worker;
use crate::error::{Error, ErrorKind, Result};
use crate::sorting::sort_ascending;
use crate::sync::Arc;
use crate::sync::plain::{AtomicU64, Ordering};

/// The transport of one rank of a group.
#[derive(Debug)]
pub(super) enum Carrier {
    /// The worker of this rank.
    Host(HostCarrier),
    /// NCCL, on a stream of the rank's device.
    Nccl(NcclCarrier),
}

impl Carrier {
    pub(super) fn rank(&self) -> usize {
        match self {
            Self::Host(host) => host.members.own,
            Self::Nccl(nccl) => nccl.rank,
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Host(host) => host.members.size(),
            Self::Nccl(nccl) => nccl.size,
        }
    }

    #[track_caller]
    pub(super) fn submit(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        if spans.device().backend().is_capturing() {
            let name = call.operation.name();
            let text = format!("{name}: cannot be captured: call it before or after the capture");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        match self {
            Self::Host(host) => host.submit(call, spans, settings),
            Self::Nccl(nccl) => nccl.submit(call, spans, settings),
        }
    }

    #[track_caller]
    pub(super) fn barrier(&self, settings: Settings) -> Result<()> {
        match self {
            Self::Host(host) => host.barrier(settings),
            Self::Nccl(nccl) => nccl.barrier(settings),
        }
    }

    /// Broadcasts words of metadata from rank 0, and returns them on every rank. All ranks must
    /// pass the same number of words.
    #[track_caller]
    pub(super) fn broadcast_words(&self, words: Vec<u64>, settings: Settings) -> Result<Vec<u64>> {
        match self {
            Self::Host(host) => host.broadcast_words(words, settings),
            Self::Nccl(nccl) => nccl.broadcast_words(&words, settings),
        }
    }

    /// Marks this rank as gone, after the queued calls. With NCCL, does nothing: NCCL cannot report
    /// that a rank is gone.
    pub(super) fn leave(&self, reason: String) {
        match self {
            Self::Host(host) => host.worker.leave(reason),
            Self::Nccl(_) => {}
        }
    }

    #[track_caller]
    pub(super) fn split(&self, place: (usize, usize), settings: Settings) -> Result<Self> {
        match self {
            Self::Host(host) => host.split(place, settings).map(Self::Host),
            Self::Nccl(nccl) => nccl.split(place).map(Self::Nccl),
        }
    }
}

/// The transport of one rank of a group whose calls a worker executes.
#[derive(Debug)]
pub(super) struct HostCarrier {
    worker: Arc<Worker>,
    members: Arc<Members>,
}

impl HostCarrier {
    pub(super) fn new(worker: Arc<Worker>, members: Members) -> Self {
        Self {
            worker,
            members: Arc::new(members),
        }
    }

    #[track_caller]
    fn submit(&self, call: Call, spans: Spans<'_>, settings: Settings) -> Result<()> {
        self.worker.submit(self.work(call, settings), spans)
    }

    #[track_caller]
    fn barrier(&self, settings: Settings) -> Result<()> {
        let work = self.work(Call::of_words(Operation::Barrier, 0), settings);
        self.worker.call_and_wait(work, Vec::new(), 0).map(drop)
    }

    #[track_caller]
    fn broadcast_words(&self, own: Vec<u64>, settings: Settings) -> Result<Vec<u64>> {
        let work = self.work(Call::of_words(Operation::Broadcast(0), own.len()), settings);
        let words = self.worker.call_and_wait(work, own.clone(), own.len())?;
        Ok(if self.members.own == 0 { own } else { words })
    }

    /// Divides the group. Every rank sends its color, its key, and a candidate group number to all
    /// ranks. The candidate of the first rank of each color becomes the number of that color's
    /// group.
    #[track_caller]
    fn split(&self, (color, key): (usize, usize), settings: Settings) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Members { ranks, own, .. } = &*self.members;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The ranks of one process share `NEXT`, which makes their numbers unique. The world rank
        // in the upper bits makes the numbers of different processes unique.
        let group = ((ranks[*own] as u64) << 40) | number;
        let words = vec![color as u64, key as u64, group];
        let work = self.work(Call::of_words(Operation::AllGather, words.len()), settings);
        let size = ranks.len();
        let all = self.worker.call_and_wait(work, words, 3 * size)?;
        let of = |rank: usize| (all[3 * rank], all[3 * rank + 1], all[3 * rank + 2]);
        let mut same: Vec<usize> = (0..size)
            .filter(|&rank| of(rank).0 == color as u64)
            .collect();
        sort_ascending(&mut same, |&rank| of(rank).1);
        let place = same.iter().position(|rank| rank == own);
        let members = Members {
            group: of(same[0]).2,
            own: place.expect("a rank is among the ranks of its color"),
            ranks: same.into_iter().map(|rank| ranks[rank]).collect(),
        };
        Ok(Self::new(Arc::clone(&self.worker), members))
    }

    fn work(&self, call: Call, settings: Settings) -> Work {
        Work {
            members: Arc::clone(&self.members),
            call,
            settings,
        }
    }
}

impl Drop for HostCarrier {
    fn drop(&mut self) {
        // The world's group ends when its rank ends, and the rank then reports the reason itself.
        if self.members.group != WORLD {
            self.worker.end_group(Arc::clone(&self.members));
        }
    }
}
