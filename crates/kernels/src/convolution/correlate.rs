//! The gradient of a kernel. Each element of the gradient is a sum over all images and results. A
//! term is the gradient of a result times the image element that the kernel element multiplied.
//!
//! Images and gradients are packed into planes with rows of equal pitch. The gaps between the rows
//! of the gradient are zeros, so a plane is one long row. A tile of sums covers some channels of
//! the result and some elements of the kernel. The tile stays in registers while the loop runs over
//! the planes of several images.

use std::ops::Range;
use std::sync::Arc;

use super::pack::{ALIGNMENT, PackedSource, SLACK, aligned, fill, pack, pack_result};
use super::plan::{ConvPlan, PieceScratch};
use crate::pointers::WritePtr;
use crate::registers::{RegisterFloat, VectorOf};

/// The number of channels of the result that a job computes. It is small enough to divide the work
/// among many threads. It is large enough that a job spends little time on packing the images.
pub const OUTPUTS: usize = 32;
/// The minimum number of channels of the images that are packed at once.
const CHANNELS: usize = 16;
/// The number of channels of a tile.
const HEIGHT: usize = 4;
/// The maximum number of bytes of the packed planes of several pieces.
const BLOCK_BYTES: usize = 1 << 18;
/// The minimum number of results of a channel that are summed in one job.
pub const RESULTS: usize = 1024;
/// The minimum number of vectors per sum. With fewer vectors, the final sums of the vectors'
/// elements take a large part of the time.
const VECTORS: usize = 96;

/// The operands of a launch.
#[derive(Clone, Debug)]
pub struct Correlation<T> {
    pub plan: Arc<ConvPlan>,
    pub images: PackedSource<T>,
    pub gradient: PackedSource<T>,
    /// The number of pieces of images in each partial gradient of the kernel.
    pub pieces_each: usize,
    pub sums: usize,
}

impl<T> Correlation<T> {
    pub const SCRATCH: PieceScratch = PieceScratch {
        channels: CHANNELS,
        outputs: OUTPUTS,
        sums: OUTPUTS,
        element_bytes: size_of::<T>(),
    };

    /// Returns the number of jobs for each partial gradient and group.
    pub fn blocks(plan: &ConvPlan) -> usize {
        plan.outputs.div_ceil(OUTPUTS)
    }

    /// Returns the number of jobs.
    pub fn jobs(&self) -> usize {
        self.sums * self.plan.groups * Self::blocks(&self.plan)
    }
}

struct PackedPieces<T> {
    planes: *const T,
    gradient: *const T,
    /// The number of pieces. The two fields after it are the strides between pieces.
    count: usize,
    planes_len: usize,
    gradients_len: usize,
    /// The number of elements of a plane of the gradient.
    gradient_len: usize,
}

/// The memory of the sums.
#[derive(Clone, Copy)]
struct SumLines<T> {
    to: *mut T,
    /// The stride between channels of the result.
    width: usize,
    count: usize,
    /// `true` if the sums are added to earlier sums.
    is_begun: bool,
}

