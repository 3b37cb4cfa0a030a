//! What an entry of a scope begins and ends with, by its policy.

use super::{Inner, Serving};
use crate::cache::Wanted;
use crate::cache::chunk::PART;
use crate::cache::identity::Identity;
use crate::cache::plans::Expected;
use crate::cache::policy::Policy;
use crate::cache::record::{Noted, PLANNED, RECORDED, Recording};
use crate::cache::shard::Shard;
use crate::cache::stats::Counters;
use crate::device::DevicePtr;
use crate::memory::header::Header;

impl Inner {
    /// An outermost entry begins.
    #[inline]
    pub(in crate::cache) fn begin(&mut self, identity: &Identity) {
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
        if self.records {
            self.record(Recording::new(self.exited_at, RECORDED));
        } else if plans && !follows && self.plans.learns() {
            self.record(Recording::new(self.exited_at, PLANNED));
        }
        self.choose_serving();
    }

    fn record(&mut self, recording: Recording) {
        self.recording = Some(recording);
        self.due_at = 0; // The exit has something to do.
    }

    pub(super) fn choose_serving(&mut self) {
        self.serving = match self.policy {
            _ if self.fills || self.recording.as_ref().is_some_and(Recording::is_open) => {
                Serving::Slowly
            }
            Policy::Bump => Serving::Bump,
            Policy::Plan if self.plans.is_following() => Serving::Plan,
            Policy::Recycle | Policy::Release | Policy::Plan => Serving::Bins,
        };
    }

    /// What a request is to be served from under [`Policy::Plan`]; one that differs from the plan leaves
    /// it.
    pub(in crate::cache) fn expected(&mut self, counters: &Counters, wanted: &Wanted) -> Expected {
        let idle = &mut self.bins[PART];
        self.plans.sort_in(idle, self.recording.as_mut());
        let expected = self.plans.expected(wanted.size, wanted.stream);
        if expected == Expected::Another && self.plans.is_following() {
            counters.divergences.add(1);
            if self.recording.is_none() && self.plans.learns() {
                let noted = self.plans.so_far();
                self.record(Recording::after(self.exited_at, PLANNED, noted));
            }
            self.stop_following();
        }
        expected
    }

    /// The present entry goes on without a plan.
    pub(in crate::cache) fn stop_following(&mut self) {
        self.plans.stop();
        self.choose_serving();
    }

    /// The outermost entry ends, in which something is still alive or not; answers what was noted.
    #[inline]
    pub(in crate::cache) fn end(
        &mut self,
        counters: &Counters,
        escaping: bool,
    ) -> Option<Vec<Noted>> {
        match self.policy {
            Policy::Bump => self.end_bump(escaping),
            Policy::Plan => return self.end_plan(counters, escaping),
            Policy::Recycle | Policy::Release => {}
        }
        self.recording.as_ref()?; // First: it is long, and moved.
        let (noted, _) = self.end_recording(counters)?;
        Some(noted)
    }

    /// What was noted of the entry, and whether that is all of it.
    fn end_recording(&mut self, counters: &Counters) -> Option<(Vec<Noted>, bool)> {
        let (noted, cut_at) = self.recording.take()?.finish();
        if let Some(served) = cut_at {
            counters
                .unrecorded
                .add(counters.served().wrapping_sub(served));
        }
        Some((noted, cut_at.is_none()))
    }

    fn end_plan(&mut self, counters: &Counters, escaping: bool) -> Option<Vec<Noted>> {
        let idle = &mut self.bins[PART];
        self.plans.sort_in(idle, self.recording.as_mut());
        if escaping {
            self.set_parts_aside(true);
        }
        let mut shared = self.plans.give_up_shared(&mut self.bins[PART]);
        self.stale.append(&mut shared);
        let recorded = self.end_recording(counters);
        self.plans.end(self.clock);
        if !self.plans.is_following() {
            self.learn(counters, recorded.as_ref());
        }
        self.served = counters.served();
        self.stale.append(&mut self.plans.renew());
        let (noted, is_whole) = recorded?;
        (is_whole || self.records).then_some(noted)
    }

    /// Plans an entry that no plan was followed in, from what was noted of it, if that is all of it and
    /// not too long.
    fn learn(&mut self, counters: &Counters, recorded: Option<&(Vec<Noted>, bool)>) {
        let requests = match recorded {
            Some((noted, true)) => noted.len() as u64,
            Some((_, false)) => u64::MAX,
            None => counters.served().wrapping_sub(self.served),
        };
        let is_short = requests <= PLANNED as u64;
        self.plans.note_length(is_short);
        if let Some((noted, _)) = recorded.filter(|_| is_short) {
            self.plans.learn(noted, self.clock);
            self.give_up_bins(); // What the recorded entry was served with; now there is a slab for it.
        }
    }

    /// The clock is about to move on: chunks with parts that are alive are set aside. A plan serves what
    /// escapes outside from then on.
    pub(super) fn set_parts_aside(&mut self, escape: bool) {
        let (clock, idle, aside) = (self.clock, &mut self.bins[PART], &mut self.aside);
        if let Some((live, chunks)) = self.bump.set_aside(idle, clock) {
            aside.add(clock, live, chunks);
        }
        let set_aside = |live, slab| aside.add(clock, live, slab);
        let mut spare = self.plans.set_aside(idle, escape, set_aside);
        self.stale.append(&mut spare);
    }

    /// Sets the slab aside, if it holds `address`: the plan gets another one when it next needs one. Answers
    /// the slab, which lies aside then, and the stamp of one more part of it that counts as out.
    pub(in crate::cache) fn lend_slab(
        &mut self,
        address: DevicePtr,
    ) -> Option<(&Header<Shard>, u64)> {
        let (clock, idle, aside) = (self.clock, &mut self.bins[PART], &mut self.aside);
        self.plans.sort_in(idle, self.recording.as_mut());
        if self.plans.holds(address) {
            let set_aside = |live, slab| aside.add(clock, live, slab);
            let mut spare = self.plans.set_slab_aside(set_aside);
            self.stale.append(&mut spare);
            self.clock += 1;
        }
        self.aside.lend(address)
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
        self.bump.reset(self.clock);
    }
}
