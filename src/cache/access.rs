//! What a shard holds, and what its holder may do with it. Plain bookkeeping: who may, and when,
//! stands in [`shard`](super::shard).
//!
//! Architecture invariant: nothing here calls foreign code or drops a handle on a block, so nothing
//! comes back to the shard while its inside is borrowed.

use std::ptr::NonNull;

use super::Size;
use super::aging::Aging;
use super::bump::{Bump, CHUNK, PART, SetAside};
use super::identity::Identity;
use super::policy::Policy;
use super::shard::{INVALIDATE, Shard};
use super::stats::Counters;
use crate::device::{Backend, StreamId};
use crate::memory::Block;
use crate::memory::header::{Handle, Header, List};
use crate::memory::order::Streams;
use crate::memory::pending::{Recorder, Waiting};
use crate::pool::size_class::{CLASSES, floor_class};

/// The stamp of a block that belongs to no cache: older than any clock.
const UNCACHED_STAMP: u64 = 0;
/// The stamp of a header without a block, for arrays of no bytes.
pub(super) const EMPTY_STAMP: u64 = u64::MAX >> 1;

/// One for each class, and more up to a power of two: indexing needs no branch, and no way out. One of
/// those is that of the parts.
const BINS: usize = CLASSES.next_power_of_two();

/// Invariants, asserted by [`Access::check`]:
/// - a bin holds idle blocks of its class, and what the shard owns is live, in a bin, pending or stale;
///   a chunk and its parts are as [`Bump`] says;
/// - what is in a bin is its own stream's alone;
/// - `exited_at` and `invalidated_at` are at most `clock`;
/// - `depth` is 0 unless a thread is inside.
pub(super) struct Inner {
    bins: [List<Shard>; BINS],
    /// What goes to the pool at the next opportunity: dropping must not lock.
    stale: List<Shard>,
    /// Dropped while other streams may still use them: dropping must record no event.
    shared: List<Shard>,
    /// The same with the events that they wait for.
    pending: Waiting<Box<Header<Shard>>>,
    /// Entries that have not been left.
    depth: u64,
    /// Moves on at each outermost exit and each invalidation; stamps the blocks handed out.
    clock: u64,
    /// Blocks stamped before this escaped.
    exited_at: u64,
    /// Blocks stamped before this go to the pool when they drop.
    invalidated_at: u64,
    policy: Policy,
    /// The version of the settings that `policy` and `aging` were read from.
    version: u64,
    aging: Aging,
    /// The clock from which on an exit has something to do for the policy.
    due_at: u64,
    bump: Bump,
    /// The most that was handed out, by the blocks' own length, at some miss.
    peak_out_bytes: u64,
    /// The `live_bytes` that the device's ledger knows of.
    published_bytes: u64,
    /// Headers without a block that are handed out.
    empties: u64,
}