impl<T: RegisterFloat> PackedPieces<T> {
    /// Returns the sums of the products of a channel of the gradient and the planes from an offset
    /// on. The results are for `M` channels, from `channel` on, and for `N` offsets.
    ///
    /// # Safety
    ///
    /// The processor must support the vectors. The planes must have the channels. Each offset must
    /// be followed by as many elements as a plane of the gradient has.
    #[inline(always)]
    unsafe fn sums<V: VectorOf<T>, const M: usize, const N: usize>(
        &self,
        channel: usize,
        offsets: [usize; N],
    ) -> [[T; N]; M] {
        // SAFETY: the caller upholds this function's contract. The length of a gradient is a
        // multiple of `V::LANES`.
        unsafe {
            let zero = V::splat(T::zero());
            let mut tile = [[zero; N]; M];
            for piece in 0..self.count {
                let from = self.planes.add(piece * self.planes_len);
                let from = offsets.map(|offset| from.wrapping_add(offset));
                let gradient = self.gradient.add(piece * self.gradients_len);
                let gradient = gradient.add(channel * self.gradient_len);
                let mut at = 0;
                while at < self.gradient_len {
                    // The loop is not a closure, because a closure would be compiled without the
                    // target features.
                    let mut values = [zero; N];
                    for (value, from) in values.iter_mut().zip(&from) {
                        *value = V::load(from.add(at));
                    }
                    for (row, tile) in tile.iter_mut().enumerate() {
                        let factor = V::load(gradient.add(row * self.gradient_len + at));
                        for (sum, &value) in tile.iter_mut().zip(&values) {
                            *sum = sum.plus_product(factor, value);
                        }
                    }
                    at += V::LANES;
                }
            }
            let mut sums = [[T::zero(); N]; M];
            for (sums, tile) in sums.iter_mut().zip(&tile) {
                for (sum, vector) in sums.iter_mut().zip(tile) {
                    *sum = vector.total();
                }
            }
            sums
        }
    }

    /// Writes or adds the sums of `M` channels, from channel `channel` on, to `to`. `offset`
    /// returns the offset in the planes for each of `count` sums.
    ///
    /// # Safety
    ///
    /// The contract of [`sums`](Self::sums) must hold. In addition, `to` must be writable, and
    /// readable if sums are added.
    #[inline(always)]
    unsafe fn write<V: VectorOf<T>, const M: usize, const N: usize>(
        &self,
        channel: usize,
        offset: impl Fn(usize) -> usize,
        SumLines {
            to,
            width,
            count,
            is_begun,
        }: SumLines<T>,
    ) {
        for start in (0..count).step_by(N) {
            // If fewer than `N` offsets remain, the last offset is repeated.
            let offsets = std::array::from_fn(|next| offset((start + next).min(count - 1)));
            // SAFETY: the caller upholds this function's contract.
            unsafe {
                let sums = self.sums::<V, M, N>(channel, offsets);
                for (row, sums) in sums.iter().enumerate() {
                    let line = to.add((channel + row) * width + start);
                    for (next, &sum) in sums.iter().enumerate().take(count - start) {
                        let before = if is_begun {
                            line.add(next).read()
                        } else {
                            T::zero()
                        };
                        line.add(next).write(before.plus(sum));
                    }
                }
            }
        }
    }

    /// Writes or adds the sums of `outputs` channels.
    ///
    /// # Safety
    ///
    /// The contract of [`write`](Self::write) must hold.
    #[inline(always)]
    unsafe fn write_all<V: VectorOf<T>, const N: usize>(
        &self,
        outputs: usize,
        offset: impl Fn(usize) -> usize,
        to: SumLines<T>,
    ) {
        let mut channel = 0;
        while channel < outputs {
            // SAFETY: the caller upholds this function's contract.
            unsafe {
                if outputs - channel >= HEIGHT && !V::IS_PLAIN {
                    self.write::<V, HEIGHT, N>(channel, &offset, to);
                    channel += HEIGHT;
                } else {
                    self.write::<V, 1, N>(channel, &offset, to);
                    channel += 1;
                }
            }
        }
    }
}

