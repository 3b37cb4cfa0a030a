//! The slab of a plan: its layout, and its release.

use super::tree::PlannedRequest;
use super::{Plan, PlannedBlock, SEVERAL};
use crate::cache::stats::Counters;
use crate::cache::store::Store;
use crate::memory::header::List;

impl Plan {
    /// If the plan's suballocations do not exist yet, creates them in the slab.
    pub(super) fn lay_out(&mut self, store: &Store, counters: &Counters) {
        let Some(slab) = self.slab.first().filter(|_| self.blocks.is_empty()) else {
            return;
        };
        let lay = |index: usize, request: &PlannedRequest| {
            let address = slab.block.address.offset(request.offset?);
            let mut header = store.new_suballocation(counters, slab.block.new_suballocation());
            header
                .block
                .set_suballocation(address, request.rounded_bytes, index);
            header.join_slab(slab);
            Some(header)
        };
        let requests = self.tree.requests().iter().enumerate();
        let blocks = requests.map(|(index, request)| PlannedBlock {
            fit: request.fit(),
            below: match *self.tree.before(request) {
                [] => index as u32,
                [below] => below,
                _ => SEVERAL,
            },
            header: lay(index, request),
            // A slab that has since been detached or released may have served earlier requests of
            // the entry. So all suballocations count as idle since the current cursor.
            idle_since: self.cursor as u32,
            served_bytes: request.rounded_bytes,
        });
        self.blocks = blocks.collect();
    }

    pub(super) fn live(&self) -> impl Iterator<Item = usize> {
        let requests = self.tree.requests().iter().zip(&self.blocks).enumerate();
        let live = requests
            .filter(|(_, (request, block))| request.offset.is_some() && block.header.is_none());
        live.map(|(index, _)| index)
    }

    pub(super) fn has_live(&self) -> bool {
        self.live().next().is_some() || self.gaps.as_ref().is_some_and(|gaps| gaps.live() > 0)
    }

    /// Removes and returns the idle headers.
    pub(super) fn take_headers(&mut self) -> List {
        self.gaps = None;
        let mut headers = std::mem::take(&mut self.unplanned);
        for block in self.blocks.drain(..) {
            block
                .header
                .into_iter()
                .for_each(|header| headers.push(header));
        }
        headers
    }

    /// Detaches the slab, with or without live suballocations.
    pub(super) fn detach_slab(&mut self, store: &mut Store) {
        let live = match &self.gaps {
            Some(gaps) => (gaps.live(), gaps.live_bytes()),
            None => {
                let sizes = self
                    .live()
                    .map(|index| self.tree.requests()[index].rounded_bytes);
                sizes.fold((0, 0), |(live, sum), bytes| (live + 1, sum + bytes))
            }
        };
        store.detached.add(store.epoch, live, self.slab.take());
        store.release(self.take_headers());
    }

    pub(super) fn release_slab(&mut self, store: &mut Store) {
        if !self.has_live() {
            store.release(self.take_headers());
            store.release(self.slab.take());
        }
    }
}
