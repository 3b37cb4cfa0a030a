//! What a shard holds, and how its blocks go in and out. Plain bookkeeping: who may, and when, stands
//! in [`shard`](super::shard).
//!
//! Architecture invariant: nothing here calls foreign code or drops a handle on a block, so nothing
//! comes back to the shard while its inside is borrowed.

mod entry;

use std::ptr::NonNull;

use crate::cache::aging::Aging;
use crate::cache::bump::Bump;
use crate::cache::chunk::{PART, SetAside};
use crate::cache::identity::Identity;
use crate::cache::plans::Plans;
use crate::cache::policy::Policy;
use crate::cache::record::{NOTED, Recording};
use crate::cache::shard::Shard;
use crate::cache::stats::Counters;
use crate::cache::{Size, Wanted};
use crate::device::{Backend, StreamId};
use crate::memory::Block;
use crate::memory::header::{Handle, Header, List};
use crate::memory::order::StreamSet;
use crate::memory::pending::{EventQueue, StreamEvents};
use crate::pool::Rounding;
use crate::pool::size_class::{CLASSES, floor_class};

/// The stamp of a block that belongs to no cache: older than any clock.
pub(in crate::cache) const UNCACHED_STAMP: u64 = 0;
/// The stamp of a header without a block, for arrays of no bytes.
pub(in crate::cache) const EMPTY_STAMP: u64 = u64::MAX >> 1;

/// Which way requests take first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    /// The block of the size that came back last.
    Bins,
    /// The next part of the chunk.
    Bump,
    /// The next part of the slab.
    Plan,
    /// The slow one, which notes them.
    Slowly,
}

/// One for each class, and more up to a power of two: indexing needs no branch, and no way out. One of
/// those is that of the parts.
const BINS: usize = CLASSES.next_power_of_two();

/// Invariants, asserted by [`Access::check`]:
/// - a bin holds idle blocks of its class, and what the shard owns is live, in a bin, pending or stale;
///   chunks and their parts are as [`Bump`] and [`Plans`] say, or set aside;
/// - what is in a bin is its own stream's alone;
/// - `exited_at` and `invalidated_at` are at most `clock`;
/// - `depth` is 0 unless a thread is inside.
pub(in crate::cache) struct Inner {
    pub(in crate::cache) bins: [List<Shard>; BINS],
    /// The classes that blocks were ever made of: where it is worth looking for idle ones.
    classes: [u64; CLASSES.div_ceil(64)],
    /// What goes to the pool at the next opportunity: dropping must not lock.
    pub(in crate::cache) stale: List<Shard>,
    /// Dropped while other streams may still use them: dropping must record no event.
    pub(in crate::cache) shared: List<Shard>,
    /// The same with the events that they wait for.
    pub(in crate::cache) pending: EventQueue<Box<Header<Shard>>>,
    /// Entries that have not been left.
    pub(in crate::cache) depth: u64,
    /// Moves on at each outermost exit and each invalidation; stamps the blocks handed out.
    pub(in crate::cache) clock: u64,
    /// Blocks stamped before this escaped.
    pub(in crate::cache) exited_at: u64,
    /// Blocks stamped before this go to the pool when they drop.
    pub(in crate::cache) invalidated_at: u64,
    pub(in crate::cache) policy: Policy,
    serving: Serving,
    fills: bool,
    /// Whether the settings want each entry recorded.
    records: bool,
    /// Of the present entry, for who asked or for a plan.
    recording: Option<Recording>,
    /// What the shard had served when the last planned entry ended.
    served: u64,
    /// The version of the settings that `policy` and `aging` were read from.
    version: u64,
    pub(in crate::cache) aging: Aging,
    /// The clock from which on an exit has something to do for the policy.
    pub(in crate::cache) due_at: u64,
    pub(in crate::cache) bump: Bump,
    pub(in crate::cache) plans: Plans,
    pub(in crate::cache) aside: SetAside,
    /// The most that was handed out, by the blocks' own length, at some miss.
    pub(in crate::cache) peak_out_bytes: u64,
    /// The same at the end of the entry before.
    pub(in crate::cache) known_out_bytes: u64,
    /// The `live_bytes` that the device's ledger knows of.
    pub(in crate::cache) published_bytes: u64,
    /// Headers without a block that are handed out.
    pub(in crate::cache) empties: u64,
}

