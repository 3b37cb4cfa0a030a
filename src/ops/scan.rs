//! Operations along an axis that keep it: running sums and products, softmax and its logarithm.

use std::ops::Range;

use super::cuda;
use super::derivatives::{
    AnyArray, DIFFERENTIABLE, RuledOperation, SavedArray, TrackedReduction, by_differentiable,
    by_gradient, tracked_value,
};
use super::dispatch::{Hoisted, contiguous_array, device_for};
use super::expression::expr::{Expr, Lazy};
use super::expression::graph::ExpressionGraph;
use super::expression::tree::{Operand, Tree};
use super::host::{self, normalized_contiguous};
use super::index::concat;
use super::order::ReadOperands;
use super::precompiled::precompiled;
use super::reducers::ReductionRule;
use crate::array::{AnyElement, Array, AxisSet, Float, Number, Shape};
use crate::error::Result;

impl<T: AnyElement> Array<T> {
    /// Returns the sums of all elements up to each, along `axis`, which a negative number counts
    /// from the end. Sums of signed integers and `bool` are in `i64` and sums of unsigned integers
    /// in `u64`, which wrap; sums of floats are in their own type, with an error that does not grow
    /// with their number.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.cumsum(1)?.to_vec()?, [1.0, 3.0, 3.0, 7.0]);
    /// assert_eq!(x.cumsum(0)?.to_vec()?, [1.0, 2.0, 4.0, 6.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lazy::eval`]'s errors, and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there
    /// is no such axis.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Array<T::Total>> {
        self.lazy().cumsum(axis)
    }

    /// Returns the products of all elements up to each, along `axis`, which a negative number
    /// counts from the end. Products of signed integers and `bool` are in `i64` and products of
    /// unsigned integers in `u64`, which wrap; products of floats are in their own type, multiplied
    /// in `f64`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(x.cumprod(1)?.to_vec()?, [1.0, 2.0, 3.0, 12.0]);
    /// assert_eq!(x.cumprod(0)?.to_vec()?, [1.0, 2.0, 3.0, 8.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`cumsum`](Self::cumsum).
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Array<T::Total>> {
        self.lazy().cumprod(axis)
    }
}

impl<E: Expr> Lazy<E> {
    /// Returns [`Array::cumsum`] of the expression, which is not stored.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let x = Array::from_slice(&[1.0, 2.0, 3.0], 3)?;
    /// assert_eq!((&x * 2.0).cumsum(0)?.to_vec()?, [2.0, 6.0, 12.0]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Array::cumsum`].
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Array<<E::Item as AnyElement>::Total>> {
        cumsum::<E::Item>(&self.expr, axis)
    }

    /// Returns [`Array::cumprod`] of the expression, which is not stored.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let growth = Array::from_slice(&[0.5, 1.0, -0.5], 3)?;
    /// assert_eq!((&growth + 1.0).cumprod(0)?.to_vec()?, [1.5, 3.0, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Array::cumprod`].
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Array<<E::Item as AnyElement>::Total>> {
        cumprod::<E::Item>(&self.expr, axis)
    }
}

#[track_caller]
fn cumsum<T: AnyElement>(tree: &dyn Tree, axis: isize) -> Result<Array<T::Total>> {
    #[track_caller]
    fn any<T: AnyElement>(tree: &dyn Tree, axis: isize) -> Result<Array<T::Total>> {
        running::<T, false>(tree, axis)
    }
    precompiled!(any::<T>(; tree: &dyn Tree, axis: isize))
}

#[track_caller]
fn cumprod<T: AnyElement>(tree: &dyn Tree, axis: isize) -> Result<Array<T::Total>> {
    #[track_caller]
    fn any<T: AnyElement>(tree: &dyn Tree, axis: isize) -> Result<Array<T::Total>> {
        running::<T, true>(tree, axis)
    }
    precompiled!(any::<T>(; tree: &dyn Tree, axis: isize))
}

#[track_caller]
fn running<T: AnyElement, const PRODUCT: bool>(
    tree: &dyn Tree,
    axis: isize,
) -> Result<Array<T::Total>> {
    let name = if PRODUCT { "cumprod" } else { "cumsum" };
    if let Some(x) = tracked_value::<T>(tree)? {
        return running_of_tracked::<T, PRODUCT>(name, &x, axis);
    }
    let graph = ExpressionGraph::of(tree)?;
    let shape = *graph.shape();
    let axis = shape.axis(name, axis)?;
    let device = &*device_for(name, &graph)?;
    let hoisted = Hoisted::of(&graph, device, &shape)?;
    let graph = &*hoisted.apply(&graph);
    on_device!(
        device,
        touching & ReadOperands(graph),
        order => host::running::<T, PRODUCT>(order, graph, &shape, axis),
        cuda::running(order, graph, &shape, axis, PRODUCT).map(AnyArray::into_array)
    )
}

