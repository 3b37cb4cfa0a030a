//! Random files: files of a grammar, files of opcodes, deeply nested files, and damaged files.

use crate::bounds::pickles::{Memo, Pickler, snapshot};

/// A SplitMix64 generator.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Returns a random length of at most `most`. Short lengths are more likely.
    fn length(&mut self, most: usize) -> usize {
        let bits = self.below(most.ilog2() as usize + 1);
        self.below(2 << bits).min(most)
    }
}

/// Returns a random file of any kind.
pub(super) fn file(random: &mut Random) -> Vec<u8> {
    let mut file = match random.below(8) {
        0..4 => Grammar::new(random).snapshot(),
        4 => opcodes(random),
        5 => repetition(random),
        6 => rows(random),
        _ => nested(random),
    };
    if random.one_in(2) {
        damage(random, &mut file);
    }
    file
}

/// A writer of random snapshots. Any value may be shared, and some values have the wrong kind.
struct Grammar<'r> {
    random: &'r mut Random,
    /// The memo indices of written blocks, lists of blocks, segments, entries, traces, frames and
    /// lists of frames.
    shared: [Vec<Memo>; 7],
    /// The reciprocal of the probability of a new value. Other values refer to written values.
    sharing: usize,
    /// The reciprocal of the probability of a value of the wrong kind.
    sense: usize,
    /// The maximum number of elements of a list.
    most: usize,
}

impl<'r> Grammar<'r> {
    fn new(random: &'r mut Random) -> Self {
        let sharing = random.pick(&[1, 2, 10, 1000]);
        let sense = random.pick(&[200, 10_000, 1_000_000_000]);
        let most = random.pick(&[4, 40, 400]);
        Self {
            random,
            shared: Default::default(),
            sharing,
            sense,
            most,
        }
    }

    fn snapshot(mut self) -> Vec<u8> {
        let grammar = std::cell::RefCell::new(&mut self);
        snapshot(
            |pickler| grammar.borrow_mut().list(pickler, 40, Self::segment),
            |pickler| grammar.borrow_mut().list(pickler, 8, Self::trace),
        )
    }

    fn list(&mut self, pickler: &mut Pickler, most: usize, item: fn(&mut Self, &mut Pickler)) {
        pickler.begin_list();
        for _ in 0..self.random.length(most) {
            item(self, pickler);
        }
        pickler.end_list();
    }

    /// Writes a value of a kind, or a reference to a written value of this kind.
    fn value(&mut self, kind: usize, pickler: &mut Pickler, new: fn(&mut Self, &mut Pickler)) {
        if self.random.one_in(self.sense) {
            return self.nonsense(pickler);
        }
        let known = &self.shared[kind];
        if !known.is_empty() && !self.random.one_in(self.sharing) {
            let memo = known[self.random.below(known.len())];
            return pickler.again(memo);
        }
        new(self, pickler);
        let memo = pickler.remember();
        self.shared[kind].push(memo);
    }

    fn nonsense(&mut self, pickler: &mut Pickler) {
        match self.random.below(6) {
            0 => pickler.bytes.push(b'N'),
            1 => pickler.int(self.random.next()),
            2 => pickler.text("nonsense"),
            3 => pickler.bytes.extend(b"]"),
            4 => pickler.bytes.extend(b"G\x40\x00\x00\x00\x00\x00\x00\x00"),
            _ => {
                let kind = self.random.below(self.shared.len());
                match self.shared[kind].first() {
                    Some(&memo) => pickler.again(memo),
                    None => pickler.bytes.push(b'}'),
                }
            }
        }
    }

    fn number(&mut self, pickler: &mut Pickler) {
        if self.random.one_in(self.sense) {
            return self.nonsense(pickler);
        }
        let number = match self.random.below(20) {
            0 => self.random.next() >> self.random.below(64),
            1 => self
                .random
                .pick(&[0, 1, i64::MAX as u64, 1 << 62, u64::MAX]),
            _ => 512 * self.random.below(60) as u64,
        };
        // If nonsense is rare, the number is below 2^63, which most readers accept.
        pickler.int(if self.sense > 10_000 {
            number >> 1
        } else {
            number
        });
    }

