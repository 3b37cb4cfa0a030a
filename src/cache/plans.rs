//! The policy that plans: what an entry asked for is packed into one slab, and later entries are
//! served from it, request by request, for as long as they do the same.

use super::Size;
use super::chunk;
use super::plan::{Plan, Planned};
use super::record::{Noted, Recording};
use super::shard::Shard;
use crate::device::StreamId;
use crate::memory::header::{Header, List};

/// How many sequences a scope may alternate between; of one more, that not followed for longest is
/// forgotten.
const PLANS: usize = 4;

/// A scope whose entries differ so often in a row is planned anew less and less often.
const PATIENCE: u32 = 8;

/// The plans of a shard, and how far the present entry follows the first of them.
///
/// Invariants:
/// - the first plan is the one followed last;
/// - while `following`, the present entry's first `cursor` requests are those of the first plan;
/// - a slab's part is out, in the bin of parts, or in `headers`, where its plan finds it idle.
pub(super) struct Plans {
    active: Vec<Active>,
    cursor: usize,
    following: bool,
    /// From which request on which plan was followed in the present entry, by their serials.
    followed: Vec<(usize, u32)>,
    /// How many of the first requests a plan was followed for that was left then: their way back is
    /// told to the recording.
    left_at: usize,
    differed: u32,
    serials: u32,
}

struct Active {
    plan: Plan,
    serial: u32,
    slab: List<Shard>,
    /// One for each request; `None` while it is out, outside of the slab, or there is no slab.
    headers: Vec<Option<Box<Header<Shard>>>>,
    /// The number of the request before which each part was found idle last.
    idle_since: Vec<usize>,
    /// The clock of the entry that used it last.
    used_at: u64,
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
    /// As Recycle serves it: nothing is planned, or something else.
    Another,
}

impl Active {
    fn new(plan: Plan, serial: u32, used_at: u64) -> Self {
        Self {
            plan,
            serial,
            slab: List::new(),
            headers: Vec::new(),
            idle_since: Vec::new(),
            used_at,
        }
    }

    fn expects(&self, number: usize, size: Size, stream: StreamId) -> Option<&Planned> {
        let request = self.plan.requests().get(number)?;
        request
            .is_for(size.rounded_bytes, stream)
            .then_some(request)
    }

    /// Whether whatever lay where the request lies is idle; not where the slab was given up since.
    #[inline]
    fn is_clear(&self, number: usize) -> bool {
        let is_idle = |below: &u32| matches!(self.headers.get(*below as usize), Some(Some(_)));
        self.plan.before(number).iter().all(is_idle)
    }

    /// The number of the request before which the part of this one was idle again.
    fn idle_since(&self, number: usize) -> Option<usize> {
        let is_idle = self.headers.get(number).is_some_and(Option::is_some);
        is_idle.then(|| self.idle_since[number])
    }

    /// The parts of the slab that are out.
    fn out(&self) -> impl Iterator<Item = usize> {
        let requests = self.plan.requests().iter().zip(&self.headers).enumerate();
        let out =
            requests.filter(|(_, (request, header))| request.offset.is_some() && header.is_none());
        out.map(|(number, _)| number)
    }

    /// The slab, with the headers of its parts that are not out.
    fn take_slab(&mut self) -> (List<Shard>, List<Shard>) {
        let mut headers = List::new();
        for header in self.headers.drain(..).flatten() {
            headers.push(header);
        }
        self.idle_since.clear();
        (std::mem::replace(&mut self.slab, List::new()), headers)
    }
}

impl Plans {
    pub(super) fn new() -> Self {
        Self {
            active: Vec::new(),
            cursor: 0,
            following: false,
            followed: Vec::new(),
            left_at: 0,
            differed: 0,
            serials: 0,
        }
    }

    /// An outermost entry begins; answers whether there is a plan to follow.
    #[inline]
    pub(super) fn begin(&mut self) -> bool {
        self.cursor = 0;
        self.left_at = 0;
        self.followed.clear();
        if let Some(first) = self.active.first() {
            self.followed.push((0, first.serial));
        }
        self.following = !self.active.is_empty();
        self.following
    }

    /// The part that the plan has for the next request; `None` where it has none, or not yet.
    #[inline]
    pub(super) fn take(
        &mut self,
        idle: &mut List<Shard>,
        size: Size,
        stream: StreamId,
    ) -> Option<Box<Header<Shard>>> {
        if !self.following {
            return None;
        }
        self.sort_in(idle, None);
        let number = self.cursor;
        let first = self.active.first_mut()?;
        first.expects(number, size, stream)?;
        if !first.is_clear(number) {
            return None;
        }
        let header = first.headers.get_mut(number)?.take()?;
        self.cursor += 1;
        Some(header)
    }

