//! Spreads, such as the standard deviation, of elements whose squares are beyond the range of their
//! type. These elements are scaled by a power of two, and reduced again. Other elements are reduced
//! once.

use std::ops::Range;

use super::ReductionPlan;
use crate::array::{AnyArray, Array, AxisSet, Buffer, DType, Elements, Float, Shape};
use crate::error::Result;
use crate::ops::derivatives::{Pause, evaluate};
use crate::ops::dispatch::{MEAN, Reduction, STD, device_for, reduce};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::graph::ExpressionGraph;
use cachescope_kernels::reduce::{Max, Min};

/// Returns the exponents of the powers of two by which elements are scaled down and up. After the
/// scaling, all distances of elements have squares in the range of the type.
const fn exponents(dtype: DType) -> [i32; 2] {
    match dtype {
        DType::F64 => [-515, 600],
        _ => [-65, 80],
    }
}

/// The standard deviation below which the squares of `f64` lose digits.
const LEAST_DEVIATION: f64 = f64::from_bits((1023 - 480) << 52);

/// The upper bound of the absolute mean of elements that are scaled up.
const MOST_MEAN: f64 = (1_u64 << 40) as f64;

impl AnyArray {
    /// Returns whether an element is NaN or not in `range`. The elements must be contiguous.
    /// Returns false if the host cannot read the elements: on a CUDA device, or in a dry run.
    #[track_caller]
    pub(in crate::ops) fn leaves_range(&self, range: Range<f64>) -> Result<bool> {
        let backend = self.device().backend();
        if backend.cuda().is_some() || backend.is_meta() {
            return Ok(false);
        }
        match self.dtype {
            DType::F64 => any_outside::<f64>(self, range),
            _ => any_outside::<f32>(self, range),
        }
    }

    /// Returns the power of two by which the elements of each spread are scaled. If the spread and
    /// the mean are finite and the spread is at least `least`, the power is 1. If the mean of the
    /// elements may be larger than their spread, the caller passes it as `mean`.
    #[track_caller]
    pub(in crate::ops) fn range_scales(&self, least: f64, mean: Option<&Self>) -> Result<Self> {
        let number = |value: f64| AnyLazy::number(self.dtype, value);
        let [down, up] = exponents(self.dtype).map(|exponent| number(2.0_f64.powi(exponent)));
        let mut is_small = self.lazy().lt(number(least));
        // A spread may be NaN because it is the difference of infinite squares.
        let mut is_finite = self.lazy().lt(number(f64::INFINITY));
        if let Some(mean) = mean {
            is_small = is_small.and(mean.lazy().abs().lt(number(MOST_MEAN)));
            is_finite = is_finite.and(mean.lazy().abs().lt(number(f64::INFINITY)));
        }
        let small = AnyLazy::select(is_small, up, number(1.0));
        AnyLazy::select(is_finite, small, down).eval()
    }
}

#[track_caller]
fn any_outside<T: Float>(numbers: &AnyArray, range: Range<f64>) -> Result<bool> {
    let numbers = numbers.share().into_array::<T>();
    let [least, most] = [range.start, range.end].map(T::from_f64);
    let elements = Elements::of(&numbers)?;
    // The loop has no branch, so that it becomes vector code.
    let are_inside = elements.values().iter().fold(true, |all, &raw| {
        let number = T::from_raw(raw);
        all & (number >= least) & (number < most)
    });
    Ok(!are_inside)
}

/// Returns true if each deviation in `found` that is out of range is 0, and its elements are equal.
/// Constant elements are frequent, and this check does not store the elements.
#[track_caller]
fn are_constant(graph: &ExpressionGraph<'_>, axes: AxisSet, found: &AnyArray) -> Result<bool> {
    static EXTREMES: [Reduction; 2] = [Reduction::of::<Max, f64>(), Reduction::of::<Min, f64>()];
    let plan = ReductionPlan::along(graph, axes, false, false);
    let [highest, lowest] = EXTREMES.each_ref().map(|reduction| {
        let buffer = reduce(reduction, &plan, graph)?;
        Ok(Array::<f64>::of_shape(buffer, &plan.outputs))
    });
    let (highest, lowest, found) = (highest?, lowest?, found.share().into_array::<f64>());
    let all = [&found, &highest, &lowest].map(Elements::of);
    let [found, highest, lowest] = all;
    let (found, highest, lowest) = (found?, highest?, lowest?);
    let extremes = highest.values().iter().zip(lowest.values());
    let mut lanes = found.values().iter().zip(extremes);
    Ok(lanes.all(|(&deviation, (highest, lowest))| {
        let is_in_range = (LEAST_DEVIATION..f64::INFINITY).contains(&deviation);
        is_in_range || deviation == 0.0 && highest == lowest
    }))
}

/// Returns the standard deviations of `graph` along `axes`. `buffer` has the deviations, of shape
/// `outputs`. Deviations whose squares left the range of `f64` are computed again.
#[cold]
#[track_caller]
pub(super) fn deviations_in_range(
    graph: &ExpressionGraph<'_>,
    axes: AxisSet,
    (buffer, outputs): (Buffer, &Shape),
) -> Result<Buffer> {
    let dtype = DType::F64;
    let found = AnyArray::of_shape(buffer, outputs, dtype);
    if graph.shape().checked_len()? == 0 || !found.leaves_range(LEAST_DEVIATION..f64::INFINITY)? {
        return Ok(found.buffer);
    }
    let _pause = Pause::begin();
    if are_constant(graph, axes, &found)? {
        return Ok(found.buffer);
    }
    let device = device_for("std", graph)?;
    let elements = evaluate(graph, &device, graph.shape())?;
    let elements = AnyArray::of_shape(elements, graph.shape(), dtype);
    let reduced = |reduction, elements: &AnyLazy| -> Result<AnyArray> {
        let graph = ExpressionGraph::of(elements)?;
        let plan = ReductionPlan::along(&graph, axes, true, false);
        let buffer = reduce(reduction, &plan, &graph)?;
        Ok(AnyArray::of_shape(buffer, &plan.outputs, dtype))
    };
    let mean = reduced(MEAN.at(dtype), &elements.lazy())?;
    let found = found.reshape(mean.shape())?;
    let scales = found.range_scales(LEAST_DEVIATION, Some(&mean))?;
    let scaled = reduced(STD.at(dtype), &(elements.lazy() * scales.lazy()))?;
    let is_found = scales.lazy().eq(AnyLazy::number(dtype, 1.0));
    let again = scaled.lazy() / scales.lazy();
    let all = AnyLazy::select(is_found, found.lazy(), again).eval()?;
    Ok(all.reshape(outputs)?.buffer)
}
