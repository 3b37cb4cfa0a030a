//! The memory that a program computes its blocks in: which step has which register, and where it
//! comes from.

use std::mem::MaybeUninit;

use smallvec::SmallVec;

/// Which part of the memory is whose. Offsets are in bytes from its beginning, at multiples of
/// [`Room::ALIGNMENT`].
#[derive(Debug)]
pub(super) struct Registers {
    end: usize,
    register_bytes: usize,
    // How often each step is yet to be read.
    pub(super) uses: SmallVec<[u32; 8]>,
    // Registers that nobody reads any more.
    idle: SmallVec<[usize; 4]>,
}

impl Registers {
    /// For so many steps, whose addresses come first, and blocks of at most `register_bytes`.
    pub(super) fn new(steps: usize, register_bytes: usize) -> Self {
        let mut registers = Self {
            end: 0,
            register_bytes,
            uses: SmallVec::new(),
            idle: SmallVec::new(),
        };
        registers.keep(steps * size_of::<*const u8>());
        registers
    }

    /// A part that stays its owner's.
    pub(super) fn keep(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end += bytes.next_multiple_of(Room::ALIGNMENT);
        at
    }

    /// A register, until its step has been read as often as it is used.
    pub(super) fn take(&mut self) -> usize {
        self.idle
            .pop()
            .unwrap_or_else(|| self.keep(self.register_bytes))
    }

    /// Takes note that the step `number`, whose register is at `at`, was read once.
    pub(super) fn was_read(&mut self, number: usize, at: usize) {
        self.uses[number] -= 1;
        if self.uses[number] == 0 {
            self.idle.push(at);
        }
    }

    pub(super) fn room_bytes(&self) -> usize {
        self.end
    }
}

/// Memory that one thread computes in, never initialised as a whole.
#[derive(Debug)]
pub(super) struct Room;

/// A line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "it is room")] [MaybeUninit<u8>; Room::ALIGNMENT]);

/// Room on the stack: enough for most programs.
const LINES: usize = 384;

impl Room {
    pub(super) const ALIGNMENT: usize = 64;

    /// Calls `work` with the address of `bytes` bytes, aligned, that it may write to until it
    /// returns.
    pub(super) fn with(bytes: usize, work: &mut dyn FnMut(*mut u8)) {
        let lines = bytes.div_ceil(Self::ALIGNMENT);
        if lines <= LINES {
            on_stack(work);
        } else {
            let mut room: Vec<Line> = Vec::with_capacity(lines);
            work(room.as_mut_ptr().cast());
        }
    }
}

/// Out of line, so that no other frame is as large.
#[inline(never)]
fn on_stack(work: &mut dyn FnMut(*mut u8)) {
    let mut room = [const { MaybeUninit::<Line>::uninit() }; LINES];
    work(room.as_mut_ptr().cast());
}
