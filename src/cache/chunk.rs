//! Blocks that are handed out piece by piece. Their parts have headers of their own, of the class
//! [`PART`]: one that drops goes to the bin of that class, as any block goes to its own.

use super::shard::Shard;
use crate::device::DevicePtr;
use crate::memory::header::{Header, List};
use crate::memory::order::StreamSet;
use crate::pool::size_class::CLASSES;

/// The class of a part of a chunk: above those of sizes.
pub(super) const PART: usize = CLASSES;
/// The class of a chunk.
pub(super) const CHUNK: usize = CLASSES + 1;

/// Chunks with parts that outlived their entry.
#[derive(Default)]
pub(super) struct SetAside(Vec<Aside>);

/// Invariant: `live` parts of the chunks are out, at least one.
struct Aside {
    /// The clock that the parts were handed out at.
    stamp: u64,
    live: usize,
    chunks: List<Shard>,
}

impl SetAside {
    /// Keeps chunks of which `live` parts are out that were handed out at `stamp`.
    pub(super) fn add(&mut self, stamp: u64, live: usize, mut chunks: List<Shard>) {
        match self.0.iter_mut().find(|aside| aside.stamp == stamp) {
            Some(aside) => {
                aside.live += live;
                aside.chunks.append(&mut chunks);
            }
            None => self.0.push(Aside {
                stamp,
                live,
                chunks,
            }),
        }
    }

    /// A part came back that was handed out at `stamp`; answers the chunks that nobody uses any more.
    pub(super) fn part_came_back(&mut self, stamp: u64) -> List<Shard> {
        let Some(index) = self.0.iter().position(|aside| aside.stamp == stamp) else {
            return List::new();
        };
        self.0[index].live -= 1;
        if self.0[index].live > 0 {
            return List::new();
        }
        self.0.swap_remove(index).chunks
    }

    /// The chunk that holds `address`, and the stamp of one more part of it that counts as out.
    pub(super) fn lend(&mut self, address: DevicePtr) -> Option<(&Header<Shard>, u64)> {
        self.0.iter_mut().find_map(|aside| {
            let chunk = aside.chunks.iter().find(|chunk| holds(chunk, address))?;
            aside.live += 1;
            Some((chunk, aside.stamp))
        })
    }

    /// The chunk of a part that came back waits for the streams that may still use the part.
    pub(super) fn note_others(&mut self, part: &Header<Shard>) {
        for aside in &mut self.0 {
            note_others(&mut aside.chunks, part);
        }
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.0.iter().map(|aside| aside.chunks.iter().count()).sum()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let aside = self.0.iter().inspect(|aside| assert!(aside.live > 0));
        bytes(aside.flat_map(|aside| aside.chunks.iter()))
    }
}

/// Lets the chunk that `part` lies in wait for the streams that may still use it.
pub(super) fn note_others(chunks: &mut List<Shard>, part: &Header<Shard>) {
    chunks.for_each_mut(|chunk| {
        if holds(chunk, part.block.address) {
            chunk.block.other_streams = chunk.block.other_streams.union(part.block.other_streams);
        }
    });
}

/// Whether the address lies in the chunk.
pub(super) fn holds(chunk: &Header<Shard>, address: DevicePtr) -> bool {
    let first = chunk.block.address.0;
    (first..first + chunk.block.bytes()).contains(&address.0)
}

/// Whether other streams may still use one of the chunks, so that nothing of it may be used twice.
pub(super) fn is_shared(chunks: &List<Shard>) -> bool {
    let no_others = |chunk: &Header<Shard>| chunk.block.other_streams == StreamSet::NONE;
    !chunks.iter().all(no_others)
}

/// The bytes of all chunks.
pub(super) fn bytes<'a>(chunks: impl Iterator<Item = &'a Header<Shard>>) -> u64 {
    chunks.map(|chunk| chunk.block.bytes()).sum()
}
