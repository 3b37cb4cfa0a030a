//! The recording of a synthetic training run, for the report page and its tests.

use cachescope_reports::{CallSite, Event, EventKind, Frame, Profile};

const MIB: u64 = 1 << 20;
const PAGE_BYTES: u64 = 2 * MIB;
const LAYERS: usize = 12;
const STEP: u32 = 0;
const EVALUATE: u32 = 1;

/// Returns the recording of a synthetic training run. One thread runs `entries` steps. During every
/// tenth step, another thread runs an evaluation. One array of each step stays live, and one step
/// runs out of memory. If `stacks` is true, the allocations have backtraces.
#[must_use]
pub fn training(entries: usize, stacks: bool) -> Profile {
    let mut run = Run::new(stacks);
    let weights: Vec<Block> = (0..2 * LAYERS).map(|layer| run.weight(layer)).collect();
    let mut history = Vec::new();
    for entry in 0..entries {
        run.step(entry, &mut history);
    }
    for weight in weights.into_iter().skip(LAYERS) {
        run.free(weight, EventKind::Free);
    }
    run.profile.duration_ns = run.time_ns + 2_000_000;
    run.profile
}

/// A range of addresses with first-fit allocation, which grows by pages.
struct Range {
    next_page: u64,
    /// The first address and the length of each gap, in address order.
    gaps: Vec<(u64, u64)>,
}

#[derive(Clone, Copy)]
struct Block {
    event: Event,
    range: usize,
}

struct Run {
    profile: Profile,
    ranges: [Range; 2],
    time_ns: u64,
    thread: u32,
    scope: Option<u32>,
    stacks: bool,
    is_first: [bool; 2],
}

impl Run {
    fn new(stacks: bool) -> Self {
        let sites = [
            ("src/model.rs", 31, 22),
            ("src/model.rs", 58, 17),
            ("src/model.rs", 63, 26),
            ("src/model.rs", 97, 20),
            ("src/optimizer.rs", 24, 13),
            ("src/train.rs", 112, 30),
            ("src/train.rs", 140, 9),
            ("src/train.rs", 171, 18),
            ("src/optimizer.rs", 40, 21),
            ("src/data.rs", 77, 14),
        ];
        let site = |(file, line, column): (&str, u32, u32)| CallSite {
            file: file.into(),
            line,
            column,
        };
        let range = |address| Range {
            next_page: address,
            gaps: Vec::new(),
        };
        let mut profile = Profile {
            device: "cuda:0".into(),
            began_unix_ns: 1_760_000_000_000_000_000,
            call_sites: sites.map(site).into(),
            scopes: vec!["step".into(), "evaluate".into()],
            ..Default::default()
        };
        if stacks {
            profile.stacks = (0..sites.len())
                .map(|site| stack_of(&profile, site))
                .collect();
        }
        Self {
            profile,
            ranges: [range(0x7f20_0000_0000), range(0x7f28_0000_0000)],
            time_ns: 0,
            thread: 1,
            scope: None,
            stacks,
            is_first: [true; 2],
        }
    }

    fn step(&mut self, entry: usize, history: &mut Vec<Block>) {
        let evaluates = entry % 10 == 5;
        let batch = self.uncached_batch();
        self.mark(EventKind::Enter, 0);
        if evaluates {
            self.on_the_other_thread(|run| run.mark(EventKind::Enter, 0));
        }
        let mut activations = Vec::new();
        let mut evaluated: Option<Block> = None;
        for layer in 0..LAYERS {
            let columns = self.allocate(2, activation_bytes(layer) / 2 + 4096);
            activations.push(self.operation(1, activation_bytes(layer)));
            self.free(columns, EventKind::Free);
            if evaluates {
                let last = evaluated.take();
                evaluated = self.on_the_other_thread(|run| run.evaluate(layer, last));
            }
        }
        if let Some(last) = evaluated {
            self.on_the_other_thread(|run| {
                run.free(last, EventKind::Free);
                run.mark(EventKind::Exit, 0);
                run.is_first[EVALUATE as usize] = false;
            });
        }
        if entry == 37 {
            self.run_out_of_memory();
        }
        self.backward(activations);
        history.push(self.allocate(5, 3 * MIB / 2));
        self.free(batch, EventKind::FreePending);
        self.mark(EventKind::Exit, history.len() as u64 * 3 * MIB / 2);
        self.is_first[STEP as usize] = false;
        if entry % 8 == 7 {
            self.mark(EventKind::Wait, 0);
        }
        self.time_ns += 700_000;
    }

    fn backward(&mut self, activations: Vec<Block>) {
        let mut gradient = self.operation(6, 4 * MIB);
        for (layer, activation) in activations.into_iter().enumerate().rev() {
            let next = self.operation(3, activation_bytes(layer));
            self.free(activation, EventKind::Free);
            self.free(gradient, EventKind::Free);
            let update = self.operation(4, weight_bytes(layer));
            if layer % 4 == 0 {
                let time_ns = self.time_ns;
                let copied = Event {
                    kind: EventKind::CopyOnWrite,
                    time_ns,
                    ..update.event
                };
                self.profile.events.push(copied);
            }
            self.free(update, EventKind::Free);
            gradient = next;
        }
        self.free(gradient, EventKind::Free);
    }

    fn evaluate(&mut self, layer: usize, last: Option<Block>) -> Option<Block> {
        let output = self.operation(7, activation_bytes(layer) / 2);
        if let Some(last) = last {
            self.free(last, EventKind::Free);
        }
        Some(output)
    }

