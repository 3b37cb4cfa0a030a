//! Tests of the model against a naive implementation of its rules. The naive implementation scans
//! all stretches in each step, and merges stretches only in [`Naive::tidy`].

use super::{Driver, MIB, Model, ModelBlock, PyTorch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Used,
    Free,
    Unmapped,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u64,
    bytes: u64,
    state: State,
    /// The segment that contains the stretch. Only stretches of one segment merge.
    segment: u64,
}

struct Naive {
    stretches: Vec<Stretch>,
    is_small: bool,
    is_expandable: bool,
}

/// The length of an address range. No test maps more.
const ENDLESS_BYTES: u64 = 1 << 50;
/// An upper bound on the pages that one request of a test needs.
const MOST_PAGES: usize = 1 << 10;

impl Naive {
    fn new(is_small: bool, is_expandable: bool) -> Self {
        let mut stretches = Vec::new();
        if is_expandable {
            stretches.push(Stretch {
                start: 0,
                bytes: ENDLESS_BYTES,
                state: State::Unmapped,
                segment: 0,
            });
        }
        Self {
            stretches,
            is_small,
            is_expandable,
        }
    }

    fn page_bytes(&self) -> u64 {
        if self.is_small { 2 * MIB } else { 20 * MIB }
    }

    fn reserved_bytes(&self) -> u64 {
        let mapped = |stretch: &&Stretch| stretch.state != State::Unmapped;
        let mapped = self.stretches.iter().filter(mapped);
        mapped.map(|stretch| stretch.bytes).sum()
    }

    /// Sorts the stretches, and merges adjacent stretches that have the same state and are not in
    /// use.
    fn tidy(&mut self) {
        self.stretches.retain(|stretch| stretch.bytes > 0);
        self.stretches.sort_by_key(|stretch| stretch.start);
        let mut tidied: Vec<Stretch> = Vec::new();
        for stretch in self.stretches.drain(..) {
            match tidied.last_mut() {
                Some(last)
                    if last.segment == stretch.segment
                        && last.state == stretch.state
                        && last.state != State::Used =>
                {
                    last.bytes += stretch.bytes;
                }
                _ => tidied.push(stretch),
            }
        }
        self.stretches = tidied;
    }

    /// Returns the size to which a free stretch can grow.
    fn potential(&self, index: usize) -> u64 {
        let behind = self.stretches.get(index + 1);
        let behind = behind.filter(|stretch| stretch.state == State::Unmapped);
        self.stretches[index].bytes + behind.map_or(0, |stretch| stretch.bytes)
    }

    fn take(&mut self, bytes: u64) -> Option<u64> {
        let mut fitting: Vec<usize> = (0..self.stretches.len())
            .filter(|&index| self.stretches[index].state == State::Free)
            .filter(|&index| self.stretches[index].bytes >= bytes)
            .collect();
        fitting.sort_by_key(|&index| (self.stretches[index].bytes, self.stretches[index].start));
        let mut best = *fitting.first()?;
        for &next in &fitting[1..] {
            if !self.is_expandable || self.potential(next) >= self.potential(best) {
                break;
            }
            best = next;
        }
        let rest = self.stretches[best].bytes - bytes;
        let splits = if self.is_small || self.is_expandable {
            rest >= 512
        } else {
            rest > MIB
        };
        let Stretch { start, segment, .. } = self.stretches[best];
        self.stretches[best].state = State::Used;
        if splits {
            self.stretches[best].bytes = bytes;
            self.stretches.push(Stretch {
                start: start + bytes,
                bytes: rest,
                state: State::Free,
                segment,
            });
        }
        self.tidy();
        Some(start)
    }

    /// Reserves memory for a request. Returns false if `room_bytes` is too small.
    fn grow(&mut self, bytes: u64, room_bytes: u64) -> bool {
        if self.is_expandable {
            return self.map(bytes, room_bytes);
        }
        let segment_bytes = match bytes {
            _ if self.is_small => 2 * MIB,
            bytes if bytes < 10 * MIB => 20 * MIB,
            bytes => bytes.div_ceil(2 * MIB) * 2 * MIB,
        };
        if segment_bytes > room_bytes {
            return false;
        }
        let last = self.stretches.last();
        let start = last.map_or(0, |last| last.start + last.bytes + 512);
        self.stretches.push(Stretch {
            start,
            bytes: segment_bytes,
            state: State::Free,
            segment: start,
        });
        true
    }