    /// Brings idle parts to their plans. The recording of an entry that left a plan hears of those
    /// which it was handed out by it.
    #[inline]
    pub(super) fn sort_in(
        &mut self,
        idle: &mut List<Shard>,
        mut recording: Option<&mut Recording>,
    ) {
        if self.active.is_empty() {
            return; // What is idle are another policy's.
        }
        while let Some(header) = idle.pop_if(|_| true) {
            let (serial, number) = header.block.part_of();
            let found = self
                .active
                .iter_mut()
                .position(|active| active.serial == serial);
            let Some(index) = found else {
                debug_assert!(false, "a part of no plan");
                continue;
            };
            if number < self.left_at
                && self.server_of(number) == serial
                && let Some(recording) = &mut recording
            {
                recording.freed(number as u32, header.stamp());
            }
            self.active[index].idle_since[number] = self.cursor;
            self.active[index].headers[number] = Some(header);
        }
    }

    /// What the present request is to be served from; looks for another plan of an entry that began
    /// like this one.
    pub(super) fn expected(&mut self, size: Size, stream: StreamId) -> Expected {
        if !self.following {
            return Expected::Another;
        }
        if self.active[0].expects(self.cursor, size, stream).is_none() {
            let cursor = self.cursor;
            let followed = &self.active[0].plan;
            let mut others = self.active.iter();
            let other = others.position(|other| {
                other.expects(cursor, size, stream).is_some()
                    && other.plan.begins_as(followed, cursor)
            });
            let Some(other) = other else {
                return Expected::Another;
            };
            self.active[..=other].rotate_right(1);
            self.followed.push((cursor, self.active[0].serial));
        }
        let first = &self.active[0];
        let is_inside = first.plan.requests()[self.cursor].offset.is_some();
        match (is_inside, first.slab.is_empty()) {
            (false, _) => Expected::Outside,
            (true, true) => Expected::Slab(first.plan.slab_bytes()),
            (true, false) if first.is_clear(self.cursor) => Expected::Part,
            (true, false) => Expected::Another,
        }
    }

    /// A request was served outside of the slab; false where the plan has it inside by now, or has
    /// another one here: what a callback asked for meanwhile came before it.
    pub(super) fn pass(&mut self, size: Size, stream: StreamId) -> bool {
        let expects = |first: &Active| {
            let request = first.expects(self.cursor, size, stream);
            request.is_some_and(|request| request.offset.is_none())
        };
        let is_planned = self.active.first().is_some_and(expects);
        self.cursor += usize::from(is_planned);
        is_planned
    }

    /// Begins anew, all slabs given up.
    pub(super) fn forget(&mut self) {
        self.active.clear();
        self.differed = 0;
    }

    pub(super) fn is_following(&self) -> bool {
        self.following
    }

    /// The present entry is not served by a plan any more.
    pub(super) fn stop(&mut self) {
        self.following = false;
    }

    /// The present entry differs from the plan, from this request on; answers what is known of it.
    pub(super) fn leave(&mut self) -> Vec<Noted> {
        self.following = false;
        self.left_at = self.cursor;
        let requests = self.active[0].plan.requests()[..self.cursor]
            .iter()
            .enumerate();
        let noted = requests.map(|(number, request)| {
            let serial = self.server_of(number);
            let server = self.active.iter().find(|active| active.serial == serial);
            let idle_since = server.and_then(|server| server.idle_since(number));
            request.noted(number, idle_since)
        });
        noted.collect()
    }

    /// The plan that served a request of the present entry.
    fn server_of(&self, number: usize) -> u32 {
        let after = self.followed.partition_point(|(from, _)| *from <= number);
        self.followed[after - 1].1
    }

    /// Lays the parts of the plan that is followed into a slab for it; `header` makes one for a part.
    pub(super) fn add_slab(
        &mut self,
        slab: Box<Header<Shard>>,
        mut header: impl FnMut(crate::memory::Block) -> Box<Header<Shard>>,
    ) {
        let first = &mut self.active[0];
        let requests = first.plan.requests().iter().enumerate();
        let parts = requests.map(|(number, request)| {
            let offset = request.offset?;
            let part = slab
                .block
                .new_part_at(offset, request.rounded_bytes, first.serial, number);
            Some(header(part))
        });
        first.headers = parts.collect();
        // Those before were served from a slab that was lost, and were idle by now at the earliest.
        first.idle_since = vec![self.cursor; first.headers.len()];
        first.slab.push(slab);
    }

