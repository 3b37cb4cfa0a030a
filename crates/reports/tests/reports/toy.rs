//! Profiles of programs on a toy allocator, which has the invariants of the real allocator.
//! Builders of single events.

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile, Segment};

pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

const PAGE: u64 = 1 << 16;
const IMPORTED: u64 = 0x7f00_0000_0000;
const THREADS: u64 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u64,
    pub(crate) is_known: bool,
    stream: u32,
    scope: Option<u32>,
    call_site: u32,
    is_pending: bool,
}

struct Range {
    base: u64,
    reserved_bytes: u64,
    stream: u32,
}

pub(crate) struct Toy {
    numbers: Numbers,
    ranges: [Range; 2],
    blocks: Vec<Block>,
    entered: [Vec<u32>; THREADS as usize],
    events: Vec<Event>,
    time_ns: u64,
    with_stacks: bool,
}

/// A profile with the blocks that are live at its end.
pub(crate) struct Recorded {
    pub(crate) profile: Profile,
    pub(crate) live: Vec<Block>,
}

/// Records `steps` steps of a program, after `before` steps that are not recorded.
pub(crate) fn record(seed: u64, before: usize, steps: usize) -> Recorded {
    let range = |base, stream| Range {
        base,
        reserved_bytes: 0,
        stream,
    };
    let mut toy = Toy {
        numbers: Numbers(seed.wrapping_mul(2) + 0x9e37_79b9),
        ranges: [range(0x10_0000_0000, 0), range(0x20_0000_0000, 7)],
        blocks: Vec::new(),
        entered: Default::default(),
        events: Vec::new(),
        time_ns: 0,
        with_stacks: seed % 2 == 1,
    };
    (0..before).for_each(|_| toy.step());
    let segments = toy.ranges.iter().map(|range| Segment {
        address: range.base,
        bytes: range.reserved_bytes,
    });
    let segments = segments.filter(|segment| segment.bytes > 0).collect();
    toy.events.clear();
    toy.time_ns = 0;
    toy.blocks
        .iter_mut()
        .for_each(|block| block.is_known = false);
    (0..steps).for_each(|_| toy.step());
    let is_live = |block: &Block| !block.is_pending;
    Recorded {
        profile: Profile {
            segments,
            duration_ns: toy.time_ns + 1,
            events: toy.events,
            ..tables("cuda:1")
        },
        live: toy.blocks.into_iter().filter(is_live).collect(),
    }
}

/// Returns a profile with tables of names and without events.
pub(crate) fn tables(device: &str) -> Profile {
    let scopes = ["loop", "a \"quoted\\\" näme; with all\n", "# hash"];
    let files = ["src/main.rs", "/home/a b/tab\there.rs", "src/attention.rs"];
    let call_sites = (0..9).map(|number| CallSite {
        file: files[number % 3].to_owned(),
        line: number as u32 + 1,
        column: 5,
    });
    let frame = |number: u32| Frame {
        function: format!("step<[u8; {number}]>"),
        file: if number.is_multiple_of(4) {
            ""
        } else {
            "src/step.rs"
        }
        .to_owned(),
        line: number % 4,
    };
    Profile {
        device: device.to_owned(),
        began_unix_ns: 1_790_000_000_123_456_789,
        scopes: scopes.map(str::to_owned).into(),
        call_sites: call_sites.collect(),
        stacks: (0..40)
            .map(|number| vec![frame(number), frame(number / 4 + 50)])
            .collect(),
        ..Profile::default()
    }
}

impl Toy {
    fn step(&mut self) {
        self.time_ns += self.numbers.below(5_000);
        match self.numbers.below(24) {
            0..=9 => self.allocate(),
            10..=15 => self.free(),
            16 => self.complete_pending(),
            17 => self.release(),
            18 => self.import(),
            19 | 20 => self.enter(),
            21 | 22 => self.exit(),
            _ => self.other(),
        }
    }

    fn allocate(&mut self) {
        let bytes = 1 + self.numbers.below(3 * PAGE / 2);
        let block_bytes = bytes.next_multiple_of(512);
        let number = self.numbers.below(2) as usize;
        let end = self.end(number);
        let address = self.first_fit(number, block_bytes);
        let missing = (address + block_bytes).saturating_sub(end);
        let stream = self.ranges[number].stream;
        if missing > 0 {
            // Grows in two steps with different streams. The real pool also maps pages one by one,
            // for any requesting stream.
            let pages = missing.next_multiple_of(PAGE);
            let other = self.numbers.below(3) as u32;
            self.push_memory(EventKind::Reserve, end, PAGE, other);
            if pages > PAGE {
                self.push_memory(EventKind::Reserve, end + PAGE, pages - PAGE, stream);
            }
            self.ranges[number].reserved_bytes += pages;
        }
        self.insert(address, bytes, block_bytes, stream);
    }

    fn import(&mut self) {
        let address = IMPORTED + 1024 * self.numbers.below(16);
        if self.blocks.iter().all(|block| block.address != address) {
            self.insert(address, 1000, 1024, 3);
        }
    }

