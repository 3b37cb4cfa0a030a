//! The policy that plans: what entries asked for is packed into one slab, and later entries are
//! served from it, request by request, for as long as they do the same.

#[cfg(test)]
mod check;

use super::Size;
use super::chunk;
use super::gaps::Gaps;
use super::plan::{Plan, Planned};
use super::record::{Noted, PLANNED, Recording};
use super::sequence::Sequence;
use super::shard::Shard;
use crate::device::{DevicePtr, StreamId};
use crate::memory::Block;
use crate::memory::header::{Header, List, Slot};

/// How many sequences a scope may alternate between; of one more, that not followed for longest is
/// forgotten.
const SEQUENCES: usize = 4;

/// The number of a part that an entry got which follows no plan.
const LOOSE: usize = u32::MAX as usize;

/// A scope whose entries differ so often in a row is planned anew less and less often.
const PATIENCE: u32 = 8;

/// The plan of a shard, and how far the present entry follows it.
///
/// Invariants:
/// - the `sequences` have [`PLANNED`] requests at most;
/// - but for `is_outdated`, `plan` is that of the `sequences`;
/// - while `following`, the present entry's requests are those on the plan's path to `cursor`;
/// - a slab is at least as long as the plan's, and of its stream. Its parts are out, in the bin of
///   parts, in `parts`, or `loose`; where there are no `parts`, none of the plan's is out;
/// - `gaps` are those between all that is out and in the bin, once an entry follows no plan any more.
pub(super) struct Plans {
    sequences: Vec<Sequence>,
    plan: Plan,
    is_outdated: bool,
    slab: List<Shard>,
    /// What the plan needed that the slab was made for.
    slab_bytes: u64,
    /// The place of each request.
    parts: Vec<Part>,
    /// Idle headers of parts that the plan has no place for.
    loose: List<Shard>,
    gaps: Option<Gaps>,
    cursor: usize,
    following: bool,
    /// Where an entry begins that does as the last one.
    root: usize,
    differed: u32,
    /// The entries since the last one that could be planned which had too many requests for that.
    too_long: u32,
}

/// Where a part of the slab stands while it is idle.
struct Part {
    /// As it stands in the plan: so that one look finds both.
    request: Planned,
    /// Empty while it is out or outside of the slab.
    header: Slot<Shard>,
    /// Where the entry was as it was found idle last.
    idle_since: usize,
}

/// How a request is to be served that the slab does not serve at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// From a slab of so many bytes, which is not there.
    Slab(u64),
    /// From the slab after all.
    Part,
    /// As Recycle serves it, by the plan.
    Outside,
    /// Anyhow: nothing is planned, or something else.
    Another,
}

impl Plans {
    pub(super) fn new() -> Self {
        Self {
            sequences: Vec::new(),
            plan: Plan::default(),
            is_outdated: false,
            slab: List::new(),
            slab_bytes: 0,
            parts: Vec::new(),
            loose: List::new(),
            gaps: None,
            cursor: 0,
            following: false,
            root: 0,
            differed: 0,
            too_long: 0,
        }
    }

    /// An outermost entry begins; answers whether there is a plan to follow.
    #[inline]
    pub(super) fn begin(&mut self) -> bool {
        self.cursor = self.root;
        self.gaps = None;
        self.following = !self.sequences.is_empty();
        self.following
    }

