//! What is true of the plan of a shard whenever nobody is in the middle of anything.

use super::{Plans, SEQUENCES};
use crate::cache::chunk;
use crate::cache::gaps::Gaps;
use crate::cache::record::PLANNED;
use crate::cache::shard::Shard;
use crate::memory::header::Header;

impl Plans {
    /// Asserts the invariants; answers the bytes of the slab, and how many headers are idle here.
    pub(in crate::cache) fn check(&self) -> (u64, u64) {
        assert!(self.sequences.len() <= SEQUENCES && self.known_requests() <= PLANNED);
        let slab_bytes = chunk::bytes(self.slab.iter());
        assert!(self.slab.iter().count() <= 1);
        assert!(self.slab.is_empty() || self.is_outdated || slab_bytes >= self.plan.slab_bytes());
        let is_own = |slab: &Header<Shard>| self.plan.is_on(slab.block.stream);
        assert!(self.is_outdated || self.slab.iter().all(is_own));
        assert!(self.parts.is_empty() || !self.slab.is_empty());
        self.gaps.iter().for_each(Gaps::check);
        let idle = self
            .parts
            .iter()
            .enumerate()
            .filter_map(|(number, part)| Some((number, part.header.get()?)));
        let idle = idle.inspect(|(number, header)| {
            assert_eq!(
                (header.block.suballocation(), header.class),
                (*number, chunk::PART)
            );
        });
        (
            slab_bytes,
            (idle.count() + self.loose.iter().count()) as u64,
        )
    }
}
