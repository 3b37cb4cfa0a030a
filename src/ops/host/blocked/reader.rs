//! Evaluation of a program, block by block or tile by tile.

use std::ops::Range;

use smallvec::SmallVec;

use super::BLOCK;
use super::program::{BlockProgram, OperandBlocks, ProgramStep};
use super::scratch::ScratchMemory;
use super::tile::{TILE, TilePart, TileRows};
use super::view::{View, ViewScratch};
use crate::array::Bits;
use crate::ops::host::element_source::{ElementSource, Outputs};

impl BlockProgram {
    /// Calls `read` with a reader of the elements. The reader has its own scratch memory.
    ///
    /// # Safety
    ///
    /// While the reader exists, the memory of the operands must be alive. Meanwhile nothing may
    /// write to the elements that the reader reads.
    pub(super) unsafe fn with_reader(&self, read: &mut dyn FnMut(&mut BlockReader<'_>)) {
        ScratchMemory::with(self.scratch_bytes, &mut |scratch| {
            let mut reader = BlockReader {
                program: self,
                scratch,
            };
            if self.count > 0 {
                // SAFETY: the scratch memory has the size that the program needs. This function's
                // contract covers the operands.
                unsafe { reader.prepare() };
            }
            read(&mut reader);
        });
    }
}

impl ElementSource for BlockProgram {
    unsafe fn write(&self, range: Range<usize>, outputs: &Outputs) {
        // SAFETY: by this function's contract.
        unsafe { self.with_reader(&mut |reader| reader.write(range.clone(), outputs)) };
    }

    unsafe fn each_block(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    ) {
        let mut each = |reader: &mut BlockReader<'_>| {
            let mut blocks: SmallVec<[*const u8; 1]> = SmallVec::new();
            for start in range.clone().step_by(BLOCK) {
                let count = BLOCK.min(range.end - start);
                // SAFETY: by this function's contract.
                unsafe { reader.block(start, count) };
                blocks.clear();
                for result in &self.results {
                    let mut from = reader.address(result.step);
                    if let Some(stage) = result.stage {
                        let to = reader.scratch.wrapping_add(stage);
                        // SAFETY: the block has `count` elements, and the register at `stage` has
                        // the size of a block.
                        unsafe { to.copy_from_nonoverlapping(from, count * result.element_bytes) };
                        from = to;
                    }
                    blocks.push(from);
                }
                see(start..start + count, &blocks);
            }
        };
        // SAFETY: by this function's contract. Elements that `see` writes to are not read again.
        unsafe { self.with_reader(&mut each) };
    }

    fn boxed(&self) -> Box<dyn ElementSource> {
        Box::new(self.clone())
    }
}

impl OperandBlocks {
    /// Calls `see` with each block of `range`. The arguments of `see` are the indices of the
    /// block's elements, and the address of each operand's first element.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::each_block`] applies.
    pub(in crate::ops::host) unsafe fn each(
        &self,
        range: Range<usize>,
        see: &mut dyn FnMut(Range<usize>, &[*const u8]),
    ) {
        let mut each = |reader: &mut BlockReader<'_>| {
            for start in range.clone().step_by(BLOCK) {
                let count = BLOCK.min(range.end - start);
                // SAFETY: by this function's contract.
                unsafe { reader.block(start, count) };
                // SAFETY: the scratch memory begins with an address for each step. `block` has just
                // set these addresses.
                let firsts = unsafe {
                    std::slice::from_raw_parts(reader.scratch.cast(), self.0.steps.len())
                };
                see(start..start + count, firsts);
            }
        };
        // SAFETY: by this function's contract.
        unsafe { self.0.with_reader(&mut each) };
    }
}

/// A reader of a program's elements. Only [`BlockProgram::with_reader`] makes a reader. By its
/// contract, the operands are alive and not written to.
pub(super) struct BlockReader<'a> {
    program: &'a BlockProgram,
    // The scratch memory, as large as the program needs. It begins with the addresses of the steps'
    // blocks.
    scratch: *mut u8,
}

