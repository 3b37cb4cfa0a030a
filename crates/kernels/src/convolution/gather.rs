//! Convolutions, and the gradients of their images. A result is a sum of products of packed planes
//! and the kernel's elements.
//!
//! A tile of sums covers some channels of the result and some vectors of adjacent results. The tile
//! stays in registers while the loop runs over the channels and taps. The kernel is packed in the
//! order of this loop. All tiles add the terms of a sum in one order. Therefore results do not
//! depend on the division of the work.

use std::ops::Range;
use std::sync::Arc;

use super::pack::{ALIGNMENT, PackedSource, SLACK, aligned, copy_run, fill, pack};
use super::plan::{ConvPlan, Pass, PieceScratch};
use crate::pointers::{ReadPtr, WritePtr};
use crate::registers::{RegisterFloat, VectorOf};

/// The number of channels of the result whose kernels are packed together.
pub const HEIGHT: usize = 8;
/// The number of products that are summed before their sum is added to the total.
const DEPTH: usize = 256;

/// The operands of a launch.
#[derive(Clone, Debug)]
pub struct Gather<T> {
    pub plan: Arc<ConvPlan>,
    pub source: PackedSource<T>,
    /// The packed kernel.
    pub weights: ReadPtr<T>,
}

impl<T> Gather<T> {
    pub const SCRATCH: PieceScratch = PieceScratch {
        channels: usize::MAX,
        outputs: usize::MAX,
        sums: HEIGHT,
        element_bytes: size_of::<T>(),
    };
}

/// The vectors of a piece of results. If the rows are long, a vector is in one row. Otherwise,
/// vectors extend across rows, and across the gaps between the rows.
#[derive(Clone, Copy)]
struct VectorGrid {
    vectors: usize,
    per_row: usize,
    lanes: usize,
    /// The length of a row of planes. `sums_pitch` is the length of a row of sums.
    pitch: usize,
    sums_pitch: usize,
}

impl VectorGrid {
    #[inline(always)]
    fn new(plan: &ConvPlan, rows: usize, lanes: usize) -> Self {
        let (pitch, width) = (plan.pitch(), plan.axes[1].count);
        let flat = ((rows - 1) * pitch + width).div_ceil(lanes);
        let per_row = width.div_ceil(lanes);
        match rows * per_row <= flat {
            true => Self {
                vectors: rows * per_row,
                per_row,
                lanes,
                pitch,
                sums_pitch: per_row * lanes,
            },
            false => Self {
                vectors: flat,
                per_row: flat,
                lanes,
                pitch,
                sums_pitch: pitch,
            },
        }
    }

    #[inline(always)]
    fn position(&self, vector: usize) -> usize {
        vector / self.per_row * self.pitch + vector % self.per_row * self.lanes
    }
}

struct TileLoop<'a, T> {
    planes: *const T,
    offsets: &'a [usize],
    channels: usize,
    channel_len: usize,
}

