//! The update of a plan's sequences. An entry that differs from the plan adds a sequence. Unused
//! sequences are removed.

use super::sequence::Sequence;
use super::tree::PlanTree;
use super::{EAGER_REPLANS, Plan, SEQUENCES};
use crate::cache::record::{MAX_PLANNED, RecordedAllocation};
use crate::cache::stats::Counters;
use crate::cache::store::Store;

impl Plan {
    /// Returns true if an unplanned entry must be recorded. After entries that were too long to
    /// plan, records become less frequent.
    pub(super) fn learns(&self) -> bool {
        self.too_long == 0 || (self.too_long + 1).is_power_of_two()
    }

    /// Returns the record of the current entry. The entry has followed the plan up to the cursor.
    pub(super) fn recorded_so_far(&self) -> Vec<RecordedAllocation> {
        let sequence = &self.sequences[self.tree.sequence_of(self.cursor)];
        let path = self.tree.path_to(self.cursor);
        let requests = sequence.requests.iter().zip(path).enumerate();
        let recorded = requests.map(|(depth, (request, index))| {
            let block = self.blocks.get(index);
            let idle = block.filter(|block| block.header.is_some());
            let served_bytes = block.map_or(u64::MAX, |block| block.served_bytes);
            request.recorded(
                (depth, served_bytes),
                idle.map(|block| self.tree.depth(block.idle_since as usize)),
            )
        });
        recorded.collect()
    }

    /// If the record of an unplanned entry is complete and not too long, adds the entry to the
    /// sequences.
    pub(super) fn learn(
        &mut self,
        store: &mut Store,
        counters: &Counters,
        recorded: Option<&(Vec<RecordedAllocation>, bool)>,
    ) {
        let requests = match recorded {
            Some((recorded, true)) => recorded.len() as u64,
            Some((_, false)) => u64::MAX,
            None => counters.served().wrapping_sub(self.served),
        };
        if requests > MAX_PLANNED as u64 {
            self.too_long = self.too_long.saturating_add(1).min(u32::MAX - 1);
            return;
        }
        self.too_long = 0;
        if let Some((recorded, _)) = recorded {
            self.add_sequence(recorded, store.epoch);
            store.release_free_lists(); // The slab replaces these blocks.
        }
    }

    /// Adds the requests of an entry as a sequence. If there are too many sequences or requests,
    /// first removes the least recently used sequences.
    pub(super) fn add_sequence(&mut self, recorded: &[RecordedAllocation], epoch: u64) {
        self.differed += 1;
        let is_eager = self.differed <= EAGER_REPLANS || self.differed.is_power_of_two();
        if recorded.is_empty() || !is_eager {
            return;
        }
        self.is_outdated = true;
        let new = Sequence::new(recorded, epoch);
        if let Some(index) = self.related(&new) {
            let mut known = self.sequences.swap_remove(index);
            known.merge(&new);
            (known.used_epoch, known.full_epoch) = (epoch, epoch);
            // The extended sequence may cover further sequences, which are then merged.
            let fits = |other: &mut Sequence| known.has_room_for(other) || known.is_alike(other);
            let fitting: Vec<Sequence> = self.sequences.extract_if(.., fits).collect();
            fitting.iter().for_each(|other| known.merge(other));
            self.sequences.push(known);
            return;
        }
        let most = MAX_PLANNED - recorded.len();
        while self.sequences.len() == SEQUENCES || self.known_requests() > most {
            let indices = 0..self.sequences.len();
            let oldest = indices.min_by_key(|&index| self.sequences[index].used_epoch);
            oldest.map(|index| self.sequences.swap_remove(index));
        }
        self.sequences.push(new);
    }

    /// Returns the index of an equal sequence. If there is none, returns the index of a sequence
    /// from equal call sites with longer or shorter requests.
    fn related(&self, new: &Sequence) -> Option<usize> {
        let known = &self.sequences;
        let alike = known.iter().position(|known| known.is_alike(new));
        let is_related = |known: &Sequence| known.has_room_for(new) || new.has_room_for(known);
        alike.or_else(|| known.iter().position(is_related))
    }

    pub(super) fn known_requests(&self) -> usize {
        let lengths = self.sequences.iter().map(|known| known.requests.len());
        lengths.sum()
    }

