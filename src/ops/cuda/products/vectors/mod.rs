//! Products of matrices and vectors.
//!
//! A kernel sums the terms of a product in chunks. The sums of the chunks are then summed. The
//! bounds of chunks depend only on the lengths and strides of the matrix.

#[cfg(all(test, feature = "cuda"))]
mod tests;

use super::ProductKind;
use super::matrix::Pairs;
use crate::array::{Buffer, Walk};
use crate::context::Device;
use crate::device::DevicePtr;
use crate::device::cuda::{Arguments, KernelKey, KernelSource};

use crate::error::Result;
use crate::ops::cuda::copy::{Words, widening};
use crate::ops::cuda::launch::{THREADS, grid_of, launch};
use crate::ops::cuda::memory::scratch;
use crate::ops::cuda::prelude;
use crate::ops::cuda::walk::Numbering;
use crate::ops::order::CudaOrder;

/// Products of matrices with vectors, and the division of their sums into chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    kind: ProductKind,
    pairs: Pairs,
    /// `true` if neighbouring threads process neighbouring rows, instead of parts of one row.
    by_columns: bool,
    /// The number of threads that sum a chunk together.
    group: usize,
    chunk: usize,
    chunks: usize,
    /// The number of elements that a thread reads at once. If `by_columns` is set, these elements
    /// are in one column, otherwise in one row.
    pack: usize,
    /// An exclusive upper bound of all indices of the operands.
    limit: usize,
    stores: Stores,
}

/// The values that a kernel stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stores {
    /// `true` if the values have the accumulation type, `false` if they have the element type.
    of_sums: bool,
    /// `true` if sums are added to the values in memory.
    is_begun: bool,
}

/// The number of elements of a row in one chunk. A chunk is enough work for the threads of a block.
/// Chunks are so small that a single long row occupies the device.
const ROW_CHUNK: usize = 1 << 14;

/// The number of elements of a chunk that one thread sums.
const COLUMN_CHUNK: usize = 1 << 8;

/// The maximum length of a row that one thread sums.
const FEW: usize = 16;

/// The maximum length of a row that a warp sums.
const SOME: usize = 1 << 10;

impl Vectors {
    /// Plans products of a matrix and a vector. `operands` has the memory of the matrices and of
    /// the vectors.
    pub(super) fn new(kind: ProductKind, pairs: &Pairs, operands: [Words; 2]) -> Self {
        let matrix = pairs.left;
        let apart = matrix.row_step.unsigned_abs() < matrix.column_step.unsigned_abs();
        let by_columns = matrix.rows > 1 && matrix.columns > FEW && apart;
        let chunk = if by_columns { COLUMN_CHUNK } else { ROW_CHUNK };
        let group = match matrix.columns {
            columns if by_columns || columns <= FEW => 1,
            ..=SOME => 32,
            _ => THREADS as usize,
        };
        Self {
            kind,
            pairs: *pairs,
            by_columns,
            group,
            chunk,
            chunks: matrix.columns.div_ceil(chunk),
            pack: pack(kind, pairs, operands, by_columns),
            limit: operands[0].limit.max(operands[1].limit),
            stores: Stores::default(),
        }
    }

    /// Returns products that are added to the values in memory. If `is_wide`, the values have the
    /// type of sums.
    pub(super) fn added_to(self, is_wide: bool) -> Self {
        let stores = Stores {
            of_sums: is_wide,
            is_begun: true,
        };
        Self { stores, ..self }
    }

    fn count(&self) -> usize {
        self.pairs.places.count() * self.pairs.left.rows
    }

    /// Returns the number of rows of each matrix. If `by_columns`, returns the number of packs of
    /// rows.
    fn lines(&self) -> usize {
        let each = if self.by_columns { self.pack } else { 1 };
        self.pairs.left.rows.div_ceil(each)
    }

    /// Allocates memory for the sums of chunks, if there are several chunks.
    #[track_caller]
    pub(super) fn scratch(&self, device: &Device) -> Result<Option<Buffer>> {
        let bytes = self.count() * self.chunks * self.kind.sum_bytes();
        let several = self.chunks > 1;
        several.then(|| scratch(device, bytes)).transpose()
    }

    /// Computes the products into `target`, with `scratch` for the sums of chunks.
    #[track_caller]
    pub(super) fn write(
        &self,
        order: CudaOrder<'_>,
        operands: [DevicePtr; 2],
        scratch: Option<&Buffer>,
        target: DevicePtr,
    ) -> Result<()> {
        let Some(scratch) = scratch else {
            return self.sum_chunks(order, operands, target, self.stores);
        };
        let scratch = DevicePtr(scratch.address());
        let partly = Stores {
            of_sums: true,
            is_begun: false,
        };
        self.sum_chunks(order, operands, scratch, partly)?;
        self.sum_sums(order, scratch, target)
    }