impl Inner {
    pub(super) fn new(uncached: bool) -> Self {
        Self {
            bins: [const { List::new() }; BINS],
            stale: List::new(),
            shared: List::new(),
            pending: Waiting::new(),
            depth: 0,
            clock: 1,
            exited_at: UNCACHED_STAMP,
            invalidated_at: if uncached { 1 } else { 0 },
            policy: Policy::Recycle,
            version: 0,
            aging: Aging::default(),
            due_at: u64::MAX,
            bump: Bump::new(),
            peak_out_bytes: 0,
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
    pub(super) fn take_last(
        &mut self,
        counters: &Counters,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        if self.policy == Policy::Bump && self.bump.serves(stream) {
            return self.take_part(counters, size, stream);
        }
        let header = self.bin(size.class).pop_if(|header| {
            header.block.bytes() == size.rounded_bytes && header.block.stream == stream
        })?;
        Some(self.hand_out(counters, header, size.requested_bytes))
    }

    /// Serves a request with the next part of the chunk.
    fn take_part(
        &mut self,
        counters: &Counters,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        let header = self
            .bump
            .take(&mut self.bins[PART], size, stream, self.clock)?;
        Some(self.hand_out(counters, header, size.requested_bytes))
    }

    /// Serves a request with the tightest fit that wastes an eighth at most, the last that came back
    /// of equals.
    fn take_tightest(
        &mut self,
        counters: &Counters,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        let waste_bytes = size.rounded_bytes / 8;
        let excess = |header: &Header<Shard>| {
            let fits = header.block.stream == stream;
            let excess = header.block.bytes().checked_sub(size.rounded_bytes);
            excess.filter(|excess| fits && *excess <= waste_bytes)
        };
        let last = floor_class(size.rounded_bytes.saturating_add(waste_bytes));
        let mut classes = size.class..=last;
        let header = classes.find_map(|class| self.bin(class).take_best(excess))?;
        Some(self.hand_out(counters, header, size.requested_bytes))
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
        counters.count_back(header.block.bytes(), header.requested_bytes);
        if header.stamp() < self.exited_at {
            counters.escaped_blocks.sub(1);
        }
        if header.class == PART {
            self.bump.note_others(&mut header);
            self.stale
                .append(&mut self.bump.part_came_back(header.stamp()));
            self.bins[PART].push(header);
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

    /// Puts pending blocks where they go now that the other streams are done with them.
    fn settle_pending(&mut self, counters: &Counters, backend: &dyn Backend) {
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
    fn drain_pending(&mut self, counters: &Counters) {
        self.stale.append(&mut self.shared);
        for header in self.pending.take_all() {
            self.stale.push(header);
        }
        counters.pending_blocks.set(0);
        counters.pending_bytes.set(0);
    }

    fn has_pending(&self) -> bool {
        !(self.shared.is_empty() && self.pending.is_empty())
    }

    /// Gives up idle blocks that no request since the entry was served with, about `need_bytes` of
    /// them: those that were not used for longest, and of these the longest that are not longer than
    /// needed.
    fn give_up_unused(&mut self, need_bytes: u64, stream: StreamId) {
        let clock = self.clock;
        self.give_up(need_bytes, |header| {
            header.stamp() < clock && header.block.stream == stream
        });
    }

    /// The pointer goes back, or the chunks that somebody still uses are set aside.
    fn end_bump(&mut self, escaping: bool) {
        if escaping {
            self.bump.set_aside(&mut self.bins[PART], self.clock);
        }
        if self.bump.is_scattered() || self.bump.is_shared() {
            let mut chunks = self.bump.give_up(&mut self.bins[PART], self.clock);
            self.stale.append(&mut chunks);
        }
        self.bump.reset();
    }

    fn give_up_any(&mut self, need_bytes: u64, stream: StreamId) {
        self.give_up(need_bytes, |header| header.block.stream == stream);
    }

    fn give_up(&mut self, need_bytes: u64, matches: impl Fn(&Header<Shard>) -> bool) {
        let found = self.bins[..CLASSES]
            .iter()
            .flat_map(List::iter)
            .filter(|header| matches(header));
        let mut ages: Vec<_> = found
            .map(|header| (header.stamp(), header.block.bytes()))
            .collect();
        ages.sort_unstable_by_key(|&(stamp, bytes)| {
            let longer = bytes > need_bytes;
            (
                longer,
                stamp,
                if longer { bytes } else { need_bytes - bytes },
            )
        });
        let mut sum_bytes = 0;
        for (stamp, bytes) in ages {
            if sum_bytes >= need_bytes {
                break;
            }
            let same = |header: &Header<Shard>| {
                let same = header.stamp() == stamp && header.block.bytes() == bytes;
                (same && matches(header)).then_some(0)
            };
            if let Some(header) = self.bin(floor_class(bytes)).take_best(same) {
                sum_bytes += bytes;
                self.stale.push(header);
            }
        }
    }

    fn invalidate(&mut self) {
        self.bump.set_aside(&mut self.bins[PART], self.clock);
        self.clock += 1;
        self.invalidated_at = self.clock;
        self.peak_out_bytes = 0;
    }

    #[cold]
    fn configure(&mut self, identity: &Identity) {
        self.version = identity.version(); // First: what changes meanwhile is read at the next entry.
        let config = identity.config();
        if self.policy != config.policy {
            self.give_up_all();
        }
        self.policy = config.policy;
        self.aging.configure(&config);
        self.due_at = match self.policy {
            Policy::Release => 0,
            Policy::Recycle | Policy::Bump => self.aging.due_at(),
        };
    }

    /// Gives up everything idle.
    fn give_up_all(&mut self) {
        for bin in &mut self.bins[..CLASSES] {
            self.stale.append(bin);
        }
        let mut chunks = self.bump.give_up(&mut self.bins[PART], self.clock);
        self.stale.append(&mut chunks);
        self.stale.append(&mut self.bins[PART]);
    }

    /// Gives up the idle blocks that were handed out before the clock `too_old`.
    fn expire(&mut self, too_old: u64) {
        if too_old > 0 {
            for bin in &mut self.bins[..CLASSES] {
                self.stale
                    .append(&mut bin.extract(|header| header.stamp() < too_old));
            }
        }
    }
}

/// The right to a shard's inside: this thread is in its scope, or visits it.
pub(super) struct Access<'a> {
    shard: &'a Shard,
    inner: &'a mut Inner,
    visiting: bool,
}

impl<'a> Access<'a> {
    /// The caller holds the shard's state, as itself or as a visitor, and passes on what only the
    /// holder may borrow.
    #[inline]
    pub(super) fn new(shard: &'a Shard, inner: &'a mut Inner, visiting: bool) -> Self {
        Self {
            shard,
            inner,
            visiting,
        }
    }

    /// An outermost entry begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        let inner = &mut *self.inner;
        inner.depth = 1;
        if let Some(identity) = &self.shard.identity
            && inner.version != identity.version()
        {
            inner.configure(identity);
        }
        self.shard.counters.entries.add(1);
    }

    /// Another entry begins inside.
    pub(super) fn begin_again(&mut self) {
        self.inner.depth += 1;
        self.inner.bump.begin_again();
    }

    /// An entry ends; true for the outermost one.
    #[inline]
    pub(super) fn end(&mut self) -> bool {
        let inner = &mut *self.inner;
        inner.depth -= 1;
        if inner.depth > 0 {
            inner.bump.end_again(&mut inner.bins[PART], inner.clock);
        }
        inner.depth == 0
    }

    /// The outermost entry ends here for the blocks: what is live now has escaped.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        if inner.policy == Policy::Bump {
            let escaping = counters.live_blocks.get() != counters.escaped_blocks.get();
            inner.end_bump(escaping);
        }
        inner.clock += 1;
        inner.exited_at = inner.clock;
        counters.escaped_blocks.set(counters.live_blocks.get());
    }

    /// Whether an exit has nothing to do but to end the turn: no block to bring home or to give up,
    /// and nothing that the device's ledger does not know.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let inner = &*self.inner;
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        inner.clock < inner.due_at
            && inner.stale.is_empty()
            && live == inner.published_bytes
            && !self.shard.device().ledger.would_raise(live, peak)
    }