impl<T: RegisterFloat> TileLoop<'_, T> {
    /// Writes the sums of `M` channels and `N` vectors. `stride` is the distance between the sums
    /// of neighbouring channels.
    ///
    /// # Safety
    ///
    /// The processor must support the vectors. For each position and offset, the planes must have a
    /// vector at their sum. The sums must be writable. The kernel must have `M` elements for each
    /// channel and tap.
    #[inline(always)]
    unsafe fn run<V: VectorOf<T>, const M: usize, const N: usize>(
        &self,
        positions: [usize; N],
        mut weights: *const T,
        (sums, stride): (*mut T, usize),
    ) {
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            let zero = V::splat(T::zero());
            let mut totals = [[zero; N]; M];
            let depth = (DEPTH / self.offsets.len().max(1)).max(1);
            let mut planes = self.planes;
            let mut left = self.channels;
            while left > 0 {
                let mut tile = [[zero; N]; M];
                for _ in 0..depth.min(left) {
                    for &offset in self.offsets {
                        let from = planes.add(offset);
                        // The loop is not a closure, because a closure would be compiled without
                        // the target features.
                        let mut values = [zero; N];
                        for (value, &position) in values.iter_mut().zip(&positions) {
                            *value = V::load(from.add(position));
                        }
                        for (row, tile) in tile.iter_mut().enumerate() {
                            let factor = V::splat(weights.add(row).read());
                            for (sum, &value) in tile.iter_mut().zip(&values) {
                                *sum = sum.plus_product(factor, value);
                            }
                        }
                        weights = weights.add(HEIGHT);
                    }
                    planes = planes.add(self.channel_len);
                }
                for (totals, tile) in totals.iter_mut().zip(&tile) {
                    for (total, &sum) in totals.iter_mut().zip(tile) {
                        *total = total.plus(sum);
                    }
                }
                left -= depth.min(left);
            }
            for (row, totals) in totals.iter().enumerate() {
                for (vector, total) in totals.iter().enumerate() {
                    total.store(sums.add(row * stride + vector * V::LANES));
                }
            }
        }
    }

    /// Writes the sums of `M` channels and all vectors.
    ///
    /// # Safety
    ///
    /// The contract of [`run`](Self::run) must hold.
    #[inline(always)]
    unsafe fn run_all<V: VectorOf<T>, const M: usize, const N: usize>(
        &self,
        grid: &VectorGrid,
        weights: *const T,
        sums: *mut T,
    ) {
        let stride = grid.vectors * V::LANES;
        let mut vector = 0;
        while vector < grid.vectors {
            let to = (sums.wrapping_add(vector * V::LANES), stride);
            // SAFETY: the caller upholds this function's contract.
            unsafe {
                match grid.vectors - vector {
                    // If `N` is 3 and four vectors remain, two pairs take less time than a triple
                    // and a single vector.
                    left if left >= N && left != N + 1 => {
                        let at = std::array::from_fn(|next| grid.position(vector + next));
                        self.run::<V, M, N>(at, weights, to);
                        vector += N;
                    }
                    2.. => {
                        let at = [0, 1].map(|next| grid.position(vector + next));
                        self.run::<V, M, 2>(at, weights, to);
                        vector += 2;
                    }
                    _ => {
                        self.run::<V, M, 1>([grid.position(vector)], weights, to);
                        vector += 1;
                    }
                }
            }
        }
    }
}

/// Runs the jobs of a range. A job is a piece of an image.
///
/// # Safety
///
/// The processor must support the vectors. The operands must be alive and not written to. Only the
/// caller may write the results of the jobs.
#[inline(always)]
pub unsafe fn run<T: RegisterFloat, V: VectorOf<T>>(
    task: &Gather<T>,
    to: WritePtr<T>,
    jobs: Range<usize>,
) {
    let plan = &*task.plan;
    let planes_len = (plan.channels * plan.channel_len() + SLACK).next_multiple_of(V::LANES);
    let most = VectorGrid::new(plan, plan.rows, V::LANES).vectors * V::LANES;
    let sums_len = HEIGHT * most;
    let room = planes_len + sums_len + plan.phases_len() + SLACK + ALIGNMENT;
    let mut scratch: Vec<T> = Vec::with_capacity(room);
    let planes = aligned(&mut scratch);
    let sums = planes.wrapping_add(planes_len);
    let phases = sums.wrapping_add(sums_len);
    let blocks = plan.outputs.div_ceil(HEIGHT);
    let block_len = plan.channels * plan.taps() * HEIGHT;
    // SAFETY: the scratch memory has space for the phases and their slack.
    unsafe { fill(phases, plan.phases_len() + SLACK) };
    for job in jobs {
        let (image, piece) = (job / plan.pieces, plan.piece(job % plan.pieces));
        let grid = VectorGrid::new(plan, piece.len(), V::LANES);
        for group in 0..plan.groups {
            let channels = group * plan.channels..(group + 1) * plan.channels;
            // SAFETY: the planes have space for the channels of a group. By this function's
            // contract, the source has the channels.
            unsafe {
                pack(
                    plan,
                    &task.source,
                    (image, channels),
                    piece.start,
                    (planes, phases),
                );
            };
            for block in 0..blocks {
                let outputs = block * HEIGHT..plan.outputs.min((block + 1) * HEIGHT);
                let weights = task.weights.at((group * blocks + block) * block_len);
                for pass in &plan.passes {
                    let tiles = TileLoop {
                        planes,
                        offsets: &pass.offsets,
                        channels: plan.channels,
                        channel_len: plan.channel_len(),
                    };
                    let before = plan.channels * pass.taps_before * HEIGHT;
                    let weights = weights.wrapping_add(before);
                    let first = (image * plan.groups + group) * plan.outputs + outputs.start;
                    // SAFETY: the vectors of the grid are within the planes and the slack. The
                    // kernel is packed for all channels and taps of the pass. The results belong to
                    // the image and the piece of this job.
                    unsafe {
                        sum_block::<T, V>(&tiles, &grid, outputs.len(), weights, sums);
                        write_block(plan, pass, &grid, sums, to, (first, outputs.len()), &piece);
                    }
                }
            }
        }
    }
}

