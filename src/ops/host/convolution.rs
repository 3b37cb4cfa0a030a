//! Convolutions of `f32` and `f64`, and their gradients. Threads share the loops of
//! [`convolution`](cachescope_kernels::convolution).

use std::sync::Arc;

use cachescope_kernels::convolution::correlate::{self, Correlation};
use cachescope_kernels::convolution::gather::{Gather, HEIGHT};
use cachescope_kernels::convolution::pack::PackedSource;
use cachescope_kernels::convolution::plan::{ConvPlan, PieceScratch};
use cachescope_kernels::convolution::{ConvFloat, ConvLengths, pack_line};

use super::launch::{Work, launch};
use super::memory::{Output, computed};
use super::pointers::{elements_of, written_by};
use crate::array::{AnyArray, AnyElement, Array, DType, Shape};
use crate::context::{Device, Timed};
use crate::error::Result;
use crate::ops::order::{HostOrder, TouchedMemory, check_untracked};

/// The maximum size, in bytes, of the partial gradients of a kernel. Several threads compute these
/// gradients.
const SUMS_BYTES: usize = 1 << 20;
/// The minimum number of jobs of a launch, enough to balance the load among threads.
const JOBS: usize = 16;

/// Returns the convolution of `input`, of shape `[images, channels, h, w]`, with `kernel`.
#[track_caller]
pub(in crate::ops) fn convolved(
    input: &AnyArray,
    kernel: &AnyArray,
    lengths: &ConvLengths,
) -> Result<AnyArray> {
    let plan = |scratch| ConvPlan::convolved(lengths, scratch);
    gathered_any([input, kernel], [0, 1], &plan)
}

/// Returns the gradient of the images of a convolution, from the gradient of its result.
#[track_caller]
pub(in crate::ops) fn convolved_transposed(
    gradient: &AnyArray,
    kernel: &AnyArray,
    lengths: &ConvLengths,
) -> Result<AnyArray> {
    let plan = |scratch| ConvPlan::transposed(lengths, scratch);
    gathered_any([gradient, kernel], [1, 0], &plan)
}

#[track_caller]
fn gathered_any(
    operands: [&AnyArray; 2],
    axes: [usize; 2],
    plan: &dyn Fn(PieceScratch) -> ConvPlan,
) -> Result<AnyArray> {
    match operands[0].dtype {
        DType::F32 => gathered(typed::<f32>(operands), axes, plan(Gather::<f32>::SCRATCH)),
        DType::F64 => gathered(typed::<f64>(operands), axes, plan(Gather::<f64>::SCRATCH)),
        other => unreachable!("convolutions of {other} are computed by products"),
    }
}

/// Returns partial gradients of the kernel of a convolution, along the first axis. Each partial
/// gradient is computed from some of the images. The sum of the partial gradients is the whole
/// gradient.
#[track_caller]
pub(in crate::ops) fn correlated(
    input: &AnyArray,
    gradient: &AnyArray,
    lengths: &ConvLengths,
) -> Result<AnyArray> {
    let operands = [input, gradient];
    let plan = |scratch| ConvPlan::convolved(lengths, scratch);
    match input.dtype {
        DType::F32 => correlated_by(typed::<f32>(operands), plan(Correlation::<f32>::SCRATCH)),
        DType::F64 => correlated_by(typed::<f64>(operands), plan(Correlation::<f64>::SCRATCH)),
        other => unreachable!("convolutions of {other} are computed by products"),
    }
}

fn typed<T: AnyElement>(arrays: [&AnyArray; 2]) -> [Array<T>; 2] {
    arrays.map(|array| array.share().into_array())
}

/// Checks that no operand is tracked, and returns the order of work on the operands.
#[track_caller]
fn ordered<'a>(device: &'a Device, operands: &dyn TouchedMemory) -> Result<HostOrder<'a>> {
    check_untracked(operands)?;
    HostOrder::new(device, operands)
}

/// Returns the result of `plan`. `axes` are two axes of the kernel: the channels of the result, and
/// the channels of the source.
#[track_caller]
fn gathered<T: ConvFloat>(
    [source, kernel]: [Array<T>; 2],
    axes: [usize; 2],
    plan: ConvPlan,
) -> Result<AnyArray> {
    let (source, kernel) = (&source, &kernel);
    let device = source.device();
    let _timed = Timed::begin(device);
    let order = ordered(device, &[source.buffer(), kernel.buffer()])?;
    let plan = Arc::new(plan);
    let outputs = plan.groups * plan.outputs;
    let shape: Shape = [plan.images, outputs, plan.length(0), plan.length(1)].into();
    let weights = packed_kernel(order, kernel, axes, &plan)?;
    let products = plan.channels * plan.taps() * plan.rows * plan.axes[1].count;
    let work = Work::of_bytes(
        plan.images * plan.pieces,
        (outputs * products / 8).max(size_of::<T>()),
    );
    let task = Gather {
        source: packed_source(source),
        weights: elements_of(&weights),
        plan,
    };
    let write = |output: Output<T>| {
        let to = written_by(&output);
        launch(order, work, (&task, &to), |task, &to, jobs| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes to the operands.
            unsafe { T::gather(task, to, jobs) };
        });
    };
    // SAFETY: the jobs cover all pieces of all images. Each job writes all channels of its piece.
    // The passes together compute all results.
    unsafe { computed(order.device, &shape, write) }.map(Array::into_erased)
}