/// Returns running totals that a tape may track. The gradient of a summand is the sum of the
/// gradients of all sums from it on.
#[cold]
#[track_caller]
fn running_of_tracked<T: AnyElement, const PRODUCT: bool>(
    name: &'static str,
    x: &Array<T>,
    axis: isize,
) -> Result<Array<T::Total>> {
    let step = RuledOperation::begin(name, &[x])?.computed_by(0, move |operands| {
        let x = operands[0].share().into_array::<T>();
        let totals = running::<T, PRODUCT>(&x.lazy().expr, axis)?;
        Ok(totals.into_erased())
    });
    let totals = running::<T, PRODUCT>(&x.lazy().expr, axis)?;
    Ok(match PRODUCT {
        false => step.finish(totals, |_| summed_back(axis)),
        true => step.finish(totals, |saved| {
            multiplied_back(saved.save_releasable(x), axis)
        }),
    })
}

/// Returns the rule of running sums.
fn summed_back(axis: isize) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    by_gradient!(gradient => [gradient.flip(axis)?.cumsum(axis)?.flip(axis)?])
}

/// Returns the rule of running products of `x`.
fn multiplied_back(
    x: SavedArray,
    axis: isize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let back = by_differentiable!(gradient.dtype, F => {
            // In double precision, as for the products themselves: the product of a part may be
            // beyond the range of narrow floats.
            let x = x.fetch()?.into_array::<F>().conj().cast::<<F as AnyElement>::Wide>().eval_unfused()?;
            let gradient = gradient.into_array::<F>();
            let gradient = gradient.cast::<<F as AnyElement>::Wide>().eval_unfused()?;
            AnyArray::of(&products_back(&x, &gradient, axis)?.cast::<F>().eval_unfused()?)
        });
        Ok(vec![back.expect(DIFFERENTIABLE)])
    }
}

/// Returns the gradient of the factors of running products. There is no division, so that zeros
/// need no special case: for element i, it is the product of the elements before it, times s\[i] =
/// g\[i] + x\[i + 1] s\[i + 1]. Each pass doubles the number of summands of s (Hillis and Steele
/// 1986).
#[track_caller]
fn products_back<T: Number>(x: &Array<T>, gradient: &Array<T>, axis: isize) -> Result<Array<T>> {
    let at = x.layout().shape().axis("cumprod", axis)?;
    let length = x.shape()[at];
    if x.is_empty() || length == 1 {
        return Ok(gradient.clone());
    }
    let part = |array: &Array<T>, range: Range<usize>| -> Result<Array<T>> {
        Ok(array.viewed(array.layout().part(at, range, 1)?))
    };
    let one = AnyArray::full_beside(x, &x.layout().shape().with(at, 1), 1.0)?;
    let shifted = concat(&[&one, &part(x, 0..length - 1)?], axis)?;
    let before = shifted.cumprod(axis)?.downcast::<T>();
    let mut factors = concat(&[&part(x, 1..length)?, &one], axis)?;
    let mut sums = gradient.lazy().eval_unfused()?;
    let mut step = 1;
    while step < length {
        let (own, next) = (0..length - step, step..length);
        let factor = part(&factors, own.clone())?;
        let sum =
            (part(&sums, own.clone())? + &factor * part(&sums, next.clone())?).eval_unfused()?;
        let product = (factor * part(&factors, next)?).eval_unfused()?;
        let rest = length - step..length;
        sums = concat(&[&sum, &part(&sums, rest.clone())?], axis)?;
        factors = concat(&[&product, &part(&factors, rest)?], axis)?;
        step *= 2;
    }
    (before * sums).eval_unfused()
}

#[track_caller]
fn normalized<T: Float, const LOG: bool>(
    tree: &dyn Tree,
    operation: &'static str,
    axis: isize,
) -> Result<Array<T>> {
    if let Some(operand) = contiguous_array(tree) {
        let axis = operand.layout.shape().axis(operation, axis)?;
        return normalized_contiguous::<T, LOG>(&operand, axis);
    }
    let graph = ExpressionGraph::of(tree)?;
    let axis = graph.shape().axis(operation, axis)?;
    normalized_of::<T, LOG>(&graph, axis)
}