    /// Returns the bytes by which the requests of the current entry are shorter than the planned
    /// requests.
    pub(super) fn spare_bytes(&mut self) -> u64 {
        if !self.varies || self.tree.requests().is_empty() {
            return 0;
        }
        let spare = |index: usize| {
            // The sizes are compared before rounding, because pools with size classes round planned
            // sizes further than a hit does.
            let planned_bytes = self.tree.requests()[index].requested_bytes;
            let served_bytes = self.blocks.get(index)?.served_bytes;
            Some(planned_bytes.saturating_sub(served_bytes))
        };
        let path = self.tree.path_to(self.cursor).into_iter();
        let spare_bytes = path.filter_map(spare).sum();
        // Requests on the path of another entry may also be shorter than planned.
        let mut planned = self.tree.requests().iter().zip(&self.blocks);
        self.varies = planned.any(|(request, block)| block.served_bytes < request.requested_bytes);
        spare_bytes
    }

    /// Ends the entry. If the entry followed at least half of its sequence, it counts as a use of
    /// the sequence. If its requests were not much shorter than planned, it also counts as a use at
    /// full length.
    pub(super) fn end_sequence(&mut self, epoch: u64, spare_bytes: u64) {
        if self.following {
            self.differed = 0;
        }
        if self.tree.requests().is_empty() {
            return;
        }
        let sequence = &mut self.sequences[self.tree.sequence_of(self.cursor)];
        if self.tree.depth(self.cursor) >= sequence.requests.len().div_ceil(2) {
            sequence.used_epoch = epoch;
            if spare_bytes == 0 || spare_bytes <= sequence.bytes() / 8 {
                sequence.full_epoch = epoch;
            }
        }
        self.root = self.tree.root_of(self.cursor);
    }

    /// If the sequences have changed, computes a new plan between two entries, and releases the
    /// suballocations. If the slab is too short for the new plan or on another stream, also
    /// releases the slab.
    pub(super) fn replan(&mut self, store: &mut Store) {
        if !std::mem::take(&mut self.is_outdated) {
            return;
        }
        self.tree = PlanTree::new(&self.sequences);
        (self.cursor, self.root, self.following) = (0, 0, false);
        store.release(self.take_headers());
        if self.slab_bytes < self.tree.slab_bytes() || !self.is_slab_own() {
            store.release(self.slab.take());
        }
    }

    /// Returns true if the slab is on the plan's stream, or if there is no slab.
    pub(super) fn is_slab_own(&self) -> bool {
        let slab = self.slab.first();
        slab.is_none_or(|slab| self.tree.is_on(slab.block.stream))
    }

    /// Marks the requests `live` as served outside the slab, in every sequence that contains them.
    pub(super) fn plan_outside(&mut self, live: &[usize]) {
        self.is_outdated = true;
        for &index in live {
            let depth = self.tree.depth(index);
            let own = &self.sequences[self.tree.sequence_of(index)];
            let common = self.sequences.iter().map(|other| other.common(own));
            let common: Vec<usize> = common.collect();
            for (sequence, common) in self.sequences.iter_mut().zip(common) {
                if common > depth {
                    sequence.requests[depth].upper = None;
                }
            }
        }
    }

    /// If the slab is much longer than needed, releases it between two entries. The needed length
    /// is the maximum over the sequences that entries have used at full length since `epoch`.
    /// Unused sequences are removed only if the slab is too long, because otherwise they cost no
    /// memory.
    pub(super) fn expire(&mut self, store: &mut Store, epoch: u64) {
        let is_used = |known: &Sequence| known.full_epoch >= epoch;
        let used = self.sequences.iter().filter(|known| is_used(known));
        let used_bytes = used.map(Sequence::load_bytes).max().unwrap_or(0);
        if self.slab.is_empty() || self.slab_bytes <= used_bytes + used_bytes / 8 {
            return;
        }
        self.is_outdated |= !self.sequences.iter().all(is_used);
        self.sequences.retain(is_used);
        self.replan(store);
        let needed_bytes = self.tree.slab_bytes();
        if self.slab_bytes > needed_bytes + needed_bytes / 8 {
            self.release_slab(store);
        }
    }
}