    /// The part that the plan has for the next request; `None` where it has none, or not yet.
    #[inline]
    pub(super) fn take(
        &mut self,
        idle: &mut List<Shard>,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Option<Box<Header<Shard>>> {
        if !self.following {
            return None;
        }
        let parts = self.parts.as_mut_slice();
        while let Some(header) = idle.pop_if(|header| header.block.suballocation() < parts.len()) {
            let part = &mut parts[header.block.suballocation()];
            part.idle_since = self.cursor;
            part.header.put(header);
        }
        if !idle.is_empty() {
            self.sort_in(idle, None);
        }
        let request = &self.parts.get(self.cursor)?.request;
        if !request.is_for(rounded_bytes, stream) || !self.is_clear(request) {
            return None;
        }
        let header = self.parts.get_mut(self.cursor)?.header.take()?;
        self.cursor += 1;
        Some(header)
    }

    /// Whether whatever lay where the request lies is idle; not where the slab was given up since.
    #[inline]
    fn is_clear(&self, request: &Planned) -> bool {
        let part = |below: &u32| self.parts.get(*below as usize);
        let mut below = self.plan.before(request).iter().map(part);
        below.all(|part| part.is_some_and(|part| !part.header.is_empty()))
    }

    /// Brings idle parts to their places. The recording of an entry that left the plan hears of those
    /// which it was handed out by it.
    pub(super) fn sort_in(
        &mut self,
        idle: &mut List<Shard>,
        mut recording: Option<&mut Recording>,
    ) {
        if self.slab.is_empty() {
            return; // What is idle are another policy's.
        }
        let parts = self.parts.as_mut_slice();
        while let Some(header) = idle.pop_if(|_| true) {
            let number = header.block.suballocation();
            if !self.following {
                if let Some(gaps) = &mut self.gaps {
                    gaps.give(header.block.address.0);
                }
                if number != LOOSE
                    && let Some(recording) = &mut recording
                {
                    recording.freed(self.plan.depth(number) as u32, header.stamp());
                }
            }
            let Some(part) = parts.get_mut(number) else {
                debug_assert_eq!(number, LOOSE, "a part of no plan");
                self.loose.push(header);
                continue;
            };
            part.idle_since = self.cursor;
            part.header.put(header);
        }
    }

    /// What the present request is to be served from; an entry may go on as any that began like it.
    pub(super) fn expected(&mut self, size: Size, stream: StreamId) -> Expected {
        if !self.following {
            return Expected::Another;
        }
        let Some(number) = self.plan.find(self.cursor, size.rounded_bytes, stream) else {
            return Expected::Another;
        };
        self.cursor = number;
        if self.plan.requests()[number].offset.is_none() {
            Expected::Outside
        } else if self.slab.is_empty() {
            Expected::Slab(self.plan.slab_bytes())
        } else if self.parts.is_empty() || self.is_clear(&self.plan.requests()[number]) {
            Expected::Part
        } else {
            Expected::Another
        }
    }

    /// A request was served outside of the slab; false where the plan has it inside by now, or has
    /// another one here: what a callback asked for meanwhile came before it.
    pub(super) fn pass(&mut self, size: Size, stream: StreamId) -> bool {
        let is_planned = self
            .plan
            .requests()
            .get(self.cursor)
            .is_some_and(|request| {
                request.is_for(size.rounded_bytes, stream) && request.offset.is_none()
            });
        self.cursor += usize::from(is_planned);
        is_planned
    }

    /// Begins anew, the slab given up.
    pub(super) fn forget(&mut self) {
        self.sequences.clear();
        self.is_outdated = true;
        (self.differed, self.too_long) = (0, 0);
    }

    pub(super) fn is_following(&self) -> bool {
        self.following
    }

    /// The present entry is not served by the plan any more.
    pub(super) fn stop(&mut self) {
        self.following = false;
    }

    /// What is known of the present entry, which has followed the plan up to here.
    pub(super) fn so_far(&self) -> Vec<Noted> {
        let sequence = &self.sequences[self.plan.sequence_of(self.cursor)];
        let path = self.plan.path_to(self.cursor);
        let requests = sequence.requests.iter().zip(path).enumerate();
        let noted = requests.map(|(depth, (request, number))| {
            let part = self.parts.get(number);
            let idle = part.filter(|part| !part.header.is_empty());
            request.noted(depth, idle.map(|part| self.plan.depth(part.idle_since)))
        });
        noted.collect()
    }

    /// Where in the slab a request of an entry that follows no plan has room beside what is out.
    pub(super) fn find_gap(&mut self, size: Size, stream: StreamId) -> Option<DevicePtr> {
        let slab = self.slab.iter().next()?;
        if self.following || slab.block.stream != stream || chunk::is_shared(&self.slab) {
            return None;
        }
        if self.gaps.is_none() {
            let range = |number: usize| {
                let request = &self.plan.requests()[number];
                let begin = slab.block.address.offset(request.offset.unwrap_or(0)).0;
                begin..begin + request.rounded_bytes
            };
            let begin = slab.block.address.0;
            let out = self.out().map(range).collect();
            self.gaps = Some(Gaps::new(begin..begin + slab.block.bytes(), out));
        }
        self.gaps.as_ref()?.find(size.rounded_bytes).map(DevicePtr)
    }

    /// Takes such a part; `header` makes one where none is idle.
    pub(super) fn take_gap(
        &mut self,
        address: DevicePtr,
        size: Size,
        header: impl FnOnce(Block) -> Box<Header<Shard>>,
    ) -> Option<Box<Header<Shard>>> {
        let slab = self.slab.iter().next()?;
        let idle = self.loose.pop_if(|_| true);
        let mut part = idle.unwrap_or_else(|| header(slab.block.new_suballocation()));
        part.join_slab(slab);
        part.block
            .set_suballocation(address, size.rounded_bytes, LOOSE);
        self.gaps.as_mut()?.take(address.0, size.rounded_bytes);
        Some(part)
    }

    /// Serves from a new slab.
    pub(super) fn add_slab(&mut self, mut slab: Box<Header<Shard>>) {
        debug_assert!(self.slab.is_empty() && self.parts.is_empty());
        slab.begin_slab();
        self.slab.push(slab);
        self.slab_bytes = self.plan.slab_bytes();
    }

    /// Lays the parts of the plan into the slab, where they do not lie there; `header` makes one for a
    /// part.
    pub(super) fn lay_parts(&mut self, mut header: impl FnMut(Block) -> Box<Header<Shard>>) {
        let Some(slab) = self.slab.iter().next().filter(|_| self.parts.is_empty()) else {
            return;
        };
        let mut lay = |number: usize, request: &Planned| {
            let mut part = slab.block.new_suballocation();
            let address = slab.block.address.offset(request.offset?);
            part.set_suballocation(address, request.rounded_bytes, number);
            let mut header = header(part);
            header.join_slab(slab);
            Some(header)
        };
        let requests = self.plan.requests().iter().enumerate();
        let parts = requests.map(|(number, request)| Part {
            request: *request,
            header: Slot::new(lay(number, request)),
            // Those before were served from a slab that was lost, and were idle by now at the earliest.
            idle_since: self.cursor,
        });
        self.parts = parts.collect();
    }

    /// Whether an entry that follows no plan is to be recorded: where those before it were too long to be
    /// planned, less and less often.
    pub(super) fn learns(&self) -> bool {
        self.too_long == 0 || (self.too_long + 1).is_power_of_two()
    }

    /// The entry ends that followed no plan, recorded or not.
    pub(super) fn note_length(&mut self, is_short: bool) {
        let too_long = self.too_long.saturating_add(1).min(u32::MAX - 1);
        self.too_long = if is_short { 0 } else { too_long };
    }

    /// The entry ends that was recorded, because there was no plan or it was left: it is planned
    /// together with those before it, of which the oldest are forgotten for that.
    pub(super) fn learn(&mut self, noted: &[Noted], clock: u64) {
        self.differed += 1;
        if noted.is_empty() || self.differed > PATIENCE && !self.differed.is_power_of_two() {
            return;
        }
        self.is_outdated = true;
        let new = Sequence::new(noted, clock);
        let mut known = self.sequences.iter_mut();
        if let Some(known) = known.find(|known| known.is_alike(&new)) {
            known.merge(&new);
            known.used_at = clock;
            return;
        }
        while self.sequences.len() == SEQUENCES || self.known_requests() > PLANNED - noted.len() {
            let indices = 0..self.sequences.len();
            let oldest = indices.min_by_key(|&index| self.sequences[index].used_at);
            oldest.map(|index| self.sequences.swap_remove(index));
        }
        self.sequences.push(new);
    }

    fn known_requests(&self) -> usize {
        let lengths = self.sequences.iter().map(|known| known.requests.len());
        lengths.sum()
    }

    /// The entry ends. It used its sequence if it followed that for at least half of it.
    pub(super) fn end(&mut self, clock: u64) {
        if self.following {
            self.differed = 0;
        }
        if self.plan.requests().is_empty() {
            return;
        }
        let sequence = &mut self.sequences[self.plan.sequence_of(self.cursor)];
        if self.plan.depth(self.cursor) >= sequence.requests.len().div_ceil(2) {
            sequence.used_at = clock;
        }
        self.root = self.plan.root_of(self.cursor);
    }

    /// Between two entries: plans anew, if there is anything new to plan. Answers the parts, and the
    /// slab where it is too short by now, or another stream's.
    pub(super) fn renew(&mut self) -> List<Shard> {
        if !std::mem::take(&mut self.is_outdated) {
            return List::new();
        }
        self.plan = Plan::new(&self.sequences);
        (self.cursor, self.root, self.following) = (0, 0, false);
        let mut given_up = self.take_parts();
        let is_own = |slab: &Header<Shard>| self.plan.is_on(slab.block.stream);
        if self.slab_bytes < self.plan.slab_bytes() || !self.slab.iter().all(is_own) {
            given_up.append(&mut self.slab);
        }
        given_up
    }

    /// The parts of the slab that are out.
    fn out(&self) -> impl Iterator<Item = usize> {
        let requests = self.plan.requests().iter().zip(&self.parts).enumerate();
        let out = requests
            .filter(|(_, (request, part))| request.offset.is_some() && part.header.is_empty());
        out.map(|(number, _)| number)
    }

    fn is_out(&self) -> bool {
        self.out().next().is_some() || self.gaps.as_ref().is_some_and(|gaps| gaps.out() > 0)
    }

    /// The headers of the parts that are not out.
    fn take_parts(&mut self) -> List<Shard> {
        self.gaps = None;
        let mut headers = std::mem::replace(&mut self.loose, List::new());
        for mut part in self.parts.drain(..) {
            part.header
                .take()
                .into_iter()
                .for_each(|header| headers.push(header));
        }
        headers
    }

    /// The clock is about to move on while parts may be alive: the slab that they lie in is set aside,
    /// and what escapes is served outside from the next plan on. `aside` gets the number of parts out
    /// and their slab; answers the headers that are not needed any more.
    pub(super) fn set_aside(
        &mut self,
        idle: &mut List<Shard>,
        escape: bool,
        aside: impl FnOnce(usize, List<Shard>),
    ) -> List<Shard> {
        self.sort_in(idle, None);
        if !self.is_out() {
            return List::new();
        }
        if escape {
            let out: Vec<usize> = self.out().collect();
            self.leave_out(&out);
        }
        self.set_slab_aside(aside)
    }

    /// The same where something else keeps the slab, whether a part is out or not.
    pub(super) fn set_slab_aside(&mut self, aside: impl FnOnce(usize, List<Shard>)) -> List<Shard> {
        let count = self
            .gaps
            .as_ref()
            .map_or_else(|| self.out().count(), Gaps::out);
        aside(count, std::mem::replace(&mut self.slab, List::new()));
        self.take_parts()
    }

    /// Whether the address lies in the slab.
    pub(super) fn holds(&self, address: DevicePtr) -> bool {
        self.slab.iter().any(|slab| chunk::holds(slab, address))
    }

    /// Has requests served outside, of every sequence that they are part of.
    fn leave_out(&mut self, out: &[usize]) {
        self.is_outdated = true;
        for &number in out {
            let depth = self.plan.depth(number);
            let index = self.plan.sequence_of(number);
            let common = self
                .sequences
                .iter()
                .map(|other| other.common(&self.sequences[index]));
            let common: Vec<usize> = common.collect();
            let goes_by = self
                .sequences
                .iter_mut()
                .zip(common)
                .filter(|(_, common)| *common > depth);
            goes_by.for_each(|(sequence, _)| sequence.requests[depth].upper = None);
        }
    }

    /// The slab with its parts, if none is out.
    pub(super) fn give_up(&mut self, idle: &mut List<Shard>) -> List<Shard> {
        self.sort_in(idle, None);
        if self.is_out() {
            return List::new();
        }
        let mut given_up = self.take_parts();
        given_up.append(&mut self.slab);
        given_up
    }

    /// Between two entries: gives up a slab that is much longer than what those sequences need that an
    /// entry followed since the clock `too_old`, and forgets the others. They are kept where they cost
    /// nothing.
    pub(super) fn expire(&mut self, idle: &mut List<Shard>, too_old: u64) -> List<Shard> {
        let is_used = |known: &Sequence| known.used_at >= too_old;
        let used = self.sequences.iter().filter(|known| is_used(known));
        let used_bytes = used.map(Sequence::load_bytes).max().unwrap_or(0);
        if self.slab.is_empty() || self.slab_bytes <= used_bytes + used_bytes / 8 {
            return List::new();
        }
        self.is_outdated |= !self.sequences.iter().all(is_used);
        self.sequences.retain(is_used);
        self.sort_in(idle, None);
        let mut given_up = self.renew();
        let needed_bytes = self.plan.slab_bytes();
        if self.slab_bytes > needed_bytes + needed_bytes / 8 {
            given_up.append(&mut self.give_up(idle));
        }
        given_up
    }

    /// The slab, where other streams may still use it.
    pub(super) fn give_up_shared(&mut self, idle: &mut List<Shard>) -> List<Shard> {
        if chunk::is_shared(&self.slab) {
            self.give_up(idle)
        } else {
            List::new()
        }
    }

    /// The slab of a part that came back waits for the streams that may still use the part, and serves
    /// nothing more in this entry.
    pub(super) fn note_others(&mut self, part: &Header<Shard>) {
        chunk::note_others(&mut self.slab, part);
        self.following = false;
    }

    /// How many headers of parts are idle here, and whether there is a slab.
    pub(super) fn idle_parts_and_slabs(&self) -> (usize, usize) {
        let idle = self.parts.iter().filter(|part| !part.header.is_empty());
        let parts = idle.count() + self.loose.iter().count();
        (parts, self.slab.iter().count())
    }
}