    /// The entry ends that was recorded, because there was no plan or it was left: it is planned,
    /// together with an earlier one of the same requests. Answers the slab that it replaces; where
    /// the sequence is a new one, all that are idle, because sequences that are new again and again
    /// would otherwise leave a slab each. One that comes again has a slab again.
    pub(super) fn learn(&mut self, noted: &[Noted], clock: u64) -> List<Shard> {
        self.differed += 1;
        if noted.is_empty() || self.differed > PATIENCE && !self.differed.is_power_of_two() {
            return List::new();
        }
        let mut plan = Plan::new(noted);
        let alike = self
            .active
            .iter()
            .position(|active| active.plan.is_alike(&plan));
        let mut given_up = List::new();
        let replaced = alike.or((self.active.len() == PLANS).then_some(PLANS - 1));
        if let Some(index) = replaced {
            let mut old = self.active.remove(index);
            if alike.is_some() {
                plan = old.plan.merged(&plan);
            }
            given_up = all_of(old.take_slab());
        }
        if alike.is_none() {
            given_up.append(&mut self.take_idle_slabs(|_| true));
        }
        self.serials += 1;
        self.active
            .insert(0, Active::new(plan, self.serials, clock));
        given_up
    }

    /// The entry ends. It used its plan if it followed that to the end, or left it in the second half.
    pub(super) fn end(&mut self, clock: u64) {
        if self.following {
            self.differed = 0;
        }
        let served = if self.following {
            usize::MAX
        } else {
            self.left_at
        };
        if let Some(first) = self.active.first_mut()
            && served >= first.plan.requests().len().div_ceil(2)
        {
            first.used_at = clock;
        }
    }

    /// The clock is about to move on while parts may be alive: the slabs that they lie in are set
    /// aside, and what escapes is served outside from now on. `aside` gets the parts out
    /// and their slab; answers the headers that are not needed any more.
    pub(super) fn set_aside(
        &mut self,
        idle: &mut List<Shard>,
        escape: bool,
        mut aside: impl FnMut(usize, List<Shard>),
    ) -> List<Shard> {
        self.sort_in(idle, None);
        let mut spare = List::new();
        for active in &mut self.active {
            if active.slab.is_empty() {
                continue;
            }
            let out: Vec<usize> = active.out().collect();
            if !out.is_empty() {
                let (slab, mut headers) = active.take_slab();
                aside(out.len(), slab);
                spare.append(&mut headers);
                if escape {
                    active
                        .plan
                        .leave_out(|number| out.binary_search(&number).is_ok());
                }
            }
        }
        spare
    }

    /// The slabs of which nothing is out, that the matching plans have.
    fn give_up_where(
        &mut self,
        idle: &mut List<Shard>,
        matches: impl Fn(&Active) -> bool,
    ) -> List<Shard> {
        self.sort_in(idle, None);
        self.take_idle_slabs(matches)
    }

    fn take_idle_slabs(&mut self, matches: impl Fn(&Active) -> bool) -> List<Shard> {
        let mut given_up = List::new();
        for active in &mut self.active {
            if !active.slab.is_empty() && matches(active) && active.out().next().is_none() {
                given_up.append(&mut all_of(active.take_slab()));
            }
        }
        given_up
    }

    /// The slabs of which nothing is out.
    pub(super) fn give_up(&mut self, idle: &mut List<Shard>) -> List<Shard> {
        self.give_up_where(idle, |_| true)
    }

    /// Those whose plan no entry followed since the clock `too_old`.
    pub(super) fn expire(&mut self, idle: &mut List<Shard>, too_old: u64) -> List<Shard> {
        self.give_up_where(idle, |active| active.used_at < too_old)
    }

    /// Those that other streams may still use.
    pub(super) fn give_up_shared(&mut self, idle: &mut List<Shard>) -> List<Shard> {
        self.give_up_where(idle, |active| chunk::is_shared(&active.slab))
    }

    /// The slab of a part that came back waits for the streams that may still use the part, and serves
    /// nothing more in this entry.
    pub(super) fn note_others(&mut self, part: &Header<Shard>) {
        for active in &mut self.active {
            chunk::note_others(&mut active.slab, part);
        }
        self.following = false;
    }

    /// Asserts the invariants; answers the bytes of the slabs, and how many headers are idle here.
    #[cfg(test)]
    pub(super) fn check(&self) -> (u64, u64) {
        let (mut bytes, mut headers) = (0, 0);
        for active in &self.active {
            bytes += chunk::bytes(active.slab.iter());
            headers += active.headers.iter().flatten().count() as u64;
            let serial = active.serial;
            for (number, header) in active.headers.iter().enumerate() {
                if let Some(header) = header {
                    assert_eq!(header.block.part_of(), (serial, number));
                    assert_eq!(header.class, chunk::PART);
                }
            }
        }
        (bytes, headers)
    }
}

fn all_of((mut slab, mut headers): (List<Shard>, List<Shard>)) -> List<Shard> {
    slab.append(&mut headers);
    slab
}