    /// Serves a request with the tightest fit of the bins, or from the chunk.
    pub(super) fn take(&mut self, size: Size, stream: StreamId) -> Option<Handle<Shard>> {
        if !self.bumps(stream) {
            return self.inner.take_tightest(&self.shard.counters, size, stream);
        }
        if !self.inner.bump.has_room(size) {
            return None;
        }
        self.provide_header();
        self.inner.take_part(&self.shard.counters, size, stream)
    }

    /// Whether requests of the stream are served from a chunk.
    fn bumps(&self, stream: StreamId) -> bool {
        self.inner.policy == Policy::Bump && self.inner.bump.serves(stream)
    }

    /// Makes the header of another part where none is idle.
    fn provide_header(&mut self) {
        let inner = &mut *self.inner;
        if inner.bins[PART].is_empty()
            && let Some(part) = inner.bump.part()
        {
            self.shard.counters.owned_blocks.add(1);
            inner.bins[PART].push(Header::new(part, PART, NonNull::from(self.shard)));
        }
    }

    /// How long a chunk a request should get that the present one has no room for; `None` where
    /// it is not served from one.
    pub(super) fn chunk_bytes(&self, size: Size, stream: StreamId) -> Option<u64> {
        self.bumps(stream)
            .then(|| self.inner.bump.chunk_bytes(size))
    }

    /// Serves a request, which missed, with the first part of a new chunk.
    pub(super) fn take_from_chunk(
        &mut self,
        chunk: Block,
        size: Size,
        stream: StreamId,
    ) -> Option<Handle<Shard>> {
        let counters = &self.shard.counters;
        counters.owned_bytes.add(chunk.bytes());
        let home = NonNull::from(self.shard);
        self.inner.bump.add_chunk(Header::new(chunk, CHUNK, home));
        self.inner.due_at = 0; // A first chunk may not be the last, and is looked at as the scope ends.
        let handle = self.take(size, stream)?;
        counters.hits.sub(1);
        counters.misses.add(1);
        Some(handle)
    }

