//! The division of rows among threads, and the source of each kernel.

use std::fmt::Write;

use super::super::launch::THREADS;
use super::super::memory::address_of;
use super::super::prelude;
use super::super::reduce::STATES;
use crate::array::{AnyArray, DType};
use crate::device::cuda::{Grid, KernelKey, KernelSource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NormPass {
    Forward,
    Backward,
}

/// A kernel: a pass, the type of the elements, and the division of rows among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NormKernel {
    pass: NormPass,
    dtype: DType,
    /// `true` if the mean of each row is subtracted.
    is_centred: bool,
    /// The number of threads of a row, a power of two.
    lanes: usize,
    /// The number of contiguous elements that a thread reads at once.
    unit: usize,
    /// The number of units that a thread holds.
    held: usize,
}

impl NormKernel {
    /// Returns the kernel that reads `arrays`. The rows along the last axis of the first array are
    /// normalized. Returns `None` if the types differ, or if an array has gaps. Also returns `None`
    /// if there are no rows, or if a row does not fit the registers of a block.
    pub(super) fn of(pass: NormPass, arrays: &[&AnyArray], is_centred: bool) -> Option<Self> {
        let x = arrays[0];
        let width = *x.dims().last()?;
        let is_like_x = |own: &&AnyArray| own.dtype == x.dtype && own.layout.is_contiguous();
        if x.len() == 0 || !arrays.iter().all(is_like_x) {
            return None;
        }
        let unit = WORD_BYTES / x.dtype.size_bytes();
        let is_aligned = |own: &&AnyArray| {
            let address = address_of(own.operand()).0;
            address.is_multiple_of(WORD_BYTES as u64)
        };
        let unit = match width.is_multiple_of(unit) && arrays.iter().all(is_aligned) {
            true => unit,
            false => 1,
        };
        Self::new(pass, x.dtype, is_centred, (width, unit))
    }

    /// Returns the kernel for rows of `width` elements, `unit` of which are read at once.
    pub(super) fn new(
        pass: NormPass,
        dtype: DType,
        is_centred: bool,
        (width, unit): (usize, usize),
    ) -> Option<Self> {
        /// The maximum number of threads of a row.
        const MOST: usize = 512;
        // A backward pass holds a row, its gradient and two sums.
        let elements = match pass {
            NormPass::Forward => 16,
            NormPass::Backward => 8,
        };
        // The registers of a thread hold 16 elements of four bytes.
        let most = 64 / dtype.computed_in().size_bytes();
        let short = width.div_ceil(unit.max(4)).next_power_of_two().min(32);
        let long = width.div_ceil(elements.min(most)).next_power_of_two();
        let lanes = long.max(short).min(MOST);
        let held = width.div_ceil(unit * lanes);
        (held * unit <= most).then_some(Self {
            pass,
            dtype,
            is_centred,
            lanes,
            unit,
            held,
        })
    }

    /// Returns the number of rows that a block holds at once.
    fn side(&self) -> usize {
        (THREADS as usize / self.lanes).max(1)
    }

    fn threads(&self) -> usize {
        self.lanes * self.side()
    }

    /// Returns the number of elements that the threads of a row hold.
    #[cfg(test)]
    pub(super) fn elements_of_row(&self) -> usize {
        self.lanes * self.held * self.unit
    }

    /// Returns the number of tiles of `rows`. A block processes one tile at once.
    pub(super) fn tiles(&self, rows: usize) -> usize {
        rows.div_ceil(self.side())
    }

    /// Returns a number of threads that a multiprocessor of 65,536 registers runs at once. Their
    /// loads are enough to use the whole bandwidth of the memory.
    pub(super) fn threads_at_once(&self) -> usize {
        let wide_bytes = self.dtype.computed_in().size_bytes();
        match (self.pass, self.held * self.unit * wide_bytes) {
            (NormPass::Backward, ..=32) => 1024,
            _ => 512,
        }
    }

    /// Returns the number of blocks of a pass that sums over rows. The blocks occupy the device.
    pub(super) fn blocks_for_sums(&self, rows: usize, multiprocessors: u32) -> usize {
        let device = multiprocessors as usize * self.threads_at_once() / self.threads();
        self.tiles(rows).min(device.max(1))
    }

    pub(super) fn grid(&self, blocks: usize) -> Grid {
        Grid {
            blocks: [blocks as u32, 1],
            threads: self.threads() as u32,
            shared_bytes: 0,
        }
    }

    pub(super) fn key(&self) -> KernelKey {
        /// The kernels of norms.
        struct Norm;
        let dtype = match self.dtype {
            DType::F16 => 0,
            DType::Bf16 => 1,
            DType::F32 => 2,
            _ => 3,
        };
        let variant = [
            (self.pass as u32, 1),
            (self.is_centred.into(), 1),
            (dtype, 2),
            (self.unit.ilog2(), 2),
            (self.lanes.ilog2(), 4),
            (self.held as u32, 5),
        ];
        let form = variant
            .iter()
            .fold(0, |form, (value, bits)| form << bits | value);
        KernelKey::of::<Norm>(form)
    }

    pub(super) fn source(&self) -> KernelSource {
        let (item, wide) = (self.dtype.in_cuda(), self.dtype.computed_in().in_cuda());
        let mut text = String::from(STATES);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "typedef {item} T;
typedef {wide} A;
#define CS_CENTRED {}
#define CS_LANES {}
#define CS_SIDE {}
#define CS_UNIT {}
#define CS_HELD {}",
            u8::from(self.is_centred),
            self.lanes,
            self.side(),
            self.unit,
            self.held
        );
        text.push_str(include_str!("../merged.cuh"));
        text.push_str(include_str!("rows.cuh"));
        text.push_str(match self.pass {
            NormPass::Forward => include_str!("forward.cuh"),
            NormPass::Backward => include_str!("backward.cuh"),
        });
        let norm = if self.is_centred {
            "layer norm"
        } else {
            "RMS norm"
        };
        let name = match self.pass {
            NormPass::Forward => format!("{norm} of {item}"),
            NormPass::Backward => format!("gradient of {norm} of {item}"),
        };
        prelude::source(name, &text)
    }
}

/// The size of the longest words in bytes.
const WORD_BYTES: usize = 16;

/// Returns the source of the kernel that adds sums of `wide`.
pub(super) fn source_of_columns(wide: DType) -> KernelSource {
    let wide = wide.in_cuda();
    let text = format!("typedef {wide} A;\n{}", include_str!("columns.cuh"));
    prelude::source(format!("sums of a norm's columns of {wide}"), &text)
}
