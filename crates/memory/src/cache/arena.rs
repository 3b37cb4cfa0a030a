//! Arenas: blocks that are divided into suballocations.
//!
//! A suballocation has its own header. The header's class, [`SUBALLOCATION`], is above all size
//! classes. If a suballocation drops, it goes to the free list of this class. So all drops share
//! one path without a further branch. In the free list of its own size, a suballocation could serve
//! any request of this size. The arena could then not detect that all its suballocations are free.

use crate::device::DevicePtr;
use crate::memory::header::{Header, List};
use crate::pool::size_class::CLASSES;

/// The class of a suballocation, above all size classes.
pub(super) const SUBALLOCATION: usize = CLASSES;
pub(super) const ARENA: usize = CLASSES + 1;

/// The arenas of a policy. The policy's cursor is in the first arena.
#[derive(Default)]
pub(super) struct Arenas(List);

impl Arenas {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().count()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<&Header> {
        self.0.iter().next()
    }

    pub(super) fn push(&mut self, arena: Box<Header>) {
        self.0.push(arena);
    }

    pub(super) fn swap_first(&mut self) {
        let (first, second) = (self.0.pop(), self.0.pop());
        let pair = first.into_iter().chain(second);
        pair.for_each(|arena| self.0.push(arena));
    }

    pub(super) fn take(&mut self) -> List {
        std::mem::take(&mut self.0)
    }

    pub(super) fn bytes(&self) -> u64 {
        bytes(self.0.iter())
    }

    pub(super) fn full_bytes(&self) -> u64 {
        bytes(self.0.iter().skip(1))
    }

    pub(super) fn holds(&self, address: DevicePtr) -> bool {
        self.0.iter().any(|arena| holds(arena, address))
    }

    /// Moves the uses by other streams from a freed suballocation to its arena. The arena then
    /// waits for these uses.
    pub(super) fn share(&mut self, suballocation: &mut Header) {
        share(&mut self.0, suballocation);
    }

    /// Returns true if other streams may still use an arena. The memory of the arenas must then not
    /// be reused.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        !self.0.iter().all(|arena| arena.block.other_uses.is_empty())
    }
}

/// Arenas with suballocations that outlived their entry.
#[derive(Default)]
pub(super) struct DetachedArenas(Vec<Detached>);

/// Arenas that were detached in one epoch.
///
/// Invariant: `live` is the number of live suballocations of the arenas, and is at least 1.
struct Detached {
    /// The epoch in which the suballocations became live, and in which the arenas were detached.
    epoch: u64,
    live: usize,
    live_bytes: u64,
    arenas: List,
}

impl DetachedArenas {
    /// Adds arenas with `live` live suballocations of `live_bytes` bytes in total. The
    /// suballocations became live in `epoch`.
    pub(super) fn add(&mut self, epoch: u64, (live, live_bytes): (usize, u64), mut arenas: List) {
        match self.0.iter_mut().find(|detached| detached.epoch == epoch) {
            Some(detached) => {
                detached.live += live;
                detached.live_bytes += live_bytes;
                detached.arenas.append(&mut arenas);
            }
            None => self.0.push(Detached {
                epoch,
                live,
                live_bytes,
                arenas,
            }),
        }
    }

    /// Frees a suballocation of `epoch`. If no suballocation of `epoch` is live any more, returns
    /// the arenas of `epoch`.
    pub(super) fn free(&mut self, epoch: u64, bytes: u64) -> List {
        let position = self.0.iter().position(|detached| detached.epoch == epoch);
        let Some(index) = position else {
            return List::new();
        };
        self.0[index].live_bytes -= bytes;
        self.0[index].live -= 1;
        if self.0[index].live > 0 {
            return List::new();
        }
        self.0.swap_remove(index).arenas
    }

    /// Adds a live suballocation to the arena that contains `address`. Returns the arena and its
    /// epoch.
    pub(super) fn export(&mut self, address: DevicePtr) -> Option<(&Header, u64)> {
        self.0.iter_mut().find_map(|detached| {
            let arena = detached.arenas.iter().find(|arena| holds(arena, address))?;
            detached.live += 1;
            Some((arena, detached.epoch))
        })
    }

    pub(super) fn share(&mut self, suballocation: &mut Header) {
        for detached in &mut self.0 {
            share(&mut detached.arenas, suballocation);
        }
    }

    /// Returns the bytes of detached arenas outside live suballocations. The bytes of a detached
    /// arena are unusable until its last suballocation drops.
    pub(super) fn unused_bytes(&self) -> u64 {
        let unused = |own: &Detached| bytes(own.arenas.iter()) - own.live_bytes;
        self.0.iter().map(unused).sum()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let live = self.0.iter().inspect(|detached| assert!(detached.live > 0));
        bytes(live.flat_map(|detached| detached.arenas.iter()))
    }
}

fn share(arenas: &mut List, suballocation: &mut Header) {
    let block = &mut suballocation.block;
    arenas.for_each_mut(|arena| {
        if holds(arena, block.address) {
            arena
                .block
                .other_uses
                .merge(std::mem::take(&mut block.other_uses));
        }
    });
}

fn holds(arena: &Header, address: DevicePtr) -> bool {
    let first = arena.block.address.0;
    (first..first + arena.block.bytes()).contains(&address.0)
}

fn bytes<'a>(arenas: impl Iterator<Item = &'a Header>) -> u64 {
    arenas.map(|arena| arena.block.bytes()).sum()
}