    /// The idle blocks to be cut anew for a request that none of them serves, by way of the pool;
    /// empty where the cache is to grow instead.
    ///
    /// It grows to an eighth more than was ever out at once, and above that only as long as all that
    /// is idle has been used since the scope was entered, up to twice as much. So a turn that repeats
    /// keeps a block for each request, and one that varies exchanges what it does not need for what
    /// it does.
    ///
    /// Streams are looked at one by one: another's idle block would make this one wait for it.
    pub(super) fn excess(&mut self, size: Size, stream: StreamId) -> List<Shard> {
        let elsewhere_bytes = self.idle_bytes_beside(stream);
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let out_bytes = counters.allocated_bytes.get() + size.rounded_bytes;
        inner.peak_out_bytes = inner.peak_out_bytes.max(out_bytes);
        let peak_bytes = inner.peak_out_bytes;
        let owned_bytes = counters.owned_bytes.get() - elsewhere_bytes;
        let wanted_bytes = owned_bytes + size.rounded_bytes;
        if wanted_bytes <= peak_bytes + peak_bytes / 8 {
            return List::new();
        }
        inner.give_up_unused(size.rounded_bytes, stream);
        if inner.stale.is_empty() && wanted_bytes > 2 * peak_bytes {
            inner.give_up_any(size.rounded_bytes, stream);
        }
        self.disown()
    }

    /// Bytes idle here that follow other streams.
    fn idle_bytes_beside(&self, stream: StreamId) -> u64 {
        if self.shard.device().memory().backend().streams() == 1 {
            return 0;
        }
        let idle = self.inner.bins[..CLASSES].iter().flat_map(List::iter);
        let others = idle.filter(|header| header.block.stream != stream);
        others.map(|header| header.block.bytes()).sum()
    }

    /// Takes a block back that nobody holds any more.
    pub(super) fn put(&mut self, header: Box<Header<Shard>>) {
        self.inner.put(&self.shard.counters, header);
    }

    /// Hands out a block that came from below the cache, which from now on is its home.
    pub(super) fn adopt(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        self.shard.counters.misses.add(1);
        self.adopt_uncounted(block, requested_bytes)
    }

    /// The same for a block that was cut out of what the shard gave up for it: a hit.
    pub(super) fn adopt_exchanged(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        self.shard.counters.hits.add(1);
        self.adopt_uncounted(block, requested_bytes)
    }

    fn adopt_uncounted(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        let clock = self.inner.clock;
        let counters = &self.shard.counters;
        counters.count_out(block.bytes(), requested_bytes);
        self.header(block).hand_out(requested_bytes, clock)
    }

    /// Hands out a block that belongs to no cache.
    pub(super) fn adopt_uncached(&mut self, block: Block, requested_bytes: u64) -> Handle<Shard> {
        let counters = &self.shard.counters;
        counters.count_out(block.bytes(), requested_bytes);
        self.header(block).hand_out(requested_bytes, UNCACHED_STAMP)
    }

    /// Hands out a header without a block.
    pub(super) fn adopt_empty(&mut self) -> Handle<Shard> {
        self.inner.empties += 1;
        Header::new(Block::EMPTY, 0, NonNull::from(self.shard)).hand_out(0, EMPTY_STAMP)
    }

    fn header(&self, block: Block) -> Box<Header<Shard>> {
        let counters = &self.shard.counters;
        counters.owned_blocks.add(1);
        counters.owned_bytes.add(block.bytes());
        let class = floor_class(block.bytes());
        Header::new(block, class, NonNull::from(self.shard))
    }

    /// Brings home what was dropped elsewhere.
    pub(super) fn collect(&mut self) {
        for header in self.shard.take_returned() {
            self.put(header);
        }
    }

    /// Does whatever is due, and answers the blocks that go to the pool for it.
    pub(super) fn settle(&mut self) -> List<Shard> {
        self.collect();
        let inner = &mut *self.inner;
        let marks = self.shard.take_marks();
        if marks != 0 {
            if marks & INVALIDATE != 0 {
                inner.invalidate();
            }
            return self.drain();
        }
        if inner.has_pending() {
            let backend = self.shard.device().memory().backend();
            inner.settle_pending(&self.shard.counters, backend);
        }
        if inner.depth == 0 && inner.clock >= inner.due_at {
            return self.follow_policy();
        }
        self.disown()
    }

    /// Does what the policy wants outside of the scope.
    fn follow_policy(&mut self) -> List<Shard> {
        let inner = &mut *self.inner;
        match inner.policy {
            Policy::Release => self.drain(),
            Policy::Recycle | Policy::Bump => {
                let too_old = inner.aging.sweep(inner.clock);
                inner.due_at = inner.aging.due_at();
                inner.expire(too_old);
                self.disown()
            }
        }
    }

