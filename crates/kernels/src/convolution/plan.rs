//! The positions that a convolution, or the gradient of its images, reads and writes. This file
//! computes them without access to the data.
//!
//! The images are packed into planes. For each element of the kernel, the results of a row then
//! read contiguous elements. A convolution with stride s has s × s planes per channel. Plane (a, b)
//! holds the elements whose padded coordinates are congruent to a and b modulo s. The gradient of
//! the images needs only one plane per channel of the result's gradient. The results of this
//! computation are the elements of the images' gradient. They are divided into s × s classes. All
//! results of a class need the same elements of the kernel, and elements of the plane at fixed
//! offsets.

use std::ops::Range;

use super::ConvLengths;

/// The maximum number of bytes of packed planes and sums in one job. This memory fits into the
/// second-level cache.
const PIECE_BYTES: usize = 3 << 17;
/// The target number of jobs of a launch. With this number of jobs, the load is balanced among
/// threads.
const JOBS: usize = 16;
/// The minimum number of rows of a job, unless an axis or the scratch memory allows fewer.
const LEAST_ROWS: usize = 8;

/// The time to pack an element, divided by the time of a product.
const PRODUCTS: usize = 13;
/// The maximum number of gapless planes for a row of a channel.
const MOST_PLANES: usize = 8;

/// The kernel element of index `at` along an axis. It multiplies the image elements from `offset`
/// on in the plane `phase`.
#[derive(Clone, Copy, Debug)]
struct Tap {
    at: usize,
    /// The index of the plane.
    phase: usize,
    offset: usize,
}

/// The results at `first + step * index`, for each index. All of them read the same taps.
#[derive(Clone, Debug)]
struct ResultClass {
    first: isize,
    step: usize,
    taps: Vec<Tap>,
}

#[derive(Clone, Debug)]
pub struct AxisPlan {
    /// The number of results of the longest class.
    pub count: usize,
    /// The largest offset of a tap.
    pub reach: usize,
    /// The length of the results.
    length: usize,
    /// The length of the packed arrays: of the images, or, for the gradient of the images, of the
    /// results.
    image: usize,
    /// The distance between neighbouring elements of a phase in the image. Element `index` of phase
    /// a is at `step * index + a - before`.
    pub step: usize,
    before: isize,
    phases: Vec<usize>,
    /// The phase and the offset at which each gapless plane begins. If the planes have gaps, the
    /// list is empty.
    pub starts: Vec<(usize, usize)>,
    classes: Vec<ResultClass>,
}

impl AxisPlan {
    fn convolved(lengths: &ConvLengths, at: usize) -> Self {
        let (stride, dilation) = (lengths.stride[at], lengths.dilation[at]);
        let positions = (0..lengths.kernel[at]).map(|tap| tap * dilation);
        let mut phases: Vec<usize> = positions
            .clone()
            .map(|position| position % stride)
            .collect();
        phases.sort_unstable();
        phases.dedup();
        let number = |phase| {
            phases
                .binary_search(&phase)
                .expect("the list contains the item")
        };
        let taps: Vec<Tap> = positions
            .enumerate()
            .map(|(at, position)| Tap {
                at,
                phase: number(position % stride),
                offset: position / stride,
            })
            .collect();
        Self {
            count: lengths.result[at],
            reach: (lengths.kernel[at] - 1) * dilation / stride,
            length: lengths.result[at],
            image: lengths.image[at],
            step: stride,
            before: lengths.padding[at] as isize,
            classes: vec![ResultClass {
                first: 0,
                step: 1,
                taps,
            }],
            phases,
            starts: Vec::new(),
        }
    }

    /// Returns the plan of the gradient of the images along axis `at`. Element q is a sum of
    /// products of the kernel's elements k and the gradients of results. The index of the result
    /// for k is (q + padding − dilation k) / stride. If the division has a remainder, k contributes
    /// nothing.
    fn transposed(lengths: &ConvLengths, at: usize) -> Self {
        let (stride, dilation) = (lengths.stride[at], lengths.dilation[at]);
        let (padding, length) = (lengths.padding[at], lengths.image[at]);
        let reach = (lengths.kernel[at] - 1) * dilation / stride;
        let skipped = padding / stride;
        // The first `stride` results include all classes.
        let classes = (0..length.min(stride)).map(|result| {
            let phase = (result + padding) % stride;
            let positions = (0..lengths.kernel[at]).map(|tap| tap * dilation);
            let taps = positions
                .enumerate()
                .filter(|(_, position)| position % stride == phase);
            let taps = taps.map(|(at, position)| Tap {
                at,
                phase: 0,
                offset: reach - position / stride,
            });
            ResultClass {
                first: (phase + skipped * stride) as isize - padding as isize,
                step: stride,
                taps: taps.collect(),
            }
        });
        Self {
            count: (length + padding - 1) / stride + 1 - skipped,
            reach,
            length,
            image: lengths.result[at],
            step: 1,
            before: reach as isize - skipped as isize,
            phases: vec![0],
            starts: Vec::new(),
            classes: classes.collect(),
        }
    }