impl BlockReader<'_> {
    /// Computes the elements that all blocks share.
    ///
    /// # Safety
    ///
    /// The contract of [`BlockProgram::with_reader`] applies.
    unsafe fn prepare(&mut self) {
        let program = self.program;
        for (number, step) in program.steps.iter().enumerate() {
            let block = match *step {
                ProgramStep::Memory { base, .. } => base,
                ProgramStep::View { view, at } => {
                    let view = &program.views[view];
                    // SAFETY: the registers reserve the scratch memory. This function's contract
                    // covers the array.
                    unsafe { view.prepare(self.scratch(view, at)) };
                    self.scratch
                }
                ProgramStep::Value {
                    bits,
                    element_bytes,
                    at,
                } => {
                    let to = self.scratch.wrapping_add(at);
                    // SAFETY: the registers reserve the memory of a block.
                    unsafe { repeat(bits, element_bytes, to, BLOCK.min(program.count)) };
                    to
                }
                ProgramStep::Call { at, .. } => self.scratch.wrapping_add(at),
            };
            self.set_address(number, block);
        }
    }

    fn scratch(&self, view: &View, at: usize) -> ViewScratch {
        view.scratch(self.scratch.wrapping_add(at))
    }

    /// Returns the address of the block of the step `number`. The step may not have written its
    /// block yet.
    #[inline]
    fn address(&self, number: usize) -> *const u8 {
        debug_assert!(number < self.program.steps.len());
        // SAFETY: the scratch memory begins with an address for each step. `prepare` wrote these
        // addresses.
        unsafe { self.scratch.cast::<*const u8>().add(number).read() }
    }

    #[inline]
    fn set_address(&mut self, number: usize, block: *const u8) {
        debug_assert!(number < self.program.steps.len());
        // SAFETY: the scratch memory begins with an address for each step.
        unsafe { self.scratch.cast::<*const u8>().add(number).write(block) };
    }

    /// Computes the blocks of the `count` elements from the element `start` on. The blocks are at
    /// their [addresses](Self::address) until the next blocks are computed.
    ///
    /// # Safety
    ///
    /// The range must lie within the index space. If the program is not flat, or writes results to
    /// the scratch memory, the range must have at most [`BLOCK`] elements.
    #[inline]
    unsafe fn block(&mut self, start: usize, count: usize) {
        let program = self.program;
        for (number, step) in program.steps.iter().enumerate() {
            match step {
                ProgramStep::Memory {
                    base,
                    element_bytes,
                } => self.set_address(number, base.wrapping_add(start * element_bytes)),
                ProgramStep::View { view, at } => {
                    let view = &program.views[*view];
                    let scratch = self.scratch(view, *at);
                    // SAFETY: the range is in the index space. By the contract of `with_reader`,
                    // the memory may be read. `prepare` has prepared the scratch.
                    let block = unsafe { view.block(start, count, scratch) };
                    self.set_address(number, block);
                }
                ProgramStep::Value { .. } => {}
                ProgramStep::Call { run, operands, .. } => {
                    let from = operands.map(|operand| self.address(operand as usize));
                    // SAFETY: each operand's block has `count` elements, aligned as blocks and
                    // arrays are. By the invariant of `BlockProgram`, the step's own block overlaps
                    // no block of an operand. An output does not overlap the operands.
                    unsafe { run(&from, self.address(number).cast_mut(), count) };
                }
            }
        }
    }

    /// Returns the address of the first result's block for the `count` elements from the element
    /// `start` on. These elements are in the index space.
    pub(super) fn first_block(&mut self, start: usize, count: usize) -> *const u8 {
        assert!(count <= BLOCK, "{count} elements exceed a block of {BLOCK}");
        if count > 0 {
            // SAFETY: the range is in the index space. By the contract of `with_reader`, it may be
            // read.
            unsafe { self.block(start, count) };
            return self.address(self.program.results[0].step);
        }
        // For no elements, any aligned address is sufficient.
        self.scratch
    }

    /// Writes the elements of `range` to each of `outputs`.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::write`] applies.
    pub(super) unsafe fn write(&mut self, range: Range<usize>, outputs: &Outputs) {
        // SAFETY: by this function's contract.
        unsafe {
            match self.program.rows {
                Some(rows) => self.write_by_tiles(rows, range, outputs),
                None => self.write_blocks(range, outputs),
            }
        }
    }

    /// Writes the elements of `range` to each of `outputs`, block by block.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::write`] applies.
    unsafe fn write_blocks(&mut self, range: Range<usize>, outputs: &Outputs) {
        let most = if self.program.is_flat {
            range.len().max(1)
        } else {
            BLOCK
        };
        for start in range.clone().step_by(most) {
            let count = most.min(range.end - start);
            // SAFETY: by this function's contract. Only a flat program has longer blocks than
            // `BLOCK`, and it writes its results to `outputs`.
            unsafe { self.write_block(start, count, outputs) };
        }
    }

    /// Writes one block to each of `outputs`.
    ///
    /// # Safety
    ///
    /// The contracts of [`ElementSource::write`] and of [`block`](Self::block) apply.
    #[inline]
    unsafe fn write_block(&mut self, start: usize, count: usize, outputs: &Outputs) {
        let program = self.program;
        let places = program.results.iter().zip(outputs.all());
        for (result, &out) in places.clone() {
            if result.is_direct {
                let to = out.wrapping_add(start * result.element_bytes);
                self.set_address(result.step, to);
            }
        }
        // SAFETY: by this function's contract.
        unsafe { self.block(start, count) };
        for (result, &out) in places {
            if !result.is_direct {
                let to = out.wrapping_add(start * result.element_bytes);
                let from = self.address(result.step);
                // SAFETY: the block has `count` elements. The output has space for them, and
                // nothing else accesses it.
                unsafe { to.copy_from_nonoverlapping(from, count * result.element_bytes) };
            }
        }
    }

    /// Writes the elements of `range` to each of `outputs`. Whole rows in the range are written by
    /// tiles.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::write`] applies.
    unsafe fn write_by_tiles(&mut self, rows: TileRows, range: Range<usize>, outputs: &Outputs) {
        let first = range.start.next_multiple_of(rows.length).min(range.end);
        // SAFETY: this function's contract covers each part of the range.
        unsafe { self.write_blocks(range.start..first, outputs) };
        let mut first = first;
        while range.end - first >= rows.length {
            let row = first / rows.length % rows.count;
            let height = TILE
                .rows
                .min(rows.count - row)
                .min((range.end - first) / rows.length);
            // SAFETY: this function's contract covers each part of the range.
            unsafe { self.write_band(rows, first, height, outputs) };
            first += height * rows.length;
        }
        // SAFETY: this function's contract covers each part of the range.
        unsafe { self.write_blocks(first..range.end, outputs) };
    }

    /// Writes `height` whole rows to each of `outputs`, by tiles. The rows fit the height of a
    /// tile. The first row begins at the element `first`.
    ///
    /// # Safety
    ///
    /// The contract of [`ElementSource::write`] applies.
    unsafe fn write_band(
        &mut self,
        rows: TileRows,
        first: usize,
        height: usize,
        outputs: &Outputs,
    ) {
        const { assert!(TILE.columns <= BLOCK) };
        for column in (0..rows.length).step_by(TILE.columns) {
            let width = TILE.columns.min(rows.length - column);
            let part = TilePart {
                rows,
                height,
                width,
            };
            for step in &self.program.steps {
                if let ProgramStep::View { view, at } = step {
                    let view = &self.program.views[*view];
                    // SAFETY: by this function's contract, the rows are in the range.
                    unsafe { view.open(first + column, part, self.scratch(view, *at)) };
                }
            }
            for row in 0..height {
                let start = first + row * rows.length + column;
                // SAFETY: by this function's contract. A row of a tile has at most `BLOCK`
                // elements.
                unsafe { self.write_block(start, width, outputs) };
            }
        }
    }
}

/// Writes the value of `bits` `count` times.
///
/// # Safety
///
/// `to` must be aligned, and have space for the values.
pub(in crate::ops::host) unsafe fn repeat(
    bits: Bits,
    element_bytes: usize,
    to: *mut u8,
    count: usize,
) {
    let low = bits.low();
    // SAFETY: by this function's contract.
    unsafe {
        match element_bytes {
            1 => std::slice::from_raw_parts_mut(to, count).fill(low as u8),
            2 => std::slice::from_raw_parts_mut(to.cast(), count).fill(low as u16),
            4 => std::slice::from_raw_parts_mut(to.cast(), count).fill(low as u32),
            8 => std::slice::from_raw_parts_mut(to.cast(), count).fill(low),
            _ => std::slice::from_raw_parts_mut(to.cast(), count).fill(bits),
        }
    }
}
