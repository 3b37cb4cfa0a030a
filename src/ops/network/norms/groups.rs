//! The normalization of groups of channels (Wu and He, ["Group
//! Normalization"](https://arxiv.org/abs/1803.08494), 2018).

use super::scale::{centre_and_scale, is_square_in_range};
use super::{FLOPS_AN_ELEMENT, check_epsilon, widened};
use crate::array::{AnyArray, Shape};
use crate::error::Result;
use crate::ops::derivatives::{RuledOperation, is_any_tracked, work_of};
use crate::ops::dispatch::same_device;
use crate::ops::expression::any_lazy::AnyLazy;

/// Returns `x`, of shape `[count, channels, ..]`, normalized over groups of channels. Each index of
/// the first axis is normalized separately. The normalized elements are multiplied by the weight,
/// and the bias is added. Weight and bias have an element for each channel. The operands are `[x,
/// weight, bias]`. `groups` must divide the number of channels.
#[track_caller]
pub(crate) fn group_norm(
    operands: [&AnyArray; 3],
    (groups, epsilon): (usize, f64),
) -> Result<AnyArray> {
    check_epsilon("GroupNorm", epsilon)?;
    let [x, weight, bias] = operands;
    same_device("GroupNorm", ("x", x), ("weight", weight))?;
    same_device("GroupNorm", ("x", x), ("bias", bias))?;
    let flops = work_of(&[FLOPS_AN_ELEMENT, x.len()]);
    let step =
        RuledOperation::begin("group_norm", &operands)?.computed_by(flops, move |operands| {
            let [x, weight, bias] = [0, 1, 2].map(|at: usize| &operands[at]);
            Ok(normalized([x, weight, bias], groups, epsilon)?.0)
        });
    let (result, mean, scale) = normalized(operands, groups, epsilon)?;
    Ok(step.finish(result, |saved| {
        let x = saved.save_releasable(x);
        let saved = SavedGroups {
            weight: saved.save(weight),
            mean: saved.save_recomputed(&mean),
            scale: saved.save_recomputed(&scale),
            groups,
            epsilon,
        };
        move |gradient: AnyArray| saved.back(&x.fetch()?, &gradient)
    }))
}

/// Returns the group norm of `[x, weight, bias]`. Also returns the mean and the factor of each
/// group, of shape `[count, groups, 1, 1]`.
#[track_caller]
fn normalized(
    [x, weight, bias]: [&AnyArray; 3],
    groups: usize,
    epsilon: f64,
) -> Result<(AnyArray, AnyArray, AnyArray)> {
    let split = split(x, groups);
    let (mean, scale) = statistics(x, split, epsilon)?;
    let [_, _, each, _] = split;
    let own: Shape = [groups, each, 1].into();
    let factor = (scale.lazy() * widened(&weight.reshape(&own)?)).eval()?;
    let centred = widened(&x.reshape(&split.into())?) - mean.lazy();
    let normal = centred.mul_add(factor.lazy(), widened(&bias.reshape(&own)?));
    let result = normal.cast(x.dtype).eval()?;
    Ok((result.reshape(x.shape())?, mean, scale))
}

/// Returns the shape `[count, groups, channels of a group, positions]` that splits the channels of
/// `x`.
fn split(x: &AnyArray, groups: usize) -> [usize; 4] {
    let (count, channels) = (x.dims()[0], x.dims()[1]);
    let places = x.dims()[2..].iter().product();
    [count, groups, channels / groups, places]
}

/// Returns the mean of each group, and the factor of the group's elements.
#[track_caller]
fn statistics(
    x: &AnyArray,
    [count, groups, each, places]: [usize; 4],
    epsilon: f64,
) -> Result<(AnyArray, AnyArray)> {
    let rows = x.reshape(&[count * groups, each * places].into())?;
    let (mean, scale) = centre_and_scale(&widened(&rows), epsilon)?;
    let own = [count, groups, 1, 1].into();
    Ok((mean.reshape(&own)?, scale.reshape(&own)?))
}

/// The values that the gradients of a group norm are computed from.
#[derive(Clone)]
struct SavedGroups {
    weight: AnyArray,
    mean: AnyArray,
    scale: AnyArray,
    groups: usize,
    epsilon: f64,
}

impl SavedGroups {
    /// Returns the gradients of `x`, the weight and the bias. Let n be the normalized elements, and
    /// a the gradient times the weight. With means over a group, the gradient of `x` is scale (a −
    /// mean(a) − n mean(a n)). The means are computed from sums over the positions of a channel.
    /// The gradients of the weight and of the bias are computed from these sums, too.
    #[track_caller]
    fn back(&self, x: &AnyArray, gradient: &AnyArray) -> Result<Vec<AnyArray>> {
        let split = split(x, self.groups);
        let [_, groups, each, places] = split;
        let (mean, scale) = match is_any_tracked(&[x])? {
            true => statistics(x, split, self.epsilon)?,
            false => (self.mean.share(), self.scale.share()),
        };
        let weight = widened(&self.weight.reshape(&[groups, each, 1].into())?);
        let gradient = widened(&gradient.reshape(&split.into())?);
        let centred = widened(&x.reshape(&split.into())?) - mean.lazy();
        // If the squares of the scales are in range, the sums are multiplied by the scales.
        // Otherwise, the elements are multiplied by the scales.
        let (centred, own) = match is_square_in_range(&scale)? {
            true => (centred, scale.lazy()),
            false => (centred * scale.lazy(), AnyLazy::number(scale.dtype, 1.0)),
        };
        let sums = gradient.sum_keepdims(-1)?;
        let products = (gradient.clone() * centred.clone()).sum_keepdims(-1)?;
        let products = (products.lazy() * own.clone()).eval()?;
        let share = -1.0 / (each * places) as f64;
        let mean_of = |sums: &AnyArray| -> Result<AnyArray> {
            let sum = (sums.lazy() * weight.clone()).sum_keepdims(2)?;
            (sum.lazy() * scale.lazy() * share).eval()
        };
        let shift = mean_of(&sums)?;
        let along = (mean_of(&products)?.lazy() * own).eval()?;
        let factor = (weight.clone() * scale.lazy()).eval()?;
        let rest = centred.mul_add(along.lazy(), shift.lazy());
        let of_x = gradient.mul_add(factor.lazy(), rest).cast(x.dtype).eval()?;
        // The sums are rounded when the gradients are taken, if the weight was not converted.
        let of_channels = |sums: &AnyArray| -> Result<AnyArray> {
            sums.lazy().sum_axis(0)?.reshape(&(groups * each).into())
        };
        let of_x = of_x.reshape(x.shape())?;
        Ok(vec![of_x, of_channels(&products)?, of_channels(&sums)?])
    }
}