    fn map(&mut self, bytes: u64, room_bytes: u64) -> bool {
        let page_bytes = self.page_bytes();
        let is_unmapped = |stretch: &Stretch| stretch.state == State::Unmapped;
        for hole in 0..self.stretches.len() {
            if !is_unmapped(&self.stretches[hole]) {
                continue;
            }
            let before = hole.checked_sub(1);
            let before = before.filter(|&index| self.stretches[index].state == State::Free);
            let first = before.unwrap_or(hole);
            let run: Vec<usize> = (first..self.stretches.len())
                .take_while(|&index| self.stretches[index].state != State::Used)
                .collect();
            let length: u64 = run.iter().map(|&index| self.stretches[index].bytes).sum();
            if length < bytes {
                continue;
            }
            let start = self.stretches[first].start;
            let mut pages = Vec::new();
            for index in run {
                let stretch = self.stretches[index];
                if is_unmapped(&stretch) {
                    let (from, bytes) = (stretch.start, stretch.bytes);
                    let from_first = (from..from + bytes).step_by(page_bytes as usize);
                    pages.extend(from_first.take(MOST_PAGES));
                }
            }
            pages.retain(|&page| page < start + bytes);
            // Maps the pages hole by hole. If the pages of a hole exceed the remaining budget, none
            // of them is mapped.
            let mut left_bytes = room_bytes;
            for pages in pages.chunk_by(|page, next| page + page_bytes == *next) {
                let hole_bytes = pages.len() as u64 * page_bytes;
                if hole_bytes > left_bytes {
                    return false;
                }
                left_bytes -= hole_bytes;
                for &page in pages {
                    self.set_page(page, page_bytes, State::Free);
                }
            }
            return true;
        }
        false
    }

    /// Sets the state of a page that lies in one stretch.
    fn set_page(&mut self, page: u64, page_bytes: u64, state: State) {
        let around = self.stretches.iter_mut().find(|stretch| {
            stretch.start <= page && stretch.start + stretch.bytes >= page + page_bytes
        });
        let around = around.expect("a page of the range");
        let behind = Stretch {
            start: page + page_bytes,
            bytes: around.start + around.bytes - page - page_bytes,
            ..*around
        };
        around.bytes = page - around.start;
        self.stretches.push(behind);
        self.stretches.push(Stretch {
            start: page,
            bytes: page_bytes,
            state,
            segment: 0,
        });
        self.tidy();
    }

    fn release(&mut self, start: u64) {
        let mut own = self.stretches.iter_mut();
        let own = own.find(|stretch| stretch.start == start);
        own.expect("a block").state = State::Free;
        self.tidy();
    }

    fn trim(&mut self) {
        if self.is_expandable {
            let page_bytes = self.page_bytes();
            let free = self
                .stretches
                .iter()
                .filter(|stretch| stretch.state == State::Free);
            let free: Vec<Stretch> = free.copied().collect();
            for Stretch { start, bytes, .. } in free {
                let mut page = start.div_ceil(page_bytes) * page_bytes;
                while page + page_bytes <= start + bytes {
                    self.set_page(page, page_bytes, State::Unmapped);
                    page += page_bytes;
                }
            }
            return;
        }
        let stretches = self.stretches.clone();
        let shares = |one: &Stretch| {
            let others = stretches.iter();
            others.filter(|other| other.segment == one.segment).count() > 1
        };
        self.stretches
            .retain(|stretch| stretch.state == State::Used || shares(stretch));
    }
}

/// Returns the next number of a linear congruential generator (its high bits).
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

fn some_bytes(state: &mut u64) -> u64 {
    let most = [2048, 600 << 10, MIB + 700, 3 * MIB, 12 * MIB, 45 * MIB];
    1 + next(state) % most[next(state) as usize % most.len()]
}

/// The model and its naive implementation, with the blocks that are live in the model.
struct Pair {
    model: PyTorch,
    naive: [Naive; 2],
    live: Vec<(ModelBlock, u64)>,
    limit_bytes: u64,
}

