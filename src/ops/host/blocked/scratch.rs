//! The scratch memory that a program computes its blocks in: its allocation, and its division into
//! registers.

use std::mem::MaybeUninit;

use smallvec::SmallVec;

/// The division of scratch memory among steps. Offsets are in bytes from its beginning, at
/// multiples of [`ScratchMemory::ALIGNMENT`].
#[derive(Debug)]
pub(super) struct Registers {
    end: usize,
    register_bytes: usize,
    // The number of remaining reads of each step.
    pub(super) uses: SmallVec<[u32; 8]>,
    // Registers that are not read any more.
    idle: SmallVec<[usize; 4]>,
}

impl Registers {
    /// Returns registers for blocks of at most `register_bytes`. The scratch memory begins with an
    /// address for each of `steps` steps.
    pub(super) fn new(steps: usize, register_bytes: usize) -> Self {
        let mut registers = Self {
            end: 0,
            register_bytes,
            uses: SmallVec::new(),
            idle: SmallVec::new(),
        };
        registers.reserve(steps * size_of::<*const u8>());
        registers
    }

    /// Reserves `bytes` bytes for the whole run, and returns their offset.
    pub(super) fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end += bytes.next_multiple_of(ScratchMemory::ALIGNMENT);
        at
    }

    /// Reserves a register, and returns its offset. The register is reserved until its step has
    /// been read as often as the step is used.
    pub(super) fn take(&mut self) -> usize {
        self.idle
            .pop()
            .unwrap_or_else(|| self.reserve(self.register_bytes))
    }

    /// Records one read of the step `number`, whose register is at `at`.
    pub(super) fn was_read(&mut self, number: usize, at: usize) {
        self.uses[number] -= 1;
        if self.uses[number] == 0 {
            self.idle.push(at);
        }
    }

    pub(super) fn scratch_bytes(&self) -> usize {
        self.end
    }
}

/// The scratch memory of one thread, never initialised as a whole.
#[derive(Debug)]
pub(super) struct ScratchMemory;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct CacheLine(
    #[expect(dead_code, reason = "the field is scratch memory")]
    [MaybeUninit<u8>; ScratchMemory::ALIGNMENT],
);

/// The number of cache lines on the stack, which is enough for most programs.
const LINES: usize = 384;

impl ScratchMemory {
    pub(super) const ALIGNMENT: usize = 64;

    /// Calls `work` with the address of `bytes` aligned bytes. `work` may write to these bytes
    /// until it returns.
    pub(super) fn with(bytes: usize, work: &mut dyn FnMut(*mut u8)) {
        let lines = bytes.div_ceil(Self::ALIGNMENT);
        if lines <= LINES {
            on_stack(work);
        } else {
            let mut scratch: Vec<CacheLine> = Vec::with_capacity(lines);
            work(scratch.as_mut_ptr().cast());
        }
    }
}

/// Calls `work` with memory on the stack. This function is not inlined, so that the stack frames of
/// its callers stay small.
#[inline(never)]
fn on_stack(work: &mut dyn FnMut(*mut u8)) {
    let mut scratch = [const { MaybeUninit::<CacheLine>::uninit() }; LINES];
    work(scratch.as_mut_ptr().cast());
}