    /// Plans a separate plane for each offset, so that rows of results are contiguous without gaps.
    /// Each element of a gap would be multiplied `products` times. If there are many offsets, or if
    /// packing the planes takes longer than the products of the gaps, changes nothing.
    fn without_gaps(mut self, products: usize) -> Self {
        let taps = self.classes.iter().flat_map(|class| &class.taps);
        let mut starts: Vec<_> = taps.map(|tap| (tap.phase, tap.offset)).collect();
        starts.sort_unstable();
        starts.dedup();
        let packed = starts.len() * (self.count + self.reach);
        if starts.len() > MOST_PLANES || products * self.reach <= PRODUCTS * packed {
            return self;
        }
        for tap in self.classes.iter_mut().flat_map(|class| &mut class.taps) {
            let start = (tap.phase, tap.offset);
            tap.phase = starts
                .binary_search(&start)
                .expect("the list contains the item");
            tap.offset = 0;
        }
        self.starts = starts;
        self
    }

    /// Returns the indices in `0..count` of a plane whose elements are in the image. The plane
    /// begins at index `start`. Also returns the position of index 0 in the image, which may be
    /// negative.
    #[inline(always)]
    pub fn within(&self, phase: usize, start: usize, count: usize) -> (Range<usize>, isize) {
        let step = self.step as isize;
        let origin = start as isize * step + self.phases[phase] as isize - self.before;
        let first = (-origin).max(0).unsigned_abs().div_ceil(self.step);
        let end = (self.image as isize - origin).max(0).unsigned_abs();
        let end = end.div_ceil(self.step).min(count);
        (first.min(end)..end, origin)
    }

    pub fn phases(&self) -> usize {
        self.phases.len()
    }

    fn planes(&self) -> usize {
        self.starts.len().max(self.phases.len())
    }

    /// Returns the number of elements of a phase along the axis.
    pub fn span(&self) -> usize {
        self.count + self.reach
    }
}

/// A class of rows combined with a class of columns.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The offset of each tap in the planes of a channel.
    pub offsets: Vec<usize>,
    /// The row and the column of each tap in the kernel.
    pub taps: Vec<[usize; 2]>,
    /// The number of taps of all earlier passes.
    pub taps_before: usize,
    lines: [(isize, usize); 2],
}

impl Pass {
    /// Returns the position of the result with index 0 along an axis, and the distance between
    /// neighbouring results.
    #[inline(always)]
    pub fn line(&self, axis: usize) -> (isize, usize) {
        self.lines[axis]
    }
}

/// A plan of sums of products. The factors are elements of packed planes and of the kernel.
#[derive(Clone, Debug)]
pub struct ConvPlan {
    pub images: usize,
    pub groups: usize,
    /// The number of summed channels in each group.
    pub channels: usize,
    /// The number of result channels in each group.
    pub outputs: usize,
    pub axes: [AxisPlan; 2],
    pub passes: Vec<Pass>,
    /// The number of rows of results of each class that a job computes.
    pub rows: usize,
    /// The number of jobs of an image.
    pub pieces: usize,
}

/// The scratch memory that a job needs for each of its rows.
#[derive(Clone, Copy, Debug)]
pub struct PieceScratch {
    /// The maximum number of channels that are packed at once.
    pub channels: usize,
    /// The maximum number of result channels that are computed at once.
    pub outputs: usize,
    /// The number of sums per column.
    pub sums: usize,
    pub element_bytes: usize,
}

impl ConvPlan {
    /// Returns the plan of the convolution of images.
    pub fn convolved(lengths: &ConvLengths, scratch: PieceScratch) -> Self {
        let axes = [0, 1].map(|at| AxisPlan::convolved(lengths, at));
        let channels = [lengths.channels, lengths.outputs];
        Self::of(lengths, axes, channels, scratch)
    }