/// Runs the jobs of a range. Each job sums some pieces of images for some channels of the result.
///
/// # Safety
///
/// The processor must support the vectors. The operands must be alive and not written to. Only the
/// caller may write the sums of the jobs.
#[inline(always)]
pub unsafe fn run<T: RegisterFloat, V: VectorOf<T>>(
    task: &Correlation<T>,
    to: WritePtr<T>,
    jobs: Range<usize>,
) {
    let plan = &*task.plan;
    let blocks = Correlation::<T>::blocks(plan);
    let (channel_len, taps) = (plan.channel_len(), &plan.passes[0].offsets);
    let gradient_len = ((plan.rows - 1) * plan.pitch() + plan.length(1)).next_multiple_of(V::LANES);
    let gradients_len = plan.outputs.min(OUTPUTS) * gradient_len;
    let pieces_most = (VECTORS * V::LANES)
        .div_ceil(gradient_len)
        .min(task.pieces_each)
        .min((BLOCK_BYTES / size_of::<T>() / (channel_len + gradients_len)).max(1));
    let channels_most =
        (BLOCK_BYTES / (pieces_most * size_of::<T>())).saturating_sub(gradients_len);
    let channels_most = (channels_most / channel_len).clamp(1, plan.channels);
    let planes_len = channels_most * channel_len;
    let all_len = pieces_most * planes_len;
    let room = pieces_most * gradients_len + all_len + plan.phases_len() + 2 * SLACK + ALIGNMENT;
    let mut scratch: Vec<T> = Vec::with_capacity(room);
    // The gradients precede the planes, because a multiple of the gradients' length keeps vectors
    // aligned.
    let gradient = aligned(&mut scratch);
    let planes = gradient.wrapping_add(pieces_most * gradients_len);
    let phases = planes.wrapping_add(all_len + SLACK);
    // SAFETY: the scratch memory has space for the phases and their slack.
    unsafe { fill(phases, plan.phases_len() + SLACK) };
    let offset = |number: usize| number / taps.len() * channel_len + taps[number % taps.len()];
    let width = plan.channels * taps.len();
    for job in jobs {
        let (block, rest) = (job % blocks, job / blocks);
        let (group, sum) = (rest % plan.groups, rest / plan.groups);
        let outputs = block * OUTPUTS..plan.outputs.min((block + 1) * OUTPUTS);
        let first = group * plan.outputs + outputs.start;
        let line = sum * plan.groups * plan.outputs + first;
        let end = (plan.images * plan.pieces).min((sum + 1) * task.pieces_each);
        let begin = sum * task.pieces_each;
        for start in (begin..end).step_by(pieces_most) {
            let pieces = start..end.min(start + pieces_most);
            let place = |number: usize| (number / plan.pieces, plan.piece(number % plan.pieces));
            for (next, number) in pieces.clone().enumerate() {
                let (image, rows) = place(number);
                for channel in 0..outputs.len() {
                    // SAFETY: the scratch memory has space for the piece. By this function's
                    // contract, the gradient has the channel and the rows.
                    unsafe {
                        let to = gradient.add(next * gradients_len + channel * gradient_len);
                        let at = (image, first + channel);
                        pack_result(plan, &task.gradient, at, rows.clone(), (to, gradient_len));
                    }
                }
            }
            for channel in (0..plan.channels).step_by(channels_most) {
                let channels = channel..plan.channels.min(channel + channels_most);
                let of_group = group * plan.channels;
                for (next, number) in pieces.clone().enumerate() {
                    let (image, rows) = place(number);
                    let channels = of_group + channels.start..of_group + channels.end;
                    // SAFETY: the scratch memory has space for the piece. By this function's
                    // contract, the images have the channels and the rows.
                    unsafe {
                        let to = planes.add(next * planes_len);
                        pack(
                            plan,
                            &task.images,
                            (image, channels),
                            rows.start,
                            (to, phases),
                        );
                    }
                }
                let packed = PackedPieces {
                    planes,
                    gradient,
                    count: pieces.len(),
                    planes_len,
                    gradients_len,
                    gradient_len,
                };
                let to = SumLines {
                    to: to.at(line * width + channel * taps.len()).cast::<T>(),
                    width,
                    count: channels.len() * taps.len(),
                    is_begun: start > begin,
                };
                // SAFETY: the pieces have been packed. A vector of the gradient extends at most one
                // vector beyond a plane. The sums belong to this job.
                unsafe {
                    match V::IS_WIDE {
                        _ if V::IS_PLAIN => packed.write_all::<V, 1>(outputs.len(), offset, to),
                        true => packed.write_all::<V, 6>(outputs.len(), offset, to),
                        false => packed.write_all::<V, 3>(outputs.len(), offset, to),
                    }
                }
            }
        }
    }
}