/// Returns the elements of the kernel in the order in which [`ConvFloat::gather`] reads them. They
/// are ordered by group, block of [`HEIGHT`] channels of the result, pass, channel of the source,
/// and tap. For each tap, there is one element for each channel of the block. The elements of
/// missing channels are zero.
#[track_caller]
fn packed_kernel<T: ConvFloat>(
    order: HostOrder<'_>,
    kernel: &Array<T>,
    [result, source]: [usize; 2],
    plan: &Arc<ConvPlan>,
) -> Result<Array<T>> {
    let blocks = plan.outputs.div_ceil(HEIGHT);
    let block_len = plan.channels * plan.taps() * HEIGHT;
    let kernel = packed_source(kernel);
    let taps = plan.passes.iter().map(|pass| {
        let offset = |&[row, column]: &[usize; 2]| {
            row as isize * kernel.stride(2) + column as isize * kernel.stride(3)
        };
        pass.taps.iter().map(offset).collect()
    });
    let taps: Arc<[Vec<isize>]> = taps.collect();
    let (channels, outputs) = (plan.channels, plan.outputs);
    let steps = [kernel.stride(result), kernel.stride(source)];
    // The outer axis of the kernel counts the channels of all groups.
    let of_group = if result == 0 { outputs } else { channels };
    let write = |output: Output<T>| {
        let work = Work::of_bytes(plan.groups * blocks, 2 * block_len * size_of::<T>());
        launch(
            order,
            work,
            (&(kernel, taps), &output),
            move |(kernel, taps), output, jobs| {
                for job in jobs {
                    let (group, first) = (job / blocks, job % blocks * HEIGHT);
                    let height = HEIGHT.min(outputs - first);
                    let from = kernel.at([group * of_group, 0, 0, 0]);
                    let from = from.wrapping_offset(first as isize * steps[0]);
                    // SAFETY: the part is the block of this job. No other job writes this block.
                    let out = unsafe { output.part(job * block_len..(job + 1) * block_len) };
                    let mut lines = out.as_chunks_mut::<HEIGHT>().0.iter_mut();
                    for taps in &**taps {
                        for channel in 0..channels {
                            let from = from.wrapping_offset(channel as isize * steps[1]);
                            for (&tap, line) in taps.iter().zip(&mut lines) {
                                // SAFETY: the kernel has an element for each channel of the block.
                                // The kernel is alive and not written to.
                                unsafe {
                                    pack_line(from.wrapping_offset(tap), steps[0], height, line);
                                };
                            }
                        }
                    }
                }
            },
        );
    };
    let shape: Shape = [plan.groups * blocks, block_len].into();
    // SAFETY: the jobs cover all blocks, and each job writes its whole block.
    unsafe { computed(order.device, &shape, write) }
}

#[track_caller]
fn correlated_by<T: ConvFloat>(
    [images, gradient]: [Array<T>; 2],
    plan: ConvPlan,
) -> Result<AnyArray> {
    let (images, gradient) = (&images, &gradient);
    let device = images.device();
    let _timed = Timed::begin(device);
    let order = ordered(device, &[images.buffer(), gradient.buffer()])?;
    let plan = Arc::new(plan);
    let outputs = plan.groups * plan.outputs;
    let kernel_len = outputs * plan.channels * plan.taps();
    let pieces = plan.images * plan.pieces;
    let wanted = JOBS.div_ceil(plan.groups * Correlation::<T>::blocks(&plan));
    let most = (SUMS_BYTES / (kernel_len * size_of::<T>())).clamp(1, wanted);
    let results = plan.rows * plan.axes[1].count;
    let least = correlate::RESULTS.div_ceil(results).min(pieces);
    let pieces_each = pieces.div_ceil(most).max(least);
    let sums = pieces.div_ceil(pieces_each);
    let shape: Shape = [sums, outputs, plan.channels, plan.taps()].into();
    let each = plan.outputs.min(correlate::OUTPUTS) * plan.channels * plan.taps();
    let task = Correlation {
        images: packed_source(images),
        gradient: packed_source(gradient),
        pieces_each,
        sums,
        plan,
    };
    let work = Work::of_bytes(
        task.jobs(),
        (each * results * pieces_each / 8).max(size_of::<T>()),
    );
    let write = |output: Output<T>| {
        let to = written_by(&output);
        launch(order, work, (&task, &to), |task, &to, jobs| {
            // SAFETY: the memory is alive during a launch, and the ranges of a launch do not
            // overlap. The stream is ordered after the writes to the operands.
            unsafe { T::correlate(task, to, jobs) };
        });
    };
    // SAFETY: the jobs cover all sums of all channels, and each job writes its own sums.
    unsafe { computed(order.device, &shape, write) }.map(Array::into_erased)
}

/// Returns the elements of an array of four axes.
fn packed_source<T: AnyElement>(array: &Array<T>) -> PackedSource<T> {
    let layout = array.layout();
    let strides = layout
        .strides()
        .try_into()
        .expect("the array has four axes");
    PackedSource::new(elements_of(array).at(layout.offset()), strides)
}
