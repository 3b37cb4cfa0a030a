//! The gradients of a convolution.

use ndarray::{SliceInfoElem, s};
use smallvec::SmallVec;

use super::geometry::Geometry;
use super::{geometry_of, multiplied, padded, ranges};
use crate::array::{AnyArray, Shape};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, SavedArray, zeros_on};
use crate::ops::host;

/// One of the three arrays of a convolution. Each array, or its gradient, is computed as sums of
/// products of the two other arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConvPart {
    Input,
    Kernel,
    Result,
}

impl ConvPart {
    /// Returns the two parts that this part is computed from.
    fn operands(self) -> [Self; 2] {
        match self {
            Self::Input => [Self::Result, Self::Kernel],
            Self::Kernel => [Self::Input, Self::Result],
            Self::Result => [Self::Input, Self::Kernel],
        }
    }
}

/// Returns the rule of a part that was computed from its operands and a bias. The gradient of an
/// operand is computed from the gradient of the part and the other operand.
fn rule(
    part: ConvPart,
    operands: [SavedArray; 2],
    geometry: Geometry,
    wanted: [bool; 3],
) -> impl FnOnce(AnyArray) -> Result<Vec<Option<AnyArray>>> + Clone {
    move |gradient| {
        let [left, right] = operands;
        let operands = [left.fetch()?, right.fetch()?];
        let of = |at: usize| -> Result<Option<AnyArray>> {
            if !wanted[at] {
                return Ok(None);
            }
            let own = part.operands()[at];
            let known = own.operands().map(|operand| match operand == part {
                true => &gradient,
                false => &operands[1 - at],
            });
            sums_for(own, known, None, &geometry).map(Some)
        };
        // The gradient of the bias is summed over the axes that the bias lacks.
        let of_bias = wanted[2].then(|| gradient.share());
        Ok(vec![of(0)?, of(1)?, of_bias])
    }
}

/// Returns `part` of a convolution, or its gradient: sums of products of the two other parts. A
/// bias of shape `[O, 1, 1]` is added to sums of narrow floats. The bias has one element for each
/// channel of the sums.
#[track_caller]
pub(super) fn sums_for(
    part: ConvPart,
    operands: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let own = *geometry;
    let all: SmallVec<[&AnyArray; 3]> = operands.into_iter().chain(bias).collect();
    let step = RuledOperation::begin("conv2d", &all)?
        .computed_by(geometry.flops(), move |operands| {
            computed(part, [&operands[0], &operands[1]], operands.get(2), &own)
        });
    let wanted = [0, 1, 2].map(|operand| operand < all.len() && step.wants(operand));
    let result = computed(part, operands, bias, geometry)?;
    Ok(step.finish(result, |saved| {
        let operands = operands.map(|operand| saved.save_releasable(operand));
        rule(part, operands, *geometry, wanted)
    }))
}

#[track_caller]
fn computed(
    part: ConvPart,
    operands: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    match part {
        ConvPart::Input => of_input(operands, bias, geometry),
        ConvPart::Kernel => of_kernel(operands, geometry),
        ConvPart::Result => multiplied(operands, bias, geometry),
    }
}

#[track_caller]
fn of_kernel([input, gradient]: [&AnyArray; 2], geometry: &Geometry) -> Result<AnyArray> {
    let Some(lengths) = &geometry.on_host(input.dtype, input.device()) else {
        return of_kernel_by_products(input, gradient, geometry);
    };
    let sums = host::correlated(input, gradient, lengths)?;
    match sums.dims()[0] {
        1 => sums.reshape(&geometry.kernel()),
        _ => sums.lazy().sum_axis(0)?.reshape(&geometry.kernel()),
    }
}

#[track_caller]
fn of_input(
    [gradient, kernel]: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let Some(lengths) = &geometry.on_host(gradient.dtype, gradient.device()) else {
        return of_input_by_products([gradient, kernel], bias, geometry);
    };
    host::convolved_transposed(gradient, kernel, lengths)
}

