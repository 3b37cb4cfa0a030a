//! Tests of ranges against the oracle, for the pools that support ranges.

use std::cmp::Reverse;
use std::ops::Range;

use super::UNIT;
use super::oracle::{ByteStreams, SegmentModel, Tested, owner_of};
use crate::pool::{Pages, SegmentId, StreamOwner};

/// The page size of the tests. A page has several units, so that blocks begin and end within pages.
pub(super) const PAGE: u64 = 8 * UNIT;

/// The sort key of a candidate: its length, then its position.
type Choice = (u64, SegmentId, u64);

fn choice(pages: Pages) -> Choice {
    (pages.bytes, pages.segment, pages.offset)
}

fn bytes_of(pages: Pages) -> Range<u64> {
    pages.offset..pages.offset + pages.bytes
}

impl SegmentModel {
    /// Creates a range whose pages are all uncommitted.
    fn range(bytes: u64, group: u32) -> Self {
        let mut model = Self::new(bytes, group);
        model.is_range = true;
        model.uncommitted = pages_within(&(0..bytes)).collect();
        model
    }

    /// Commits pages: they become free without streams, but may join free ranges that have streams.
    fn commit(&mut self, committed: &Range<u64>) {
        let before = self.uncommitted.len() as u64;
        let lies_outside = |page: &Range<u64>| !committed.contains(&page.start);
        self.uncommitted.retain(lies_outside);
        let newly = before - self.uncommitted.len() as u64;
        let bytes = committed.end - committed.start;
        assert_eq!(
            newly * PAGE,
            bytes,
            "{committed:?} were not all uncommitted"
        );
        self.set_streams(committed.clone(), ByteStreams::new());
        self.join(committed.start);
    }

    fn decommit(&mut self, pages: Range<u64>) -> StreamOwner {
        let mut free = self.free();
        let is_free = free.any(|free| free.start <= pages.start && pages.end <= free.end);
        assert!(is_free, "{pages:?} are not free");
        drop(free);
        let owner = owner_of(&self.streams(&pages));
        self.uncommitted.extend(pages_within(&pages));
        self.set_streams(pages, ByteStreams::new());
        owner
    }

    fn free_around(&self, offset: u64) -> u64 {
        let around = self.free().find(|free| free.contains(&offset));
        around.map_or(0, |free| free.end - free.start)
    }

    /// Returns every sequence of consecutive uncommitted pages.
    fn uncommitted_sequences(&self) -> impl Iterator<Item = Range<u64>> {
        let is_uncommitted = |page: Range<u64>| self.uncommitted.contains(&page);
        pages_within(&(0..self.bytes)).flat_map(move |first| {
            let from_here = pages_within(&(first.start..self.bytes));
            let uncommitted = from_here.take_while(move |page| is_uncommitted(page.clone()));
            uncommitted.map(move |last| first.start..last.end)
        })
    }
}

fn pages_within(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let first = range.start.div_ceil(PAGE);
    (first..range.end / PAGE).map(|page| page * PAGE..(page + 1) * PAGE)
}

impl Tested {
    pub(super) fn add_range(&mut self, pages: u64, request_bytes: u64) -> SegmentId {
        let id = self.vacant_number();
        let bytes = pages * PAGE;
        self.pool.add_range(id, bytes, request_bytes);
        let group = self.group_of(bytes, request_bytes);
        self.segments.insert(id, SegmentModel::range(bytes, group));
        self.compare();
        id
    }

    /// Takes a block. If the pool refuses, commits the pages that the pool names and takes again.
    /// The pages are compared with all sequences of uncommitted pages.
    pub(super) fn take_expanding(&mut self, request_bytes: u64) -> bool {
        if self.try_take(request_bytes).is_some() {
            return true;
        }
        let bytes = self.round(request_bytes);
        let best = self.best_expansion(bytes);
        let wanted = self.pool.pages_to_commit(bytes, PAGE);
        assert_eq!(wanted.map(choice), best, "for {bytes}");
        if let Some(pages) = wanted {
            self.commit(pages);
            self.take(request_bytes);
        }
        wanted.is_some()
    }

    fn best_expansion(&self, bytes: u64) -> Option<Choice> {
        let group = self.group_of(bytes, bytes);
        let of_group = self.segments.iter();
        let of_group = of_group.filter(|(_, model)| model.group == group);
        let choices = of_group.flat_map(|(&id, model)| {
            let enough = model.uncommitted_sequences().filter(move |pages| {
                let mut then = model.clone();
                then.commit(pages);
                then.free_around(pages.start) >= bytes
            });
            enough.map(move |pages| (pages.end - pages.start, id, pages.start))
        });
        choices.min()
    }

