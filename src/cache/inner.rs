//! What a shard holds, and how its blocks go in and out. Plain bookkeeping: who may, and when, stands
//! in [`shard`](super::shard).
//!
//! Architecture invariant: nothing here calls foreign code or drops a handle on a block, so nothing
//! comes back to the shard while its inside is borrowed.

use super::aging::Aging;
use super::bump::Bump;
use super::chunk::{PART, SetAside};
use super::identity::Identity;
use super::plans::{Expected, Plans};
use super::policy::Policy;
use super::record::{NOTED, Noted, Recording};
use super::shard::Shard;
use super::stats::Counters;
use super::{Size, Wanted};
use crate::device::{Backend, StreamId};
use crate::memory::header::{Handle, Header, List};
use crate::memory::order::Streams;
use crate::memory::pending::{Recorder, Waiting};
use crate::pool::size_class::{CLASSES, floor_class};

/// The stamp of a block that belongs to no cache: older than any clock.
pub(super) const UNCACHED_STAMP: u64 = 0;
/// The stamp of a header without a block, for arrays of no bytes.
pub(super) const EMPTY_STAMP: u64 = u64::MAX >> 1;

/// Which way requests take first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    /// The block of the size that came back last.
    Bins,
    /// The next part of the chunk or the slab.
    Parts,
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
pub(super) struct Inner {
    pub(super) bins: [List<Shard>; BINS],
    /// What goes to the pool at the next opportunity: dropping must not lock.
    pub(super) stale: List<Shard>,
    /// Dropped while other streams may still use them: dropping must record no event.
    pub(super) shared: List<Shard>,
    /// The same with the events that they wait for.
    pub(super) pending: Waiting<Box<Header<Shard>>>,
    /// Entries that have not been left.
    pub(super) depth: u64,
    /// Moves on at each outermost exit and each invalidation; stamps the blocks handed out.
    pub(super) clock: u64,
    /// Blocks stamped before this escaped.
    pub(super) exited_at: u64,
    /// Blocks stamped before this go to the pool when they drop.
    pub(super) invalidated_at: u64,
    pub(super) policy: Policy,
    serving: Serving,
    fills: bool,
    /// Whether the settings want each entry recorded.
    records: bool,
    /// Of the present entry, for who asked or for a plan.
    recording: Option<Recording>,
    /// The version of the settings that `policy` and `aging` were read from.
    version: u64,
    pub(super) aging: Aging,
    /// The clock from which on an exit has something to do for the policy.
    pub(super) due_at: u64,
    pub(super) bump: Bump,
    pub(super) plans: Plans,
    pub(super) aside: SetAside,
    /// The most that was handed out, by the blocks' own length, at some miss.
    pub(super) peak_out_bytes: u64,
    /// The same at the end of the entry before.
    pub(super) known_out_bytes: u64,
    /// The `live_bytes` that the device's ledger knows of.
    pub(super) published_bytes: u64,
    /// Headers without a block that are handed out.
    pub(super) empties: u64,
}