    fn run_out_of_memory(&mut self) {
        self.mark(EventKind::Retry, 1536 * MIB);
        self.mark(EventKind::Trim, 2 * PAGE_BYTES);
        self.mark(EventKind::Invalidate, 16 * MIB);
        self.mark(EventKind::OutOfMemory, 1536 * MIB);
    }

    fn weight(&mut self, layer: usize) -> Block {
        self.scope = None;
        let site = if layer < LAYERS { 0 } else { 8 };
        self.allocate(site, weight_bytes(layer % LAYERS))
    }

    fn uncached_batch(&mut self) -> Block {
        self.scope = None;
        let batch = self.allocate(9, 6 * MIB);
        self.scope = Some(STEP);
        batch
    }

    /// Runs `work` on thread 2 in the scope "evaluate".
    fn on_the_other_thread<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let (thread, scope) = (self.thread, self.scope);
        (self.thread, self.scope) = (2, Some(EVALUATE));
        let result = work(self);
        (self.thread, self.scope) = (thread, scope);
        result
    }

    fn operation(&mut self, site: u32, size_bytes: u64) -> Block {
        let result = self.allocate(site, size_bytes);
        self.time_ns += 4_000;
        self.mark_at(EventKind::OperationBegin, 0, Some(site));
        self.time_ns += 20_000 + size_bytes / 200;
        self.mark_at(EventKind::OperationEnd, 0, Some(site));
        result
    }

    fn allocate(&mut self, site: u32, size_bytes: u64) -> Block {
        self.time_ns += 3_000;
        let range = usize::from(self.scope == Some(EVALUATE));
        let block_bytes = size_bytes.next_multiple_of(512);
        let address = self.place(range, block_bytes);
        let kind = match self.scope {
            None => EventKind::Uncached,
            Some(scope) if self.is_first[scope as usize] => EventKind::Miss,
            Some(_) => EventKind::Hit,
        };
        let event = Event {
            call_site: Some(site),
            stack: self.stacks.then_some(site),
            stream: u32::from(site == 9),
            address,
            block_bytes,
            ..self.event(kind, size_bytes)
        };
        self.profile.events.push(event);
        Block { event, range }
    }

    fn free(&mut self, block: Block, kind: EventKind) {
        self.time_ns += 1_500;
        let (time_ns, thread) = (self.time_ns, self.thread);
        self.profile.events.push(Event {
            kind,
            time_ns,
            thread,
            ..block.event
        });
        let gaps = &mut self.ranges[block.range].gaps;
        let (address, length) = (block.event.address, block.event.block_bytes);
        let at = gaps.partition_point(|gap| gap.0 < address);
        gaps.insert(at, (address, length));
        gaps.dedup_by(|next, gap| {
            let touches = gap.0 + gap.1 == next.0;
            gap.1 += if touches { next.1 } else { 0 };
            touches
        });
    }

    /// Allocates in the first gap that is long enough. If no gap is long enough, first reserves
    /// pages after the last page.
    fn place(&mut self, range: usize, length: u64) -> u64 {
        let own = &mut self.ranges[range];
        let Some(at) = own.gaps.iter().position(|gap| gap.1 >= length) else {
            let (address, grown) = (own.next_page, length.next_multiple_of(PAGE_BYTES));
            own.next_page += grown;
            own.gaps.push((address, grown));
            let reserve = Event {
                address,
                ..self.event(EventKind::Reserve, grown)
            };
            self.profile.events.push(reserve);
            self.time_ns += 150_000;
            return self.place(range, length);
        };
        let gap = &mut own.gaps[at];
        let address = gap.0;
        *gap = (address + length, gap.1 - length);
        address
    }

    fn mark(&mut self, kind: EventKind, size_bytes: u64) {
        self.mark_at(kind, size_bytes, None);
    }

    fn mark_at(&mut self, kind: EventKind, size_bytes: u64, call_site: Option<u32>) {
        self.time_ns += 1_000;
        let event = Event {
            call_site,
            ..self.event(kind, size_bytes)
        };
        self.profile.events.push(event);
    }

    fn event(&self, kind: EventKind, bytes: u64) -> Event {
        Event {
            thread: self.thread,
            scope: self.scope,
            bytes,
            ..Event::new(kind, self.time_ns)
        }
    }
}

fn activation_bytes(layer: usize) -> u64 {
    [16, 12, 12, 9, 8, 8, 6, 5, 4, 4, 3, 2][layer % LAYERS] * MIB
}

fn weight_bytes(layer: usize) -> u64 {
    [1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 8][layer % LAYERS] * MIB / 2
}

/// Returns the frames of a call site, from the innermost frame outwards, like a backtrace.
fn stack_of(profile: &Profile, site: usize) -> Vec<Frame> {
    let own = &profile.call_sites[site];
    let frame = |function: &str, file: &str, line| Frame {
        function: function.into(),
        file: file.into(),
        line,
    };
    let function = own.file.replace("src/", "digits::").replace(".rs", "::run");
    let mut stack = vec![frame(&function, &own.file, own.line)];
    match site {
        1 | 2 => stack.push(frame("digits::model::forward", "src/model.rs", 44)),
        3 | 4 | 6 => stack.push(frame("digits::model::backward", "src/model.rs", 88)),
        _ => {}
    }
    match site {
        0 | 8 => stack.push(frame("digits::model::new", "src/model.rs", 12)),
        7 => stack.push(frame("digits::train::evaluate", "src/train.rs", 160)),
        _ => stack.push(frame("digits::train::step", "src/train.rs", 104)),
    }
    stack.push(frame("digits::main", "src/main.rs", 19));
    stack
}