/// Returns exp(x) / Σ exp(x) of `graph` along `axis`, or its logarithm if `LOG`. Records the step.
#[track_caller]
pub(super) fn normalized_of<T: Float, const LOG: bool>(
    graph: &ExpressionGraph<'_>,
    axis: usize,
) -> Result<Array<T>> {
    let shape = *graph.shape();
    let operation = if LOG { "log_softmax" } else { "softmax" };
    let rule = match LOG {
        true => ReductionRule::LogSoftmax,
        false => ReductionRule::Softmax,
    };
    let axes = AxisSet::of_each(shape.ndim(), |own| own == axis);
    let tracked_reduction =
        TrackedReduction::begin(graph, (operation, Some(rule), T::DTYPE), axes)?;
    // Narrow floats are computed in `f32`.
    let tracked_reduction = tracked_reduction
        .with_softmax(|graph, axis| Ok(AnyArray::of(&normalized_of::<f32, LOG>(graph, axis)?)));
    let tracked_reduction = tracked_reduction.computed_by(graph, move |graph| {
        let array = normalized_graph::<T, LOG>(graph, &shape, axis)?;
        Ok((array.into_buffer(), shape))
    });
    let array = normalized_graph::<T, LOG>(graph, &shape, axis)?;
    let buffer = tracked_reduction.finish(array.into_buffer(), &shape);
    Ok(Array::of_shape(buffer, &shape))
}

#[track_caller]
fn normalized_graph<T: Float, const LOG: bool>(
    graph: &ExpressionGraph<'_>,
    shape: &Shape,
    axis: usize,
) -> Result<Array<T>> {
    let name = if LOG { "log_softmax" } else { "softmax" };
    let device = &*device_for(name, graph)?;
    let hoisted = Hoisted::of(graph, device, shape)?;
    let graph = &*hoisted.apply(graph);
    on_device!(
        device,
        touching & ReadOperands(graph),
        order => host::normalized::<T, LOG>(order, graph, shape, axis),
        cuda::normalized(order, graph, shape, axis, LOG).map(AnyArray::into_array)
    )
}

/// Rows `/// Sentences. name whether-logarithm, [three elements] => [results];`
macro_rules! normalizations {
    ($($(#[doc = $doc:literal])+ $name:ident $log:literal, $input:literal => $output:literal;)+) => {
        $(
            #[track_caller]
            fn $name<T: Float>(tree: &dyn Tree, axis: isize) -> Result<Array<T>> {
                #[track_caller]
                fn any<T: Float>(tree: &dyn Tree, axis: isize) -> Result<Array<T>> {
                    normalized::<T, $log>(tree, stringify!($name), axis)
                }
                precompiled!(any::<T>(; tree: &dyn Tree, axis: isize))
            }

            impl<T: Float> Array<T> {
                $(#[doc = $doc])+
                ///
                /// A negative axis counts from the end. The largest element is subtracted first, so
                /// that nothing overflows; `f16` and `bf16` are computed in `f32`. If a line holds
                /// a NaN or an infinity that is its largest element, all of its results are NaN.
                ///
                /// # Examples
                ///
                /// ```
                /// use cachescope::Array;
                ///
                #[doc = concat!("let x = Array::<f32>::from_slice(&", $input, ", 2)?;")]
                #[doc = concat!("assert_eq!(x.", stringify!($name), "(-1)?.to_vec()?, ", $output, ");")]
                /// # Ok::<(), cachescope::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Lazy::eval`]'s errors, and
                /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such axis.
                #[track_caller]
                pub fn $name(&self, axis: isize) -> Result<Array<T>> {
                    $name::<T>(&Operand::from(self), axis)
                }
            }

            impl<E: Expr<Item: Float>> Lazy<E> {
                #[doc = concat!("[`Array::", stringify!($name), "`] of the expression, which is not stored.")]
                ///
                /// # Examples
                ///
                /// ```
                /// use cachescope::Array;
                ///
                #[doc = concat!("let x = Array::<f32>::from_slice(&", $input, ", 2)?;")]
                #[doc = concat!("assert_eq!(x.lazy().", stringify!($name), "(0)?.to_vec()?, ", $output, ");")]
                /// # Ok::<(), cachescope::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                #[doc = concat!("Those of [`Array::", stringify!($name), "`].")]
                #[track_caller]
                pub fn $name(&self, axis: isize) -> Result<Array<E::Item>> {
                    $name::<E::Item>(&self.expr, axis)
                }
            }
        )+
    };
}

normalizations! {
    /// Returns each element's exponential divided by the sum of all of them along `axis`.
    softmax false, "[7.0, 7.0]" => "[0.5, 0.5]";

    /// Returns the logarithm of [`softmax`](Self::softmax) along `axis`, accurate also for small
    /// values.
    log_softmax true, "[1000.0, 0.0]" => "[0.0, -1000.0]";
}