impl Inner {
    /// Of a cache, or of the blocks that belong to none; on a device that fills every block it hands
    /// out, nothing goes at once.
    pub(in crate::cache) fn new(uncached: bool, fills: bool) -> Self {
        let serving = if fills {
            Serving::Slowly
        } else {
            Serving::Bins
        };
        Self {
            fills,
            bins: [const { List::new() }; BINS],
            classes: [0; CLASSES.div_ceil(64)],
            stale: List::new(),
            shared: List::new(),
            pending: EventQueue::new(),
            depth: 0,
            clock: 1,
            exited_at: UNCACHED_STAMP,
            invalidated_at: if uncached { 1 } else { 0 },
            policy: Policy::Recycle,
            serving,
            records: false,
            recording: None,
            served: 0,
            version: 0,
            aging: Aging::default(),
            due_at: u64::MAX,
            bump: Bump::new(),
            plans: Plans::new(),
            aside: SetAside::default(),
            peak_out_bytes: 0,
            known_out_bytes: 0,
            published_bytes: 0,
            empties: 0,
        }
    }

    #[inline]
    fn bin(&mut self, class: usize) -> &mut List<Shard> {
        const { assert!(CLASSES <= PART && PART < BINS) };
        &mut self.bins[class & (BINS - 1)]
    }

    /// Serves a request with the block that came back last, if it fits exactly: the hit.
    #[inline]
    pub(in crate::cache) fn take_at_once(
        &mut self,
        counters: &Counters,
        size: impl FnOnce() -> Option<Size>,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        if self.serving != Serving::Bins {
            return None; // First: what serves otherwise has no use for the class.
        }
        let size = size()?;
        let header = self.take_last(size, stream)?;
        Some(self.hand_out(counters, header, size.requested_bytes))
    }

    #[inline]
    fn take_last(&mut self, size: Size, stream: StreamId) -> Option<Box<Header<Shard>>> {
        self.bin(size.class).pop_if(|header| {
            header.block.bytes() == size.rounded_bytes && header.block.stream == stream
        })
    }

    /// The same with the next part of the chunk.
    #[inline]
    pub(in crate::cache) fn take_bump(
        &mut self,
        counters: &Counters,
        bytes: u64,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        if self.serving != Serving::Bump {
            return None;
        }
        let (idle, rounded_bytes) = (&mut self.bins[PART], Rounding::Units.round(bytes)?);
        let header = self.bump.take(idle, rounded_bytes, stream, self.clock)?;
        Some(self.hand_out(counters, header, bytes))
    }

    /// The same with the next part of the slab.
    #[inline]
    pub(in crate::cache) fn take_planned(
        &mut self,
        counters: &Counters,
        bytes: u64,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        if self.serving != Serving::Plan {
            return None;
        }
        let (idle, rounded_bytes) = (&mut self.bins[PART], Rounding::Units.round(bytes)?);
        let header = self.plans.take(idle, rounded_bytes, stream)?;
        Some(self.hand_out(counters, header, bytes))
    }

    /// The next part, for a request that was not served at once.
    pub(in crate::cache) fn next_part(
        &mut self,
        size: Size,
        stream: StreamId,
    ) -> Option<Box<Header<Shard>>> {
        let idle = &mut self.bins[PART];
        match self.policy {
            Policy::Bump => {
                self.bump.provide_end();
                let clock = self.clock;
                self.bump.take(idle, size.rounded_bytes, stream, clock)
            }
            Policy::Plan => self.plans.take(idle, size.rounded_bytes, stream),
            Policy::Recycle | Policy::Release => None,
        }
    }

    /// The tightest fit of the bins that wastes an eighth at most, the last that came back of equals.
    pub(in crate::cache) fn tightest(
        &mut self,
        size: Size,
        stream: StreamId,
    ) -> Option<Box<Header<Shard>>> {
        let waste_bytes = size.rounded_bytes / 8;
        let excess = |header: &Header<Shard>| {
            let fits = header.block.stream == stream;
            let excess = header.block.bytes().checked_sub(size.rounded_bytes);
            excess.filter(|excess| fits && *excess <= waste_bytes)
        };
        let last = floor_class(size.rounded_bytes.saturating_add(waste_bytes));
        let mut classes = size.class..=last;
        classes.find_map(|class| self.bin(class).take_best(excess))
    }