/// Writes the sums of `height` channels, at most [`HEIGHT`].
///
/// # Safety
///
/// The contract of [`TileLoop::run`] must hold.
#[inline(always)]
unsafe fn sum_block<T: RegisterFloat, V: VectorOf<T>>(
    tiles: &TileLoop<'_, T>,
    grid: &VectorGrid,
    height: usize,
    weights: *const T,
    sums: *mut T,
) {
    let stride = grid.vectors * V::LANES;
    // SAFETY: the caller upholds this function's contract. The kernel is packed for `HEIGHT`
    // channels.
    unsafe {
        match height {
            _ if V::IS_PLAIN => {
                for row in 0..height {
                    for vector in 0..grid.vectors {
                        let to = sums.add(row * stride + vector * V::LANES);
                        let at = [grid.position(vector)];
                        tiles.run::<V, 1, 1>(at, weights.add(row), (to, stride));
                    }
                }
            }
            5.. if V::IS_WIDE => tiles.run_all::<V, 8, 3>(grid, weights, sums),
            5.. => {
                tiles.run_all::<V, 4, 3>(grid, weights, sums);
                tiles.run_all::<V, 4, 3>(grid, weights.add(4), sums.add(4 * stride));
            }
            2.. => tiles.run_all::<V, 4, 3>(grid, weights, sums),
            _ => tiles.run_all::<V, 1, 6>(grid, weights, sums),
        }
    }
}

/// Writes the sums of a block to the results of `height` channels, from channel `first` on.
///
/// # Safety
///
/// The sums must have been written, and only the caller may write the results.
#[inline(always)]
unsafe fn write_block<T: RegisterFloat>(
    plan: &ConvPlan,
    pass: &Pass,
    grid: &VectorGrid,
    sums: *const T,
    to: WritePtr<T>,
    (first, height): (usize, usize),
    piece: &Range<usize>,
) {
    let rows = plan.valid(pass, 0, piece.clone());
    let columns = plan.valid(pass, 1, 0..plan.axes[1].count);
    if columns.is_empty() {
        return;
    }
    let [(top, down), (left, along)] = [pass.line(0), pass.line(1)];
    let column = left + (along * columns.start) as isize;
    let is_whole =
        [down, along, columns.len(), grid.sums_pitch] == [1, 1, plan.length(1), columns.len()];
    for channel in 0..height {
        let sums = sums.wrapping_add(channel * grid.vectors * grid.lanes + columns.start);
        let together = if is_whole { rows.len() } else { 1 };
        for row in rows.clone().step_by(together.max(1)) {
            let line = (first + channel) * plan.length(0) + (top + (down * row) as isize) as usize;
            let at = line * plan.length(1) + column as usize;
            let from = sums.wrapping_add((row - piece.start) * grid.sums_pitch);
            // SAFETY: `valid` returned the row and the columns, so they are within the results.
            // Only the caller writes them, by this function's contract.
            unsafe {
                copy_run(
                    from,
                    1,
                    to.at(at).cast::<T>(),
                    along,
                    columns.len() * together,
                );
            };
        }
    }
}