    fn fields(&mut self, pickler: &mut Pickler, keys: &[&str]) {
        for key in keys {
            if !self.random.one_in(self.sense) {
                pickler.text(key);
                self.number(pickler);
            }
        }
    }

    /// Writes an address. Most addresses are multiples of 16 MiB, so that blocks rarely overlap.
    fn address(&mut self, pickler: &mut Pickler, key: &str) {
        pickler.text(key);
        if self.random.one_in(20) {
            return self.number(pickler);
        }
        pickler.int((1 + self.random.below(1 << 16) as u64) << 24);
    }

    fn name(&mut self, pickler: &mut Pickler) {
        let names = [
            "step",
            "train.py",
            "??",
            "",
            "unknown",
            "a;b <&>\u{fffe}",
            "#",
            "näme\n",
        ];
        if self.random.one_in(50) {
            let length = self.random.length(3000);
            return pickler.text(&"long".repeat(length));
        }
        pickler.text(self.random.pick(&names));
    }

    fn segment(&mut self, pickler: &mut Pickler) {
        self.value(2, pickler, |grammar, pickler| {
            pickler.begin_dict();
            pickler.text("device");
            let device = grammar.random.below(3) as u64;
            pickler.int(if grammar.random.one_in(100) {
                60_000
            } else {
                device
            });
            grammar.address(pickler, "address");
            pickler.text("total_size");
            match grammar.random.one_in(20) {
                true => grammar.number(pickler),
                false => pickler.int(1 << 24),
            }
            pickler.text("blocks");
            grammar.value(1, pickler, |grammar, pickler| {
                grammar.list(pickler, grammar.most, Self::block);
            });
            pickler.end_dict();
        });
    }

    fn block(&mut self, pickler: &mut Pickler) {
        self.value(0, pickler, |grammar, pickler| {
            pickler.begin_dict();
            grammar.fields(pickler, &["size", "requested_size"]);
            pickler.text("state");
            let states = ["active_allocated", "active_pending_free", "inactive"];
            pickler.text(grammar.random.pick(&states));
            pickler.end_dict();
        });
    }

    fn trace(&mut self, pickler: &mut Pickler) {
        self.value(4, pickler, |grammar, pickler| {
            grammar.list(pickler, grammar.most, Self::entry);
        });
    }

    fn entry(&mut self, pickler: &mut Pickler) {
        self.value(3, pickler, |grammar, pickler| {
            const ACTIONS: [&str; 12] = [
                "alloc",
                "alloc",
                "alloc",
                "free_requested",
                "free_completed",
                "free",
                "segment_alloc",
                "segment_map",
                "segment_free",
                "segment_unmap",
                "oom",
                "snapshot",
            ];
            pickler.begin_dict();
            pickler.text("action");
            pickler.text(grammar.random.pick(&ACTIONS));
            grammar.address(pickler, "addr");
            grammar.fields(pickler, &["size", "stream", "time_us"]);
            if grammar.random.one_in(2) {
                pickler.text("category");
                grammar.name(pickler);
            }
            if grammar.random.one_in(20) {
                for number in 0..grammar.random.length(100) {
                    pickler.text(&format!("key {number}"));
                    grammar.number(pickler);
                }
            }
            pickler.text("frames");
            grammar.value(6, pickler, |grammar, pickler| {
                grammar.list(pickler, grammar.most, Self::frame);
            });
            pickler.end_dict();
        });
    }

    fn frame(&mut self, pickler: &mut Pickler) {
        self.value(5, pickler, |grammar, pickler| {
            pickler.begin_dict();
            for key in ["name", "filename"] {
                pickler.text(key);
                grammar.name(pickler);
            }
            grammar.fields(pickler, &["line"]);
            pickler.end_dict();
        });
    }
}

