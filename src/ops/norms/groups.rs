//! The normalization of groups of channels (Wu and He, ["Group
//! Normalization"](https://arxiv.org/abs/1803.08494), 2018).

use super::{FLOPS_AN_ELEMENT, centre_and_scale, check_epsilon, narrowed, widened};
use crate::array::{Array, Float};
use crate::error::Result;
use crate::ops::derivatives::{AnyArray, RuledOperation, is_tracked, work_of};
use crate::ops::dispatch::same_device;
use crate::ops::precompiled::precompiled;

/// Returns `x`, of shape `[count, channels, ..]`, with each group of channels of each index
/// normalized, times `weight` plus `bias`, of which both have an element for each channel. The
/// number of `groups` must divide the channels.
#[track_caller]
pub(crate) fn group_norm<T: Float>(
    x: &Array<T>,
    [weight, bias]: [&Array<T>; 2],
    (groups, epsilon): (usize, f64),
) -> Result<Array<T>> {
    check_epsilon("GroupNorm", epsilon)?;
    precompiled!(normalize::<T>([x], [weight], [bias]; groups: usize, epsilon: f64))
}

#[track_caller]
fn normalize<T: Float>(
    x: &Array<T>,
    weight: &Array<T>,
    bias: &Array<T>,
    groups: usize,
    epsilon: f64,
) -> Result<Array<T>> {
    same_device("GroupNorm", ("x", x), ("weight", weight))?;
    same_device("GroupNorm", ("x", x), ("bias", bias))?;
    normalize_in::<T, T::Computed>([x, weight, bias], groups, epsilon)
}

/// Returns the group norm, computed in `A`.
#[track_caller]
fn normalize_in<T: Float, A: Float>(
    operands: [&Array<T>; 3],
    groups: usize,
    epsilon: f64,
) -> Result<Array<T>> {
    let [x, weight, _] = operands;
    let flops = work_of(&[FLOPS_AN_ELEMENT, x.len()]);
    let step = RuledOperation::begin("group_norm", &operands)?
        .computed_from(flops, move |operands| {
            Ok(normalized::<T, A>(operands, groups, epsilon)?.0)
        });
    let (result, mean, scale) = normalized::<T, A>(operands, groups, epsilon)?;
    Ok(step.finish(result, |saved| {
        let x = saved.save_releasable(x);
        let saved = SavedGroups {
            weight: saved.save(weight),
            mean: saved.save_recomputed(&mean),
            scale: saved.save_recomputed(&scale),
            groups,
            epsilon,
        };
        move |gradient: AnyArray| saved.back(&x.fetch()?.into_array(), &gradient.into_array())
    }))
}

/// Returns the group norm of `[x, weight, bias]`, and the mean and factor of each group, of shape
/// `[count, groups, 1, 1]`.
#[track_caller]
fn normalized<T: Float, A: Float>(
    [x, weight, bias]: [&Array<T>; 3],
    groups: usize,
    epsilon: f64,
) -> Result<(Array<T>, Array<A>, Array<A>)> {
    let split = split(x, groups);
    let (mean, scale) = statistics::<T, A>(x, split, epsilon)?;
    let [_, _, each, _] = split;
    let own = [groups, each, 1];
    let factor = (&scale * widened::<T, A>(&weight.reshape(own)?)).eval_unfused()?;
    let centred = widened::<T, A>(&x.reshape(split)?) - &mean;
    let normal = centred.mul_add(factor, widened::<T, A>(&bias.reshape(own)?));
    let result = narrowed::<T, A>(&normal.boxed())?;
    Ok((result.reshape(*x.layout().shape())?, mean, scale))
}

/// Returns the shape `[count, groups, channels of a group, places]` of `x`.
fn split<T: Float>(x: &Array<T>, groups: usize) -> [usize; 4] {
    let (count, channels) = (x.shape()[0], x.shape()[1]);
    let places = x.shape()[2..].iter().product();
    [count, groups, channels / groups, places]
}

/// Returns the mean of each group, and the factor that its elements are multiplied with.
#[track_caller]
fn statistics<T: Float, A: Float>(
    x: &Array<T>,
    [count, groups, each, places]: [usize; 4],
    epsilon: f64,
) -> Result<(Array<A>, Array<A>)> {
    let rows = x.reshape([count * groups, each * places])?;
    let (mean, scale) = centre_and_scale(&widened::<T, A>(&rows), epsilon)?;
    let own = [count, groups, 1, 1];
    Ok((mean.reshape(own)?, scale.reshape(own)?))
}

/// The values that the gradients of a group norm are computed from.
#[derive(Clone)]
struct SavedGroups<T: Float, A: Float> {
    weight: Array<T>,
    mean: Array<A>,
    scale: Array<A>,
    groups: usize,
    epsilon: f64,
}

impl<T: Float, A: Float> SavedGroups<T, A> {
    /// Returns the gradients of `x`, the weight and the bias. With n the normalized elements, a the
    /// gradient times the weight, and means over a group, the gradient of `x` is scale (a − mean(a)
    /// − n mean(a n)). The means are computed from sums over the places of a channel, of which the
    /// gradients of the weight and of the bias are computed too.
    #[track_caller]
    fn back(&self, x: &Array<T>, gradient: &Array<T>) -> Result<Vec<AnyArray>> {
        let split = split(x, self.groups);
        let [_, groups, each, places] = split;
        let (mean, scale) = match is_tracked(x)? {
            true => statistics::<T, A>(x, split, self.epsilon)?,
            false => (self.mean.clone(), self.scale.clone()),
        };
        let weight = widened::<T, A>(&self.weight.reshape([groups, each, 1])?);
        let gradient = widened::<T, A>(&gradient.reshape(split)?);
        let centred = (widened::<T, A>(&x.reshape(split)?) - &mean).boxed();
        let sums = gradient.sum_keepdims(-1)?.downcast::<A>();
        let products = (&gradient * &centred).sum_keepdims(-1)?.downcast::<A>();
        let products = (products * &scale).eval_unfused()?;
        let share = A::from_f64(-1.0 / (each * places) as f64);
        let mean_of = |sums: &Array<A>| -> Result<Array<A>> {
            let sum = (sums * &weight).sum_keepdims(2)?.downcast::<A>();
            (sum * &scale * share).eval_unfused()
        };
        let shift = mean_of(&sums)?;
        let along = (mean_of(&products)? * &scale).eval_unfused()?;
        let factor = (weight * &scale).eval_unfused()?;
        let rest = centred.mul_add(along, shift);
        let of_x = narrowed::<T, A>(&gradient.mul_add(factor, rest).boxed())?;
        let of_channels = |sums: &Array<A>| -> Result<AnyArray> {
            let sum = sums.sum_axis(0)?.downcast::<A>().reshape(groups * each)?;
            Ok(AnyArray::of(&narrowed::<T, A>(&sum.lazy().boxed())?))
        };
        let of_x = of_x.reshape(*x.layout().shape())?;
        let [of_weight, of_bias] = [of_channels(&products)?, of_channels(&sums)?];
        Ok(vec![AnyArray::of(&of_x), of_weight, of_bias])
    }
}