    /// Gives up every idle block, those included that are pending.
    pub(super) fn drain(&mut self) -> List<Shard> {
        if self.shard.counters.cached_bytes() > 0 {
            self.inner.give_up_all();
        }
        if self.inner.has_pending() {
            self.inner.drain_pending(&self.shard.counters);
        }
        self.disown()
    }

    /// Gives up everything, when the shard closes; answers the idle blocks, how many headers are
    /// still out, and the chunks under those.
    pub(super) fn close(mut self) -> (List<Shard>, u64, SetAside) {
        self.inner.invalidate();
        let idle = self.drain();
        self.publish();
        let counters = &self.shard.counters;
        let (blocks, bytes) = (counters.live_blocks.get(), counters.live_bytes.get());
        self.shard.device().ledger.adopt_orphans(blocks, bytes);
        self.visiting = false; // The state goes to closed, not to idle.
        (
            idle,
            blocks + self.inner.empties,
            self.inner.bump.take_aside(),
        )
    }

    fn disown(&mut self) -> List<Shard> {
        let stale = std::mem::replace(&mut self.inner.stale, List::new());
        let counters = &self.shard.counters;
        let mut blocks = List::new();
        for header in stale {
            counters.owned_blocks.sub(u64::from(header.class != CHUNK));
            if header.class != PART {
                counters.owned_bytes.sub(header.block.bytes());
                blocks.push(header);
            }
        }
        blocks
    }

    /// Tells the device's ledger how much is live here, and how much was at the most.
    pub(super) fn publish(&mut self) {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let (live, peak) = (counters.live_bytes.get(), counters.window_peak_bytes.get());
        self.shard
            .device()
            .ledger
            .publish(inner.published_bytes, live, peak);
        inner.published_bytes = live;
        self.begin_window();
    }

    /// The peak up to now is kept, and the next one begins from what is live.
    #[inline]
    pub(super) fn begin_window(&mut self) {
        let counters = &self.shard.counters;
        let peak = counters.window_peak_bytes.get();
        if peak > counters.peak_live_bytes.get() {
            counters.peak_live_bytes.set(peak);
        }
        counters.window_peak_bytes.set(counters.live_bytes.get());
    }

    /// Forgets the peaks so far.
    pub(super) fn reset_peaks(&mut self) {
        self.publish();
        let counters = &self.shard.counters;
        counters.peak_live_bytes.set(counters.live_bytes.get());
    }

    /// Asserts the invariants of the inside, and answers the bytes of its chunks; for tests.
    #[cfg(test)]
    pub(super) fn check(&mut self) -> u64 {
        let inner = &mut *self.inner;
        let counters = &self.shard.counters;
        let (mut blocks, mut bytes) = (0, 0);
        let chunk_bytes = inner.bump.check(&inner.bins[PART], inner.clock);
        blocks += inner.bins[PART].iter().count() as u64;
        for (class, bin) in inner.bins[..CLASSES].iter().enumerate() {
            for header in bin.iter() {
                assert_eq!(
                    floor_class(header.block.bytes()),
                    class,
                    "a bin holds blocks of its class"
                );
                assert!(header.block.others.is_empty(), "it is its stream's alone");
                blocks += 1;
                bytes += header.block.bytes();
            }
        }
        let pending = inner
            .shared
            .iter()
            .chain(inner.pending.iter().map(|header| &**header));
        let sizes = pending.map(|header| header.block.bytes());
        let (pending_blocks, pending_bytes) =
            sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
        assert_eq!(counters.pending_blocks.get(), pending_blocks);
        assert_eq!(counters.pending_bytes.get(), pending_bytes);
        for header in inner.stale.iter() {
            blocks += u64::from(header.class != CHUNK);
            bytes += if header.class == PART {
                0
            } else {
                header.block.bytes()
            };
        }
        assert_eq!(counters.cached_blocks(), blocks, "what is not live is idle");
        let idle_bytes = bytes..=bytes + chunk_bytes;
        assert!(
            idle_bytes.contains(&counters.cached_bytes()),
            "and so are its bytes"
        );
        assert!(counters.escaped_blocks.get() <= counters.live_blocks.get());
        assert!(inner.exited_at <= inner.clock && inner.invalidated_at <= inner.clock);
        assert_eq!(
            inner.depth > 0,
            !self.visiting,
            "a visitor finds nobody inside"
        );
        chunk_bytes
    }
}

impl Drop for Access<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.visiting {
            self.shard.end_visit();
        }
    }
}