impl Inner {
    /// Of a cache, or of the blocks that belong to none; on a device that fills every block it hands
    /// out, nothing goes at once.
    pub(super) fn new(uncached: bool, fills: bool) -> Self {
        let serving = if fills {
            Serving::Slowly
        } else {
            Serving::Bins
        };
        Self {
            fills,
            bins: [const { List::new() }; BINS],
            stale: List::new(),
            shared: List::new(),
            pending: Waiting::new(),
            depth: 0,
            clock: 1,
            exited_at: UNCACHED_STAMP,
            invalidated_at: if uncached { 1 } else { 0 },
            policy: Policy::Recycle,
            serving,
            records: false,
            recording: None,
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
    pub(super) fn take_at_once(
        &mut self,
        counters: &Counters,
        size: Size,
    ) -> Option<Handle<Shard>> {
        if self.serving != Serving::Bins {
            return None;
        }
        self.take_last(counters, size, StreamId::default())
    }

    /// The same on any stream, or with the next part.
    pub(super) fn take(
        &mut self,
        counters: &Counters,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        match self.serving {
            Serving::Bins => self.take_last(counters, size, stream),
            Serving::Parts => {
                let header = self.next_part(size, stream)?;
                Some(self.hand_out(counters, header, size.requested_bytes))
            }
            Serving::Slowly => None,
        }
    }

    #[inline]
    fn take_last(
        &mut self,
        counters: &Counters,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        let header = self.bin(size.class).pop_if(|header| {
            header.block.bytes() == size.rounded_bytes && header.block.stream == stream
        })?;
        Some(self.hand_out(counters, header, size.requested_bytes))
    }

    #[inline]
    pub(super) fn next_part(&mut self, size: Size, stream: StreamId) -> Option<Box<Header<Shard>>> {
        let idle = &mut self.bins[PART];
        match self.policy {
            Policy::Bump => self.bump.take(idle, size, stream, self.clock),
            Policy::Plan => self.plans.take(idle, size, stream),
            Policy::Recycle | Policy::Release => None,
        }
    }

    /// The tightest fit of the bins that wastes an eighth at most, the last that came back of equals.
    pub(super) fn tightest(&mut self, size: Size, stream: StreamId) -> Option<Box<Header<Shard>>> {
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
    pub(super) fn hand_out_noted(
        &mut self,
        counters: &Counters,
        mut header: Box<Header<Shard>>,
        wanted: &Wanted,
    ) -> Handle<Shard> {
        let mut stamp = self.clock;
        if let Some(recording) = &mut self.recording {
            header.ticket = recording.allocated(wanted);
            stamp |= NOTED;
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
    pub(super) fn put(&mut self, counters: &Counters, header: Box<Header<Shard>>) {
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
        } else if header.block.others.is_empty() {
            self.bin(header.class).push(header);
        } else {
            counters.pending_blocks.add(1);
            counters.pending_bytes.add(header.block.bytes());
            self.shared.push(header);
        }
    }

    /// Takes a part back that another stream used, that was noted, or whose entry has ended.
    fn put_part(&mut self, mut header: Box<Header<Shard>>) {
        if !header.block.others.is_empty() {
            self.bump.note_others(&header);
            self.plans.note_others(&header);
            self.aside.note_others(&header);
            header.block.others = Streams::NONE;
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
    pub(super) fn settle_pending(&mut self, counters: &Counters, backend: &dyn Backend) {
        let mut recorder = Recorder::new(backend);
        for header in std::mem::replace(&mut self.shared, List::new()) {
            match recorder.events(header.block.others) {
                Ok(events) => self.pending.push(events, header),
                // Tried again the next time.
                Err(_) => self.shared.push(header),
            }
        }
        for mut header in self.pending.take_done(backend) {
            header.block.others = Streams::NONE;
            counters.pending_blocks.sub(1);
            counters.pending_bytes.sub(header.block.bytes());
            self.bin(header.class).push(header);
        }
    }

    /// Gives pending blocks up: whoever gets them sees to it that they are done.
    pub(super) fn drain_pending(&mut self, counters: &Counters) {
        self.stale.append(&mut self.shared);
        for header in self.pending.take_all() {
            self.stale.push(header);
        }
        counters.pending_blocks.set(0);
        counters.pending_bytes.set(0);
    }

    pub(super) fn has_pending(&self) -> bool {
        !(self.shared.is_empty() && self.pending.is_empty())
    }

    /// Gives up the idle blocks of a stream that no request since the entry was served with, or all
    /// of them.
    pub(super) fn give_up_blocks(&mut self, stream: StreamId, all: bool) {
        let clock = self.clock;
        for bin in &mut self.bins[..CLASSES] {
            let mut given_up = bin
                .extract(|header| header.block.stream == stream && (all || header.stamp() < clock));
            self.stale.append(&mut given_up);
        }
    }

    /// An outermost entry begins.
    #[inline]
    pub(super) fn begin(&mut self, identity: &Identity) {
        if self.version != identity.version() {
            self.configure(identity);
        }
        if self.records || self.policy == Policy::Plan {
            self.prepare();
        }
    }

    /// Of an entry that is recorded or planned.
    fn prepare(&mut self) {
        let plans = self.policy == Policy::Plan;
        let follows = plans && self.plans.begin();
        if self.records || plans && !follows {
            self.record(Recording::new(self.exited_at));
        }
        self.choose_serving();
    }

    fn record(&mut self, recording: Recording) {
        self.recording = Some(recording);
        self.due_at = 0; // The exit has something to do.
    }

    fn choose_serving(&mut self) {
        self.serving = match self.policy {
            _ if self.fills || self.recording.is_some() => Serving::Slowly,
            Policy::Bump => Serving::Parts,
            Policy::Plan if self.plans.is_following() => Serving::Parts,
            Policy::Recycle | Policy::Release | Policy::Plan => Serving::Bins,
        };
    }

    /// What a request is to be served from under [`Policy::Plan`]; one that differs from the plan leaves
    /// it.
    pub(super) fn expected(&mut self, counters: &Counters, wanted: &Wanted) -> Expected {
        let idle = &mut self.bins[PART];
        self.plans.sort_in(idle, self.recording.as_mut());
        let expected = self.plans.expected(wanted.size, wanted.stream);
        if expected == Expected::Another && self.plans.is_following() {
            counters.divergences.add(1);
            let noted = self.plans.leave();
            if self.recording.is_none() {
                self.record(Recording::after(self.exited_at, noted));
            }
            self.choose_serving();
        }
        expected
    }

    /// The present entry goes on without a plan.
    pub(super) fn stop_following(&mut self) {
        self.plans.stop();
        self.choose_serving();
    }

    /// The outermost entry ends, in which something is still alive or not; answers what was noted.
    #[inline]
    pub(super) fn end(&mut self, escaping: bool) -> Option<Vec<Noted>> {
        match self.policy {
            Policy::Bump => self.end_bump(escaping),
            Policy::Plan => return self.end_plan(escaping),
            Policy::Recycle | Policy::Release => {}
        }
        Some(self.recording.take()?.finish())
    }

    fn end_plan(&mut self, escaping: bool) -> Option<Vec<Noted>> {
        let idle = &mut self.bins[PART];
        self.plans.sort_in(idle, self.recording.as_mut());
        if escaping {
            self.set_parts_aside(true);
        }
        let mut shared = self.plans.give_up_shared(&mut self.bins[PART]);
        self.stale.append(&mut shared);
        let noted = self.recording.take().map(Recording::finish);
        self.plans.end(self.clock);
        if !self.plans.is_following()
            && let Some(noted) = &noted
        {
            let mut replaced = self.plans.learn(noted, self.clock);
            self.stale.append(&mut replaced);
            self.give_up_bins(); // What the recorded entry was served with; now there is a slab for it.
        }
        noted
    }

    /// The clock is about to move on: chunks with parts that are alive are set aside. A plan serves what
    /// escapes outside from then on.
    fn set_parts_aside(&mut self, escape: bool) {
        let (clock, idle, aside) = (self.clock, &mut self.bins[PART], &mut self.aside);
        if let Some((live, chunks)) = self.bump.set_aside(idle, clock) {
            aside.add(clock, live, chunks);
        }
        let set_aside = |live, slab| aside.add(clock, live, slab);
        let mut spare = self.plans.set_aside(idle, escape, set_aside);
        self.stale.append(&mut spare);
    }

    /// The pointer goes back, or the chunks that somebody still uses are set aside.
    fn end_bump(&mut self, escaping: bool) {
        if escaping {
            self.set_parts_aside(true);
        }
        if self.bump.is_scattered() || self.bump.is_shared() {
            let mut chunks = self.bump.give_up(&mut self.bins[PART], self.clock);
            self.stale.append(&mut chunks);
        }
        self.bump.reset();
    }

    pub(super) fn invalidate(&mut self) {
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
    pub(super) fn give_up_all(&mut self) {
        (self.peak_out_bytes, self.known_out_bytes) = (0, 0);
        self.give_up_bins();
        let idle = &mut self.bins[PART];
        self.stale.append(&mut self.bump.give_up(idle, self.clock));
        self.stale.append(&mut self.plans.give_up(idle));
        self.stale.append(idle);
    }

    /// Gives up the idle slabs, where no plan is followed.
    pub(super) fn give_up_slabs(&mut self) {
        if !self.plans.is_following() {
            let idle = &mut self.bins[PART];
            self.plans.sort_in(idle, self.recording.as_mut());
            self.stale.append(&mut self.plans.give_up(idle));
        }
    }

    fn give_up_bins(&mut self) {
        for bin in &mut self.bins[..CLASSES] {
            self.stale.append(bin);
        }
    }

    /// Gives up the idle blocks that were handed out before the clock `too_old`.
    pub(super) fn expire(&mut self, too_old: u64) {
        if too_old > 0 {
            for bin in self.bins[..CLASSES]
                .iter_mut()
                .filter(|bin| !bin.is_empty())
            {
                self.stale
                    .append(&mut bin.extract(|header| header.stamp() < too_old));
            }
            let idle = &mut self.bins[PART];
            self.stale.append(&mut self.plans.expire(idle, too_old));
        }
    }
}