    /// Enqueues the kernel that sums each chunk.
    #[track_caller]
    fn sum_chunks(
        &self,
        order: CudaOrder<'_>,
        operands: [DevicePtr; 2],
        target: DevicePtr,
        stores: Stores,
    ) -> Result<()> {
        let matrix = self.pairs.left;
        let sums = self.count() * self.chunks;
        let numbering = Numbering::of(&self.pairs.places, self.limit.max(sums * self.group));
        let count = self.pairs.places.count() * self.chunks * self.lines();
        let mut arguments = Arguments::default();
        for address in operands.into_iter().chain([target]) {
            arguments.push(address.0);
        }
        numbering.push(&mut arguments, &self.pairs.places);
        for length in [self.lines(), self.chunks] {
            numbering.push_numbers(&mut arguments, &numbering.axis(length, [0]));
        }
        let factor_step = self.pairs.right.row_step;
        let steps = [matrix.row_step, matrix.column_step, factor_step].map(|step| step as u64);
        let lengths = [matrix.rows, matrix.columns, self.chunk].map(|length| length as u64);
        let numbers: Vec<u64> = steps.into_iter().chain(lengths).collect();
        numbering.push_numbers(&mut arguments, &numbers);
        arguments.push(count as u64);
        let text = if self.by_columns { COLUMNS } else { ROWS };
        let source = || source(self.kind, numbering, (self.group, self.pack), stores, text);
        let form = numbering.form() | self.kind.form() | form_of_group(self.group);
        let form = form | stores.form() | u32::from(self.by_columns) << 11;
        let form = form | u32::from(self.pack > 1) << 12;
        let key = KernelKey::of::<Vectors>(form);
        launch(order, key, &source, grid_of(count * self.group), &arguments)
    }

    /// Enqueues the kernel that reduces the chunk sums of each product.
    #[track_caller]
    fn sum_sums(&self, order: CudaOrder<'_>, sums: DevicePtr, target: DevicePtr) -> Result<()> {
        let (rows, count) = (self.pairs.left.rows, self.count());
        let (places, step) = if self.by_columns {
            let products = (count / rows, [(self.chunks * rows) as isize]);
            (Walk::over([0], [products, (rows, [1])]), rows)
        } else {
            (Walk::over([0], [(count, [self.chunks as isize])]), 1)
        };
        let group = if self.chunks < 32 { 1 } else { 32 };
        let limit = (count * self.chunks).max(count * group);
        let numbering = Numbering::of(&places, limit);
        let mut arguments = Arguments::default();
        arguments.push(sums.0);
        arguments.push(target.0);
        numbering.push(&mut arguments, &places);
        numbering.push_numbers(&mut arguments, &[self.chunks as u64]);
        numbering.push_numbers(&mut arguments, &[step as u64]);
        arguments.push(count as u64);
        let source = || source(self.kind, numbering, (group, 1), self.stores, CHUNKS);
        let form = numbering.form() | self.kind.form() | form_of_group(group);
        let form = form | self.stores.form();
        let key = KernelKey::of::<Chunks>(form);
        launch(order, key, &source, grid_of(count * group), &arguments)
    }
}

impl Stores {
    /// Returns the bits of a kernel's form that identify the stored values.
    fn form(self) -> u32 {
        u32::from(self.of_sums) << 10 | u32::from(self.is_begun) << 13
    }
}

const ROWS: &str = include_str!("../rows.cuh");
const COLUMNS: &str = include_str!("../columns.cuh");
const CHUNKS: &str = include_str!("../chunks.cuh");

/// The maximum number of bytes that a thread reads at once.
const PACK_BYTES: usize = 16;

/// Returns the number of elements of a matrix that a thread reads at once. Unless the type has 16
/// bits and all packs are aligned to their size, the number is 1.
fn pack(
    kind: ProductKind,
    pairs: &Pairs,
    [matrices, vectors]: [Words; 2],
    by_columns: bool,
) -> usize {
    let (ProductKind::F16 | ProductKind::Bf16) = kind else {
        return 1;
    };
    let (matrix, places) = (pairs.left, &pairs.places);
    let (together, along, across) = if by_columns {
        (matrix.rows, matrix.row_step, matrix.column_step)
    } else {
        // A single row has no next row that must be aligned.
        let next = if matrix.rows > 1 { matrix.row_step } else { 0 };
        (matrix.columns, matrix.column_step, next)
    };
    let [first, first_factor] = places.first();
    let steps = |operand: usize| {
        places
            .axes()
            .map(move |(_, steps)| steps[operand].unsigned_abs())
    };
    let numbers = steps(0).chain([first, across.unsigned_abs()]);
    let most = widening(&[matrices], numbers);
    // Along a column, one factor is read for all elements of a pack.
    let fits_factors = by_columns
        || pairs.right.row_step == 1
            && widening(&[vectors], steps(1).chain([first_factor])) == most;
    let is_whole = most * matrices.bytes == PACK_BYTES;
    if is_whole && along == 1 && fits_factors && together >= most {
        most
    } else {
        1
    }
}

/// Returns the source of the kernel with `text`, for groups of `group` threads and packs of `pack`
/// elements.
fn source(
    kind: ProductKind,
    numbering: Numbering,
    (group, pack): (usize, usize),
    stores: Stores,
    text: &str,
) -> KernelSource {
    let (item, sum) = (kind.item(), kind.sum());
    let out = if stores.of_sums { sum } else { item };
    let begun = u32::from(stores.is_begun);
    let numbers = numbering.text();
    let types = format!("typedef {item} item_t;\ntypedef {sum} sum_t;\ntypedef {out} out_t;\n");
    let sums = include_str!("../sums.cuh");
    let defined = format!("#define GROUP {group}\n#define PACK {pack}\n#define BEGUN {begun}\n");
    let text = format!("{numbers}{types}{defined}{sums}{text}");
    prelude::source(format!("a product with a vector of {item}"), &text)
}

/// The kernels that reduce the sums of chunks.
struct Chunks;

/// Returns the bits of a kernel's form that encode the size of a group.
fn form_of_group(group: usize) -> u32 {
    match group {
        1 => 0,
        32 => 1 << 8,
        _ => 2 << 8,
    }
}