impl Pair {
    fn new(is_expandable: bool, limit_bytes: Option<u64>) -> Self {
        Self {
            model: PyTorch::new(is_expandable, limit_bytes, Driver::default()),
            naive: [true, false].map(|is_small| Naive::new(is_small, is_expandable)),
            live: Vec::new(),
            limit_bytes: limit_bytes.unwrap_or(1 << 63),
        }
    }

    fn naive_reserved_bytes(&self) -> u64 {
        self.naive.iter().map(Naive::reserved_bytes).sum()
    }

    /// Places a request with the naive implementation. Returns the pool and the address.
    fn naive_allocate(&mut self, bytes: u64) -> Option<(usize, u64)> {
        let bytes = bytes.div_ceil(512) * 512;
        let pool = usize::from(bytes > MIB);
        if let Some(start) = self.naive[pool].take(bytes) {
            return Some((pool, start));
        }
        let room_bytes = self.limit_bytes - self.naive_reserved_bytes();
        if !self.naive[pool].grow(bytes, room_bytes) {
            self.naive.iter_mut().for_each(Naive::trim);
            let room_bytes = self.limit_bytes - self.naive_reserved_bytes();
            if !self.naive[pool].grow(bytes, room_bytes) {
                return None;
            }
        }
        self.naive[pool].take(bytes).map(|start| (pool, start))
    }

    fn allocate(&mut self, bytes: u64) -> bool {
        let block = self.model.allocate(bytes);
        let placed = block.as_ref().map(|block| (block.pool, block.start));
        assert_eq!(placed, self.naive_allocate(bytes), "{bytes} bytes");
        let is_placed = block.is_some();
        self.live.extend(block.map(|block| (block, bytes)));
        is_placed
    }

    fn free(&mut self, index: usize) {
        let (block, _) = self.live.swap_remove(index);
        self.naive[block.pool].release(block.start);
        self.model.free(block);
    }

    fn check(&self) {
        let [(small, small_bytes), (large, large_bytes)] =
            self.model.pools.each_ref().map(|pool| pool.check());
        let reserved_bytes = self.model.reserved_bytes();
        assert_eq!(small_bytes + large_bytes, reserved_bytes);
        assert_eq!(self.naive_reserved_bytes(), reserved_bytes);
        assert!(reserved_bytes <= self.limit_bytes);
        let live_bytes: u64 = self.live.iter().map(|(_, bytes)| bytes).sum();
        assert!(live_bytes <= reserved_bytes);
        assert_eq!(small.len() + large.len(), self.live.len());
        for (block, bytes) in &self.live {
            let used = [&small, &large][block.pool];
            let index = used.binary_search_by_key(&block.start, |&(start, _)| start);
            assert!(used[index.unwrap()].1 >= *bytes);
        }
    }
}

#[test]
fn every_block_is_at_the_offset_of_the_rules_at_every_step() {
    for is_expandable in [false, true] {
        for limit_bytes in [None, Some(64 * MIB), Some(129 * MIB)] {
            let (mut failures, mut most_reserved_bytes) = (0, 0);
            for seed in 0..12 {
                let mut state = seed;
                let mut pair = Pair::new(is_expandable, limit_bytes);
                for _ in 0..400 {
                    let is_more = next(&mut state) % 40 > pair.live.len() as u64;
                    if is_more || pair.live.is_empty() {
                        failures += u64::from(!pair.allocate(some_bytes(&mut state)));
                    } else {
                        let index = next(&mut state) as usize % pair.live.len();
                        pair.free(index);
                    }
                    pair.check();
                    most_reserved_bytes = most_reserved_bytes.max(pair.model.reserved_bytes());
                }
            }
            assert_eq!(failures > 0, limit_bytes.is_some());
            assert!(most_reserved_bytes > 60 * MIB);
        }
    }
}

#[test]
fn giants_end_in_a_failure_and_in_no_overflow() {
    for is_expandable in [false, true] {
        let mut model = PyTorch::new(is_expandable, None, Driver::default());
        for bytes in [u64::MAX, u64::MAX - 511, (1 << 63) + 1] {
            assert!(model.allocate(bytes).is_none());
        }
        for iteration in 0..20 {
            let bytes = (1 << 62) + iteration * 4 * MIB;
            if let Some(block) = model.allocate(bytes) {
                model.free(block);
            }
        }
        assert!(model.reserved_bytes() <= 1 << 63);
    }
}