    fn insert(&mut self, address: u64, bytes: u64, block_bytes: u64, stream: u32) {
        let thread = self.numbers.below(THREADS) as usize;
        let scope = self.entered[thread].last().copied();
        let kind = match (scope, self.numbers.below(2)) {
            (None, _) => EventKind::Uncached,
            (Some(_), 0) => EventKind::Hit,
            (Some(_), _) => EventKind::Miss,
        };
        let block = Block {
            address,
            bytes,
            block_bytes,
            is_known: true,
            stream,
            scope,
            call_site: self.numbers.below(9) as u32,
            is_pending: false,
        };
        self.blocks.push(block);
        self.push_block(kind, &block, thread as u32);
        if self.numbers.below(10) == 0 {
            self.push_block(EventKind::CopyOnWrite, &block, thread as u32);
        }
    }

    fn free(&mut self) {
        let live = self.blocks.iter().filter(|block| !block.is_pending).count();
        if live == 0 {
            return;
        }
        let chosen = self.numbers.below(live as u64) as usize;
        let mut live = (0..self.blocks.len()).filter(|&at| !self.blocks[at].is_pending);
        let at = live.nth(chosen).expect("one is live");
        let block = self.blocks[at];
        let thread = self.numbers.below(THREADS) as u32;
        if self.numbers.below(4) == 0 && block.address < IMPORTED {
            self.blocks[at].is_pending = true;
            self.push_block(EventKind::FreePending, &block, thread);
        } else {
            self.blocks.swap_remove(at);
            self.push_block(EventKind::Free, &block, thread);
        }
    }

    /// Completes all pending blocks. Only every other completion has an event.
    fn complete_pending(&mut self) {
        let pending = self.blocks.iter().filter(|block| block.is_pending);
        for block in pending.copied().collect::<Vec<_>>().iter().step_by(2) {
            self.push_block(EventKind::FreeCompleted, block, 0);
        }
        self.blocks.retain(|block| !block.is_pending);
    }

    /// Releases the unused pages at the end of a range.
    fn release(&mut self) {
        let number = self.numbers.below(2) as usize;
        let (base, end) = (self.ranges[number].base, self.end(number));
        let in_range = |block: &&Block| (base..end).contains(&block.address);
        let ends = self.blocks.iter().filter(in_range);
        let used = ends.map(|block| block.address + block.block_bytes).max();
        let keep = used.map_or(0, |used| (used - base).next_multiple_of(PAGE));
        let stream = self.numbers.below(3) as u32;
        if base + keep < end {
            self.push_memory(EventKind::Release, base + keep, end - base - keep, stream);
            self.ranges[number].reserved_bytes = keep;
        }
    }

    fn enter(&mut self) {
        let thread = self.numbers.below(THREADS) as usize;
        if self.entered[thread].len() < 3 {
            let scope = self.numbers.below(3) as u32;
            self.entered[thread].push(scope);
            self.push_scope(EventKind::Enter, thread, scope);
        }
    }

    fn exit(&mut self) {
        let thread = self.numbers.below(THREADS) as usize;
        if let Some(scope) = self.entered[thread].pop() {
            self.push_scope(EventKind::Exit, thread, scope);
        }
    }

    fn other(&mut self) {
        let kinds = [
            EventKind::OutOfMemory,
            EventKind::Retry,
            EventKind::Trim,
            EventKind::Invalidate,
            EventKind::Wait,
        ];
        let kind = kinds[self.numbers.below(5) as usize];
        let bytes = self.numbers.below(PAGE);
        self.events.push(Event {
            bytes,
            ..self.event(kind)
        });
    }

    fn end(&self, number: usize) -> u64 {
        self.ranges[number].base + self.ranges[number].reserved_bytes
    }

    /// Returns the lowest address with `block_bytes` free bytes after it. The address may be at the
    /// end of the range.
    fn first_fit(&self, number: usize, block_bytes: u64) -> u64 {
        let base = self.ranges[number].base;
        let in_range = |block: &&Block| block.stream == self.ranges[number].stream;
        let mut own: Vec<&Block> = self.blocks.iter().filter(in_range).collect();
        own.sort_by_key(|block| block.address);
        own.iter().fold(base, |at, block| {
            let is_free = at + block_bytes <= block.address;
            if is_free {
                at
            } else {
                at.max(block.address + block.block_bytes)
            }
        })
    }

    fn push_block(&mut self, kind: EventKind, block: &Block, thread: u32) {
        self.events.push(Event {
            thread,
            stream: block.stream,
            scope: block.scope,
            call_site: Some(block.call_site),
            stack: self.with_stacks.then_some(block.call_site * 4),
            address: block.address,
            bytes: block.bytes,
            block_bytes: block.block_bytes,
            ..self.event(kind)
        });
    }

    fn push_memory(&mut self, kind: EventKind, address: u64, bytes: u64, stream: u32) {
        self.events.push(Event {
            address,
            bytes,
            stream,
            ..self.event(kind)
        });
    }

    fn push_scope(&mut self, kind: EventKind, thread: usize, scope: u32) {
        let own = |block: &&Block| block.scope == Some(scope);
        let bytes = self
            .blocks
            .iter()
            .filter(own)
            .map(|block| block.bytes)
            .sum();
        self.events.push(Event {
            thread: thread as u32,
            scope: Some(scope),
            bytes,
            ..self.event(kind)
        });
    }

    fn event(&self, kind: EventKind) -> Event {
        Event::new(kind, self.time_ns)
    }
}

/// Returns an event of a block, with the first line and the first scope.
pub(crate) fn block(kind: EventKind, time_ns: u64, address: u64, bytes: u64) -> Event {
    Event {
        address,
        bytes,
        block_bytes: bytes,
        scope: Some(0),
        call_site: Some(0),
        ..Event::new(kind, time_ns)
    }
}
