//! The gradients of a convolution.

use ndarray::{SliceInfoElem, s};

use super::geometry::Geometry;
use super::{padded, ranges, zeros};
use crate::array::{AnyElement, Array, Float, Shape};
use crate::error::Result;
use crate::ops::derivatives::AnyArray;

/// Returns the gradients of the input and of the kernel, if they are `wanted`, from the result's
/// gradient.
#[track_caller]
pub(super) fn of_operands<T: Float>(
    [input, kernel]: [&Array<T>; 2],
    gradient: &Array<T>,
    geometry: &Geometry,
    wanted: [bool; 2],
) -> Result<[Option<AnyArray>; 2]> {
    let gradient = &gradient.reshape(geometry.result)?;
    let of_input = match wanted[0] {
        true => Some(of_input(kernel, gradient, geometry)?),
        false => None,
    };
    let of_kernel = match wanted[1] {
        true => Some(of_kernel(input, gradient, geometry)?),
        false => None,
    };
    Ok([of_input, of_kernel].map(|own| own.as_ref().map(AnyArray::of)))
}

/// Returns the gradient of the kernel: the result's gradient times the columns that the kernel was
/// multiplied with, block by block.
#[track_caller]
fn of_kernel<T: Float>(
    input: &Array<T>,
    gradient: &Array<T>,
    geometry: &Geometry,
) -> Result<Array<T>> {
    let factor = geometry.factor();
    let [groups, outputs] = [factor.dims()[0], factor.dims()[1]];
    let block = geometry.block(size_of::<T>(), input.device().backend().cuda().is_some());
    let mut sum: Option<Array<T::Accumulator>> = None;
    for images in ranges(geometry.images(), block.images) {
        let padded = padded(&input.slice(s![images.clone(), .., .., ..])?, geometry)?;
        for rows in ranges(geometry.rows(), block.rows) {
            let covered = padded.viewed(geometry.covered(padded.layout(), rows.clone())?);
            let columns = geometry.columns(images.len(), rows.len());
            let own = gradient.slice(s![images.clone(), .., rows, ..])?;
            let own = own.permute(&[1, 0, 2, 3])?;
            let own = own.reshape([groups, outputs, columns.dims()[2]])?;
            let product = own.matmul(&covered.reshape(columns)?.swap_axes(1, 2)?)?;
            let product = converted(product)?;
            match &mut sum {
                Some(sum) => sum.assign(&*sum + &product)?,
                None => sum = Some(product),
            }
        }
    }
    let shape = geometry.kernel();
    match sum {
        Some(sum) => converted(sum.reshape(shape)?),
        None => zeros(input.device(), &shape),
    }
}

/// Returns the elements in another type, if it is another: half precision is not enough for sums of
/// many blocks.
#[track_caller]
fn converted<T: AnyElement, U: AnyElement>(array: Array<T>) -> Result<Array<U>> {
    match T::DTYPE == U::DTYPE {
        true => Ok(array.downcast()),
        false => array.cast::<U>().eval(),
    }
}

/// Returns the gradient of the input: the convolution of the result's gradient, spread by the
/// stride, with the kernel flipped and its inputs and outputs exchanged.
#[track_caller]
fn of_input<T: Float>(
    kernel: &Array<T>,
    gradient: &Array<T>,
    geometry: &Geometry,
) -> Result<Array<T>> {
    let factor = geometry.factor();
    let [groups, outputs] = [factor.dims()[0], factor.dims()[1]];
    let [_, inputs, height, width] = geometry
        .kernel()
        .dims()
        .try_into()
        .expect("it has four axes");
    let turned = kernel.reshape([groups, outputs, inputs, height, width])?;
    let turned = turned.flip(3)?.flip(4)?.swap_axes(1, 2)?;
    let turned = turned.reshape([groups * inputs, outputs, height, width])?;
    let own: Shape = geometry.input();
    if own.checked_len()? == 0 {
        return zeros(gradient.device(), &own);
    }
    let spread = geometry.spread();
    let [images, channels] = [gradient.shape()[0], gradient.shape()[1]];
    let shape: Shape = [images, channels, spread[0].length, spread[1].length].into();
    let mut wide = zeros(gradient.device(), &shape)?;
    if spread.iter().all(|own| !own.taken.is_empty()) {
        let [rows, columns] = &spread;
        let taken = gradient.slice(s![.., .., rows.taken.clone(), columns.taken.clone()])?;
        let to = |at: usize| SliceInfoElem::Slice {
            start: spread[at].first as isize,
            end: Some(
                (spread[at].first + (spread[at].taken.len() - 1) * spread[at].step + 1) as isize,
            ),
            step: spread[at].step as isize,
        };
        let whole = SliceInfoElem::from(..);
        wide.slice_mut([whole, whole, to(0), to(1)])?
            .assign(&taken)?;
    }
    wide.conv2d(&turned, geometry.turned())
}