/// Opcodes that need few operands, each with its operands.
const OPCODES: [&[u8]; 26] = [
    b"(",
    b"0",
    b"1",
    b"2",
    b"N",
    b"\x88",
    b"K\x07",
    b"M\x07\x07",
    b"]",
    b")",
    b"}",
    b"l",
    b"t",
    b"\x85",
    b"\x86",
    b"d",
    b"a",
    b"e",
    b"s",
    b"u",
    b"\x94",
    b"q\x01",
    b"h\0",
    b"h\x01",
    b"\x8c\x01a",
    b"\x8a\x01\xff",
];

/// Returns a file of random opcodes.
fn opcodes(random: &mut Random) -> Vec<u8> {
    let mut file = b"\x80\x04".to_vec();
    for _ in 0..random.length(3000) {
        file.extend(random.pick(&OPCODES));
    }
    file.push(b'.');
    file
}

/// Returns a file with a short sequence of opcodes, repeated many times.
fn repetition(random: &mut Random) -> Vec<u8> {
    let mut file = b"\x80\x04](".to_vec();
    for _ in 0..1 + random.below(3) {
        let mut sequence: Vec<u8> = Vec::new();
        for _ in 0..1 + random.below(5) {
            sequence.extend(random.pick(&OPCODES));
        }
        file.extend(sequence.repeat(random.length(20_000)));
    }
    file.extend(b"e.");
    file
}

/// Returns a snapshot whose segments or traces are nested lists of references.
fn nested(random: &mut Random) -> Vec<u8> {
    let mut pickler = Pickler::new();
    pickler.event(random.pick(&["alloc", "oom", "segment_free"]), 1 << 40, 512);
    let mut memo = pickler.remember();
    for _ in 0..1 + random.below(4) {
        pickler.repeat(memo, random.length(5000));
        memo = pickler.remember();
    }
    pickler.begin_dict();
    for key in ["segments", "device_traces"] {
        pickler.text(key);
        if random.one_in(2) {
            pickler.again(memo);
        } else {
            pickler.bytes.push(b']');
        }
    }
    pickler.end_dict();
    pickler.finish()
}

/// Returns a table of lifetimes or a log.
fn rows(random: &mut Random) -> Vec<u8> {
    let is_log = random.one_in(2);
    let header = if is_log {
        "Thread,Time,Action,Pointer,Size,Stream\n"
    } else {
        "id,lower,upper,size,offset\n"
    };
    let mut text = header.to_owned();
    for number in 0..random.length(500) {
        let (address, size) = (random.below(40), random.below(2000));
        text += &if is_log {
            let action = random.pick(&["allocate", "free", "allocate failure"]);
            format!("1,10:00:00.{number},{action},{address:#x},{size},0\n")
        } else {
            format!(
                "{number},{address},{},{size},{}\n",
                address + size % 50,
                size * 3
            )
        };
        if random.one_in(1000) {
            text += &",\"\"\n".repeat(random.length(2000));
        }
    }
    text.into_bytes()
}

/// Damages a file at random positions.
fn damage(random: &mut Random, file: &mut Vec<u8>) {
    for _ in 0..1 + random.length(8) {
        let at = random.below(file.len() + 1);
        let end = (at + random.length(64)).min(file.len());
        match random.below(7) {
            0 if at < file.len() => file[at] ^= 1 << random.below(8),
            1 if at < file.len() => file[at] = random.next() as u8,
            2 => file.truncate(at),
            3 => drop(file.drain(at..end)),
            4 => drop(file.splice(at..at, random.pick(&OPCODES).iter().copied())),
            _ => {
                // This inserts one or many copies of a range at another position.
                let part = file[at..end].repeat(1 + random.length(50));
                let to = random.below(file.len() + 1);
                file.splice(to..to, part);
            }
        }
    }
}