    /// Returns the plan of the gradient of the images.
    pub fn transposed(lengths: &ConvLengths, scratch: PieceScratch) -> Self {
        let axes = [0, 1].map(|at| AxisPlan::transposed(lengths, at));
        let channels = [lengths.outputs, lengths.channels];
        Self::of(lengths, axes, channels, scratch)
    }

    fn of(
        lengths: &ConvLengths,
        [rows, columns]: [AxisPlan; 2],
        [channels, outputs]: [usize; 2],
        scratch: PieceScratch,
    ) -> Self {
        let taps = lengths.kernel.iter().product::<usize>();
        let products = outputs.min(scratch.outputs) * taps / rows.classes.len().max(1);
        let axes = [rows, columns.without_gaps(products)];
        let channels_packed = channels.min(scratch.channels);
        let planes = channels_packed * axes[0].planes() * axes[1].planes() + scratch.sums;
        let row_bytes = (planes * axes[1].span() * scratch.element_bytes).max(1);
        let most = (PIECE_BYTES / row_bytes).saturating_sub(axes[0].reach);
        let shared = (axes[0].count * lengths.images)
            .div_ceil(JOBS)
            .max(LEAST_ROWS);
        let rows = most.min(shared).clamp(1, axes[0].count.max(1));
        let pieces = axes[0].count.div_ceil(rows);
        let mut plan = Self {
            images: lengths.images,
            groups: lengths.groups,
            channels,
            outputs,
            passes: Vec::new(),
            rows: axes[0].count.div_ceil(pieces.max(1)),
            pieces,
            axes,
        };
        plan.passes = plan.passes();
        plan
    }

    fn passes(&self) -> Vec<Pass> {
        let [rows, columns] = &self.axes;
        let (height, pitch) = (self.plane_rows(), self.pitch());
        let mut passes: Vec<Pass> = Vec::with_capacity(rows.classes.len() * columns.classes.len());
        let mut taps_before = 0;
        for down in &rows.classes {
            for along in &columns.classes {
                let taps = || {
                    down.taps
                        .iter()
                        .flat_map(|row| along.taps.iter().map(move |column| (row, column)))
                };
                let offset = |(row, column): (&Tap, &Tap)| {
                    let plane = row.phase * columns.planes() + column.phase;
                    (plane * height + row.offset) * pitch + column.offset
                };
                passes.push(Pass {
                    offsets: taps().map(offset).collect(),
                    taps: taps().map(|(row, column)| [row.at, column.at]).collect(),
                    taps_before,
                    lines: [(down.first, down.step), (along.first, along.step)],
                });
                taps_before += down.taps.len() * along.taps.len();
            }
        }
        passes
    }

    /// Returns the length of a row of a plane.
    pub fn pitch(&self) -> usize {
        let columns = &self.axes[1];
        match columns.starts.is_empty() {
            true => columns.span(),
            false => columns.count,
        }
    }

    pub fn plane_rows(&self) -> usize {
        self.rows + self.axes[0].reach
    }

    /// Returns the number of elements of all planes of a channel.
    pub fn channel_len(&self) -> usize {
        let [rows, columns] = &self.axes;
        rows.phases() * columns.planes() * self.plane_rows() * self.pitch()
    }

    /// Returns the number of elements of a channel's column phases for one row phase. Gapless
    /// planes are copied from these phases. If the planes have gaps, returns 0.
    pub fn phases_len(&self) -> usize {
        let columns = &self.axes[1];
        match columns.starts.is_empty() {
            true => 0,
            false => columns.phases() * self.plane_rows() * columns.span(),
        }
    }

    /// Returns the number of taps of all passes.
    pub fn taps(&self) -> usize {
        self.passes.iter().map(|pass| pass.offsets.len()).sum()
    }

    /// Returns the length of the results along an axis.
    pub fn length(&self, axis: usize) -> usize {
        self.axes[axis].length
    }

    /// Returns the rows of the piece with index `number`.
    pub fn piece(&self, number: usize) -> Range<usize> {
        let start = number * self.rows;
        start..self.axes[0].count.min(start + self.rows)
    }

    /// Returns the indices in `range` whose results are within the array of results.
    #[inline(always)]
    pub fn valid(&self, pass: &Pass, axis: usize, range: Range<usize>) -> Range<usize> {
        let (first, step) = pass.line(axis);
        let start = (-first).max(0).unsigned_abs().div_ceil(step);
        let end = (self.axes[axis].length as isize - first)
            .max(0)
            .unsigned_abs();
        let start = start.max(range.start);
        start..end.div_ceil(step).min(range.end).max(start)
    }
}