    /// Hands a block out that did not come at once, and notes it where the entry is recorded.
    pub(in crate::cache) fn hand_out_noted(
        &mut self,
        counters: &Counters,
        mut header: Box<Header<Shard>>,
        wanted: &Wanted,
    ) -> Handle<Shard> {
        let mut stamp = self.clock;
        if let Some(recording) = &mut self.recording {
            if let Some(number) = recording.allocated(wanted) {
                header.ticket = number;
                stamp |= NOTED;
            } else if recording.is_open() {
                // This request is counted already.
                recording.cut(counters.served().wrapping_sub(1), self.records);
                self.choose_serving();
            }
        }
        if header.class != PART
            && self.plans.is_following()
            && !self.plans.pass(wanted.size, wanted.stream)
        {
            self.stop_following(); // A request that was passed over must not count as idle.
        }
        let requested_bytes = wanted.size.requested_bytes;
        counters.count_out(header.block.bytes(), requested_bytes);
        header.hand_out(requested_bytes, stamp)
    }

    #[inline]
    fn hand_out(
        &self,
        counters: &Counters,
        header: Box<Header<Shard>>,
        requested_bytes: u64,
    ) -> Handle<Shard> {
        counters.hits.add(1);
        counters.count_out(header.block.bytes(), requested_bytes);
        header.hand_out(requested_bytes, self.clock)
    }

    /// Takes a block back that nobody holds any more.
    #[inline]
    pub(in crate::cache) fn put(&mut self, counters: &Counters, header: Box<Header<Shard>>) {
        if header.stamp() != self.clock {
            return self.put_aged(counters, header);
        }
        counters.count_back(header.block.bytes(), header.requested_bytes);
        self.bin(header.class).push(header);
    }

    /// The same for a block that saw an exit, an invalidation or another stream, or has no cache.
    #[cold]
    #[inline(never)]
    fn put_aged(&mut self, counters: &Counters, mut header: Box<Header<Shard>>) {
        header.end_uses();
        if header.stamp() == EMPTY_STAMP {
            self.empties -= 1;
            return;
        }
        if header.stamp() & NOTED != 0 {
            let stamp = header.stamp() & !NOTED;
            header.set_stamp(stamp);
            if let Some(recording) = &mut self.recording {
                recording.freed(header.ticket, stamp);
            }
        }
        counters.count_back(header.block.bytes(), header.requested_bytes);
        if header.stamp() < self.exited_at {
            counters.escaped_blocks.sub(1);
        }
        if header.class == PART {
            self.put_part(header);
        } else if header.stamp() < self.invalidated_at {
            self.stale.push(header);
        } else if header.block.other_streams.is_empty() {
            self.bin(header.class).push(header);
        } else {
            counters.pending_blocks.add(1);
            counters.pending_bytes.add(header.block.bytes());
            self.shared.push(header);
        }
    }

    /// Takes a part back that another stream used, that was noted, or whose entry has ended.
    fn put_part(&mut self, mut header: Box<Header<Shard>>) {
        if !header.block.other_streams.is_empty() {
            self.bump.note_others(&header);
            self.plans.note_others(&header);
            self.aside.note_others(&header);
            header.block.other_streams = StreamSet::NONE;
            self.choose_serving();
        }
        if header.stamp() == self.clock {
            self.bins[PART].push(header);
        } else {
            let mut chunks = self.aside.part_came_back(header.stamp());
            self.stale.append(&mut chunks);
            self.stale.push(header);
        }
    }

    /// Puts pending blocks where they go now that the other streams are done with them.
    pub(in crate::cache) fn settle_pending(&mut self, counters: &Counters, backend: &dyn Backend) {
        let mut recorder = StreamEvents::new(backend);
        for header in std::mem::replace(&mut self.shared, List::new()) {
            match recorder.events(header.block.other_streams) {
                Ok(events) => self.pending.push(events, header),
                // Tried again the next time.
                Err(_) => self.shared.push(header),
            }
        }
        for mut header in self.pending.take_finished(backend) {
            header.block.other_streams = StreamSet::NONE;
            counters.pending_blocks.sub(1);
            counters.pending_bytes.sub(header.block.bytes());
            self.bin(header.class).push(header);
        }
    }