    pub(super) fn commit(&mut self, pages: Pages) {
        let model = self.segments.get_mut(&pages.segment).unwrap();
        model.commit(&bytes_of(pages));
        self.pool.commit(pages);
        self.compare();
    }

    pub(super) fn decommit(&mut self, pages: Pages) {
        let model = self.segments.get_mut(&pages.segment).unwrap();
        let owner = model.decommit(bytes_of(pages));
        assert_eq!(self.pool.decommit(pages), owner, "{pages:?}");
        self.compare();
    }

    /// Decommits one of the idle parts, or some pages within it.
    pub(super) fn decommit_some(&mut self, part: usize, skip: u64, most: u64) {
        let idle = self.pool.idle_pages(PAGE);
        let Some(&pages) = idle.get(part % idle.len().max(1)) else {
            return;
        };
        let count = pages.bytes / PAGE;
        let skip = skip % count;
        let bytes = (count - skip).min(most) * PAGE;
        let offset = pages.offset + skip * PAGE;
        self.decommit(Pages {
            offset,
            bytes,
            ..pages
        });
    }

    /// Checks that the pool lists exactly the whole free pages of the model's ranges, by falling
    /// offset.
    pub(super) fn compare_idle_pages(&self) {
        let ranges = self.segments.iter().filter(|(_, model)| model.is_range);
        let parts = ranges.flat_map(|(&id, model)| {
            let parts = model.free().map(move |free| {
                let (begin, end) = (free.start.next_multiple_of(PAGE), free.end / PAGE * PAGE);
                (end.saturating_sub(begin), id, begin)
            });
            parts.filter(|&(bytes, _, _)| bytes > 0)
        });
        let mut expected: Vec<Choice> = parts.collect();
        expected.sort_by_key(|&(_, id, offset)| Reverse((offset, id)));
        let idle = self.pool.idle_pages(PAGE).into_iter().map(choice);
        assert_eq!(idle.collect::<Vec<_>>(), expected);
    }
}

/// Grows and shrinks ranges. Each step commits exactly the minimal pages that the oracle finds.
pub(super) fn grow_and_shrink(mut tested: Tested) {
    let id = tested.add_range(8, UNIT);
    assert!(tested.try_take(UNIT).is_none());
    // Each case is a request, and the committed pages after it. The second request fits into the
    // remainder of the second page.
    for (units, pages) in [(12, 2), (4, 2), (8, 3), (9, 5)] {
        assert!(tested.take_expanding(units * UNIT));
        let used: u64 = [12, 4, 8, 9].iter().take_while(|&&of| of != units).sum();
        assert_eq!(
            tested.pool.free_bytes(),
            pages * PAGE - (used + units) * UNIT
        );
    }
    assert!(
        !tested.take_expanding(32 * UNIT),
        "three pages and 7 units are left"
    );
    assert!(tested.take_expanding(31 * UNIT));
    assert!(!tested.remove(id));
    for span in tested.taken.clone() {
        tested.give(span);
    }
    assert!(!tested.remove(id), "a range with pages was removed");
    tested.decommit_some(0, 2, 3);
    assert_eq!(tested.pool.free_bytes(), 5 * PAGE);
    for _ in 0..2 {
        tested.decommit_some(0, 0, 8);
    }
    assert!(tested.remove(id));
}

/// Makes holes between used pages. Asserts that the pool chooses the fewest pages.
pub(super) fn fill_holes(mut tested: Tested) {
    tested.add_range(10, UNIT);
    let spans: Vec<_> = (0..10)
        .map(|_| {
            assert!(tested.take_expanding(PAGE));
            *tested.taken.last().unwrap()
        })
        .collect();
    assert!(!tested.take_expanding(UNIT));
    for at in [1, 2, 4, 6, 8] {
        tested.give(spans[at]);
    }
    // Now the pages 1, 2, 6 and 8 are uncommitted, and page 4 is free.
    for _ in 0..2 {
        tested.decommit_some(0, 0, 1);
    }
    tested.decommit_some(1, 0, 2);
    let wanted = |tested: &Tested, pages: u64| {
        let pages = tested.pool.pages_to_commit(pages * PAGE, PAGE);
        pages.map(|pages| (pages.offset / PAGE, pages.bytes / PAGE))
    };
    assert_eq!(wanted(&tested, 2), Some((1, 2)));
    tested.give(spans[5]);
    assert_eq!(wanted(&tested, 3), Some((6, 1)), "next to two free pages");
    tested.give(spans[7]);
    assert_eq!(wanted(&tested, 4), Some((6, 1)), "between free pages");
    assert_eq!(wanted(&tested, 5), None, "two parts would be needed");
    tested.give(spans[3]);
    assert_eq!(wanted(&tested, 4), Some((2, 1)), "the lowest of the fewest");
    for pages in [4, 2, 1] {
        assert!(tested.take_expanding(pages * PAGE));
    }
}