/// Returns the gradient of the kernel. This gradient is the result's gradient times the columns
/// that the kernel was multiplied with, block by block.
#[track_caller]
fn of_kernel_by_products(
    input: &AnyArray,
    gradient: &AnyArray,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let (device, dtype) = (input.device(), input.dtype);
    let factor = geometry.factor();
    let [groups, outputs] = [factor.dims()[0], factor.dims()[1]];
    let block = geometry.block(dtype.size_bytes(), device.backend().cuda().is_some());
    let mut sum: Option<AnyArray> = None;
    for images in ranges(geometry.images(), block.images) {
        let some = input.slice(s![images.clone(), .., .., ..].as_ref())?;
        let padded = padded(&some, geometry)?;
        for rows in ranges(geometry.rows(), block.rows) {
            let covered = padded.viewed(geometry.covered(&padded.layout, rows.clone())?);
            let columns = geometry.columns(images.len(), rows.len());
            let own = gradient.slice(s![images.clone(), .., rows, ..].as_ref())?;
            let own = own.permute(&[1, 0, 2, 3])?;
            let own = own.reshape(&[groups, outputs, columns.dims()[2]].into())?;
            let columns = covered.reshape(&columns)?.swap_axes(1, 2)?;
            sum = Some(added(sum, &own, &columns)?);
        }
    }
    let shape = geometry.kernel();
    match sum {
        Some(sum) => sum.reshape(&shape)?.converted(dtype),
        None => input.zeros(&shape),
    }
}

/// Returns `sum` plus the product of two factors. The sum of products is in the accumulation type,
/// so that products of narrow floats are not rounded before they are added.
#[track_caller]
fn added(sum: Option<AnyArray>, left: &AnyArray, right: &AnyArray) -> Result<AnyArray> {
    let wide = left.dtype.computed_in();
    match sum {
        Some(sum) if wide != left.dtype => left.matmul_plus(right, &sum),
        Some(mut sum) => {
            sum.assign(&(sum.lazy() + left.matmul(right)?.lazy()))?;
            Ok(sum)
        }
        None if wide != left.dtype => {
            let zero = zeros_on(left.device(), &Shape::SCALAR, wide)?;
            left.matmul_plus(right, &zero)
        }
        None => left.matmul(right),
    }
}

/// Returns the gradient of the input. This gradient is a convolution of the spread gradient of the
/// result with the flipped kernel. The kernel's inputs and outputs are exchanged.
#[track_caller]
fn of_input_by_products(
    [gradient, kernel]: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let factor = geometry.factor();
    let [groups, outputs] = [factor.dims()[0], factor.dims()[1]];
    let [_, inputs, height, width] = geometry
        .kernel()
        .dims()
        .try_into()
        .expect("the kernel has four axes");
    let turned = kernel.reshape(&[groups, outputs, inputs, height, width].into())?;
    let turned = turned.flip(3)?.flip(4)?.swap_axes(1, 2)?;
    let turned = turned.reshape(&[groups * inputs, outputs, height, width].into())?;
    let own: Shape = geometry.input();
    if own.checked_len()? == 0 {
        return gradient.zeros(&own);
    }
    if geometry.is_pointwise() {
        return of_turned([gradient, &turned], bias, geometry);
    }
    let spread = geometry.spread();
    let [images, channels] = [gradient.dims()[0], gradient.dims()[1]];
    let shape: Shape = [images, channels, spread[0].length, spread[1].length].into();
    let mut wide = gradient.zeros(&shape)?;
    if spread.iter().all(|own| !own.taken.is_empty()) {
        let [rows, columns] = &spread;
        let taken = s![.., .., rows.taken.clone(), columns.taken.clone()];
        let taken = gradient.slice(taken.as_ref())?;
        let to = |at: usize| SliceInfoElem::Slice {
            start: spread[at].first as isize,
            end: Some(
                (spread[at].first + (spread[at].taken.len() - 1) * spread[at].step + 1) as isize,
            ),
            step: spread[at].step as isize,
        };
        let whole = SliceInfoElem::from(..);
        let mut place = wide.slice_mut(&[whole, whole, to(0), to(1)])?;
        place.assign(&taken.lazy())?;
    }
    of_turned([&wide, &turned], bias, geometry)
}

#[track_caller]
fn of_turned(
    operands: [&AnyArray; 2],
    bias: Option<&AnyArray>,
    geometry: &Geometry,
) -> Result<AnyArray> {
    let turned = geometry_of(operands[0], operands[1], geometry.turned())?;
    sums_for(ConvPart::Result, operands, bias, &turned)
}