    /// Gives pending blocks up: whoever gets them sees to it that they are done.
    pub(in crate::cache) fn drain_pending(&mut self, counters: &Counters) {
        self.stale.append(&mut self.shared);
        for header in self.pending.take_all() {
            self.stale.push(header);
        }
        counters.pending_blocks.set(0);
        counters.pending_bytes.set(0);
    }

    pub(in crate::cache) fn has_pending(&self) -> bool {
        !(self.shared.is_empty() && self.pending.is_empty())
    }

    /// Gives up the idle blocks of a stream that no request since the entry was served with, or all
    /// of them.
    pub(in crate::cache) fn give_up_blocks(&mut self, stream: StreamId, all: bool) {
        let clock = self.clock;
        self.give_up_idle(|header| {
            header.block.stream == stream && (all || header.stamp() < clock)
        });
    }

    pub(in crate::cache) fn invalidate(&mut self) {
        self.set_parts_aside(false);
        self.clock += 1;
        self.invalidated_at = self.clock;
    }

    #[cold]
    fn configure(&mut self, identity: &Identity) {
        self.version = identity.version(); // First: what changes meanwhile is read at the next entry.
        let config = identity.config();
        if self.policy != config.policy {
            self.give_up_all();
            self.plans.forget();
            self.stale.append(&mut self.plans.renew());
        }
        self.policy = config.policy;
        self.records = config.record;
        self.plans.stop();
        self.choose_serving();
        self.aging.configure(&config);
        self.due_at = match self.policy {
            Policy::Release => 0,
            Policy::Recycle | Policy::Bump | Policy::Plan => self.aging.due_at(),
        };
    }

    /// Gives up everything idle.
    pub(in crate::cache) fn give_up_all(&mut self) {
        (self.peak_out_bytes, self.known_out_bytes) = (0, 0);
        self.give_up_bins();
        let idle = &mut self.bins[PART];
        self.stale.append(&mut self.bump.give_up(idle, self.clock));
        self.stale.append(&mut self.plans.give_up(idle));
        self.stale.append(idle);
    }

    /// Gives up the slab, where it is idle and no plan is followed.
    pub(in crate::cache) fn give_up_slab(&mut self) {
        if !self.plans.is_following() {
            let idle = &mut self.bins[PART];
            self.plans.sort_in(idle, self.recording.as_mut());
            self.stale.append(&mut self.plans.give_up(idle));
        }
    }

    fn give_up_bins(&mut self) {
        self.give_up_idle(|_| true);
    }

    fn give_up_idle(&mut self, is_given_up: impl Fn(&Header<Shard>) -> bool) {
        for class in set_bits(self.classes) {
            let mut given_up = self.bins[class].extract(&is_given_up);
            self.stale.append(&mut given_up);
        }
    }

    /// The idle blocks, but for those that wait for other streams.
    pub(in crate::cache) fn idle(&self) -> impl Iterator<Item = &Header<Shard>> {
        set_bits(self.classes).flat_map(|class| self.bins[class].iter())
    }

    /// Makes the header of a block that comes from below.
    pub(in crate::cache) fn new_header(
        &mut self,
        block: Block,
        home: NonNull<Shard>,
    ) -> Box<Header<Shard>> {
        let class = floor_class(block.bytes());
        self.classes[class / 64] |= 1 << (class % 64);
        Header::new(block, class, home)
    }

    /// Gives up the idle blocks that were handed out before the clock `too_old`.
    pub(in crate::cache) fn expire(&mut self, too_old: u64) {
        if too_old > 0 {
            self.give_up_idle(|header| header.stamp() < too_old);
            let idle = &mut self.bins[PART];
            self.stale.append(&mut self.plans.expire(idle, too_old));
            let mut chunks = self.bump.expire(idle, too_old, self.clock);
            self.stale.append(&mut chunks);
        }
    }
}

/// Which bits are set, from the lowest.
fn set_bits(words: [u64; CLASSES.div_ceil(64)]) -> impl Iterator<Item = usize> {
    let bits = |(index, word): (usize, u64)| {
        let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
        let words = std::iter::successors(Some(word).filter(|word| *word != 0), rest);
        words.map(move |word| index * 64 + word.trailing_zeros() as usize)
    };
    words.into_iter().enumerate().flat_map(bits)
}
