//! Operations along an axis that keep the axis: running sums and products, softmax and its
//! logarithm.

use std::ops::Range;

use num_complex::Complex;

use crate::array::{AnyArray, AnyElement, Array, AxisSet, DType, Float, Shape};
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::ops::cuda;
use crate::ops::derivatives::{
    RuledOperation, SavedArray, SoftmaxOf, TrackedReduction, tracked_value,
};
use crate::ops::dispatch::{Hoisted, contiguous_array, device_for};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::expr::{Expr, Lazy};
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Operand, Tree};
use crate::ops::host::{self, LaneLoops, normalized_contiguous, scan_loops_of, softmax_loops_of};
use crate::ops::index::concatenated;
use crate::ops::order::ReadOperands;
use cachescope_kernels::reduce::ReductionRule;

impl<T: AnyElement> Array<T> {
    /// Returns the running sums of the elements along `axis`. A negative axis counts from the end.
    /// Sums of signed integers and `bool` are in `i64`, and sums of unsigned integers in `u64`.
    /// Integer sums wrap. Sums of floats are in the type of the floats. The error of these sums
    /// does not grow with the number of elements.
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
    /// The errors of [`Lazy::eval`], and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if
    /// `axis` is out of range.
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Array<T::Total>> {
        self.lazy().cumsum(axis)
    }

    /// Returns the running products of the elements along `axis`. A negative axis counts from the
    /// end. Products of signed integers and `bool` are in `i64`, and products of unsigned integers
    /// in `u64`. Integer products wrap. Products of floats are in the type of the floats,
    /// multiplied in `f64`.
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
    /// The errors of [`cumsum`](Self::cumsum).
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Array<T::Total>> {
        self.lazy().cumprod(axis)
    }
}

impl<E: Expr> Lazy<E> {
    /// Like [`Array::cumsum`], for an expression. The elements of the expression are not stored.
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
    /// The errors of [`Array::cumsum`].
    #[track_caller]
    pub fn cumsum(&self, axis: isize) -> Result<Array<<E::Item as AnyElement>::Total>> {
        running(&self.expr, const { &Scan::sum::<E::Item>() }, axis).map(Array::from_erased)
    }

    /// Like [`Array::cumprod`], for an expression. The elements of the expression are not stored.
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
    /// The errors of [`Array::cumprod`].
    #[track_caller]
    pub fn cumprod(&self, axis: isize) -> Result<Array<<E::Item as AnyElement>::Total>> {
        running(&self.expr, const { &Scan::product::<E::Item>() }, axis).map(Array::from_erased)
    }
}

/// A running sum or product of elements of one type.
#[derive(Debug)]
struct Scan {
    name: &'static str,
    is_product: bool,
    host: &'static LaneLoops,
}

impl Scan {
    const fn sum<T: AnyElement>() -> Self {
        Self {
            name: "cumsum",
            is_product: false,
            host: scan_loops_of::<T, false>(),
        }
    }

    const fn product<T: AnyElement>() -> Self {
        Self {
            name: "cumprod",
            is_product: true,
            host: scan_loops_of::<T, true>(),
        }
    }
}

#[track_caller]
fn running(tree: &dyn Tree, scan: &'static Scan, axis: isize) -> Result<AnyArray> {
    if let Some(x) = tracked_value(tree)? {
        return running_of_tracked(&x, scan, axis);
    }
    let graph = ExpressionGraph::of(tree)?;
    assert_eq!(graph.first().dtype, scan.host.element, "{}", scan.name);
    let shape = *graph.shape();
    let axis = shape.axis(scan.name, axis)?;
    let device = &*device_for(scan.name, &graph)?;
    let hoisted = Hoisted::of(&graph, device, &shape)?;
    let graph = &*hoisted.apply(&graph);
    on_device!(
        device,
        touching & ReadOperands(graph),
        order => host::along_axis(order, scan.host, graph, (&shape, axis)),
        cuda::running(order, graph, &shape, axis, scan.is_product)
    )
}

/// Returns the running totals of a tracked array. For sums, the gradient of a summand is the sum of
/// the gradients of all totals that include the summand.
#[cold]
#[track_caller]
fn running_of_tracked(x: &AnyArray, scan: &'static Scan, axis: isize) -> Result<AnyArray> {
    let step = RuledOperation::begin(scan.name, &[x])?.computed_by(0, move |operands| {
        running(&operands[0].operand(), scan, axis)
    });
    let totals = running(&x.operand(), scan, axis)?;
    Ok(match scan.is_product {
        false => step.finish(totals, |_| summed_back(scan, axis)),
        true => step.finish(totals, |saved| {
            multiplied_back(saved.save_releasable(x), axis)
        }),
    })
}

/// Returns the rule of running sums. The summands have the type of the gradients.
fn summed_back(
    scan: &'static Scan,
    axis: isize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let sums = running(&gradient.flip(axis)?.operand(), scan, axis)?;
        Ok(vec![sums.flip(axis)?])
    }
}

/// Returns the rule of running products of `x`. Gradients are computed in double precision, like
/// the products. A partial product may be beyond the range of narrow floats.
fn multiplied_back(
    x: SavedArray,
    axis: isize,
) -> impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + Clone {
    move |gradient| {
        let dtype = gradient.dtype;
        let wide = |array: &AnyArray| array.lazy().cast(dtype.wide());
        let x = wide(&x.fetch()?).conj().eval()?;
        let back = products_back(&x, &wide(&gradient).eval()?, axis)?;
        Ok(vec![back.lazy().cast(dtype).eval()?])
    }
}

impl AnyArray {
    /// See [`Array::cumsum`]. The elements are `f32` or `f64`.
    #[cfg(feature = "linalg")]
    #[track_caller]
    pub(in crate::ops) fn cumsum(&self, axis: isize) -> Result<Self> {
        static SINGLE: Scan = Scan::sum::<f32>();
        static DOUBLE: Scan = Scan::sum::<f64>();
        let scan = match self.dtype {
            DType::F32 => &SINGLE,
            _ => &DOUBLE,
        };
        running(&self.operand(), scan, axis)
    }

    /// See [`Array::cumprod`]. The elements are `f32` or numbers of double precision.
    #[track_caller]
    pub(in crate::ops) fn cumprod(&self, axis: isize) -> Result<Self> {
        static SINGLE: Scan = Scan::product::<f32>();
        static DOUBLE: Scan = Scan::product::<f64>();
        static COMPLEX: Scan = Scan::product::<Complex<f64>>();
        let scan = match self.dtype {
            DType::F32 => &SINGLE,
            DType::C64 => &COMPLEX,
            _ => &DOUBLE,
        };
        running(&self.operand(), scan, axis)
    }
}

/// Returns the gradient of the factors of running products. The computation has no division, so
/// zeros need no special case. The gradient of element i is the product of the elements before i,
/// times s\[i]. The recurrence of s is s\[i] = g\[i] + x\[i + 1] s\[i + 1]. Each pass doubles the
/// number of summands of s (Hillis and Steele 1986).
#[track_caller]
fn products_back(x: &AnyArray, gradient: &AnyArray, axis: isize) -> Result<AnyArray> {
    let at = x.shape().axis("cumprod", axis)?;
    let length = x.dims()[at];
    if x.len() == 0 || length == 1 {
        return Ok(gradient.share());
    }
    let part = |array: &AnyArray, range: Range<usize>| -> Result<AnyArray> {
        Ok(array.viewed(array.layout.part(at, range, 1)?))
    };
    let one = x.full(&x.shape().with(at, 1), 1.0)?;
    let before = joined([&one, &part(x, 0..length - 1)?], at)?.cumprod(axis)?;
    let mut factors = joined([&part(x, 1..length)?, &one], at)?;
    let mut sums = gradient.share();
    let mut step = 1;
    while step < length {
        let (own, next) = (0..length - step, step..length);
        let factor = part(&factors, own.clone())?;
        let of_next = factor.lazy() * part(&sums, next.clone())?.lazy();
        let sum = (part(&sums, own)?.lazy() + of_next).eval()?;
        let product = (factor.lazy() * part(&factors, next)?.lazy()).eval()?;
        let rest = length - step..length;
        sums = joined([&sum, &part(&sums, rest.clone())?], at)?;
        factors = joined([&product, &part(&factors, rest)?], at)?;
        step *= 2;
    }
    (before.lazy() * sums.lazy()).eval()
}

#[track_caller]
fn joined(arrays: [&AnyArray; 2], at: usize) -> Result<AnyArray> {
    concatenated(&arrays.map(AnyArray::share), at as isize)
}

/// Softmax or its logarithm, of elements of one type.
#[derive(Debug)]
struct Normalization {
    name: &'static str,
    rule: ReductionRule,
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    is_log: bool,
    host: &'static LaneLoops,
    /// The operation in `f32`. It computes results of narrow floats again.
    again: SoftmaxOf,
}

impl Normalization {
    const fn softmax<T: Float>() -> Self {
        Self {
            name: "softmax",
            rule: ReductionRule::Softmax,
            is_log: false,
            host: softmax_loops_of::<T, false>(),
            again: |graph, axis| {
                static AGAIN: Normalization = Normalization::softmax::<f32>();
                normalized_of(graph, &AGAIN, axis)
            },
        }
    }

    const fn log_softmax<T: Float>() -> Self {
        Self {
            name: "log_softmax",
            rule: ReductionRule::LogSoftmax,
            is_log: true,
            host: softmax_loops_of::<T, true>(),
            again: |graph, axis| {
                static AGAIN: Normalization = Normalization::log_softmax::<f32>();
                normalized_of(graph, &AGAIN, axis)
            },
        }
    }
}

impl AnyLazy {
    /// See [`Array::softmax`]. The elements are `f32` or `f64`.
    #[track_caller]
    pub(in crate::ops) fn softmax(&self, axis: isize) -> Result<AnyArray> {
        static SINGLE: Normalization = Normalization::softmax::<f32>();
        static DOUBLE: Normalization = Normalization::softmax::<f64>();
        let softmax = match self.dtype() {
            DType::F64 => &DOUBLE,
            _ => &SINGLE,
        };
        normalized(self, softmax, axis)
    }
}

#[track_caller]
fn normalized(
    tree: &dyn Tree,
    normalization: &'static Normalization,
    axis: isize,
) -> Result<AnyArray> {
    if let Some(operand) = contiguous_array(tree) {
        let axis = operand.layout.shape().axis(normalization.name, axis)?;
        return normalized_contiguous(normalization.host, &operand, axis);
    }
    let graph = ExpressionGraph::of(tree)?;
    let axis = graph.shape().axis(normalization.name, axis)?;
    normalized_of(&graph, normalization, axis)
}

/// Returns exp(x) / Σ exp(x) of `graph` along `axis`, or the logarithm of this quotient. Records
/// the step on the tape.
#[track_caller]
fn normalized_of(
    graph: &ExpressionGraph<'_>,
    normalization: &'static Normalization,
    axis: usize,
) -> Result<AnyArray> {
    let shape = *graph.shape();
    let Normalization { name, rule, .. } = *normalization;
    let dtype = normalization.host.output;
    assert_eq!(graph.first().dtype, dtype, "{name}");
    let axes = AxisSet::of_each(shape.ndim(), |own| own == axis);
    let tracked_reduction = TrackedReduction::begin(graph, (name, Some(rule), dtype), axes)?
        .with_softmax(normalization.again)
        .computed_by(graph, move |graph| {
            let array = normalized_graph(graph, normalization, &shape, axis)?;
            Ok((array.buffer, shape))
        });
    let array = normalized_graph(graph, normalization, &shape, axis)?;
    let buffer = tracked_reduction.finish(array.buffer, &shape);
    Ok(AnyArray::of_shape(buffer, &shape, dtype))
}

#[track_caller]
fn normalized_graph(
    graph: &ExpressionGraph<'_>,
    normalization: &'static Normalization,
    shape: &Shape,
    axis: usize,
) -> Result<AnyArray> {
    let device = &*device_for(normalization.name, graph)?;
    let hoisted = Hoisted::of(graph, device, shape)?;
    let graph = &*hoisted.apply(graph);
    on_device!(
        device,
        touching & ReadOperands(graph),
        order => host::along_axis(order, normalization.host, graph, (shape, axis)),
        cuda::normalized(order, graph, shape, axis, normalization.is_log)
    )
}

/// Expands rows of the form `/// Sentences. name, elements => results;` to methods.
macro_rules! normalizations {
    ($($(#[doc = $doc:literal])+ $name:ident, $input:literal => $output:literal;)+) => {
        $(
            impl<T: Float> Array<T> {
                $(#[doc = $doc])+
                ///
                /// A negative axis counts from the end. The largest element is subtracted first, so
                /// that no exponential overflows. `f16` and `bf16` are computed in `f32`. If a lane
                /// along the axis has a NaN or an infinite largest element, its results are all
                /// NaN.
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
                /// The errors of [`Lazy::eval`], and
                /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the array has no axis
                /// `axis`.
                #[track_caller]
                pub fn $name(&self, axis: isize) -> Result<Array<T>> {
                    let normalization = const { &Normalization::$name::<T>() };
                    normalized(&Operand::from(self), normalization, axis).map(Array::from_erased)
                }
            }

            impl<E: Expr<Item: Float>> Lazy<E> {
                #[doc = concat!("Like [`Array::", stringify!($name), "`], for an expression. The elements of the expression are not stored.")]
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
                #[doc = concat!("The errors of [`Array::", stringify!($name), "`].")]
                #[track_caller]
                pub fn $name(&self, axis: isize) -> Result<Array<E::Item>> {
                    let normalization = const { &Normalization::$name::<E::Item>() };
                    normalized(&self.expr, normalization, axis).map(Array::from_erased)
                }
            }
        )+
    };
}

normalizations! {
    /// Returns each element's exponential divided by the sum of all exponentials along `axis`.
    softmax, "[7.0, 7.0]" => "[0.5, 0.5]";

    /// Returns the logarithm of [`softmax`](Self::softmax) along `axis`. The logarithm is also
    /// accurate if the softmax is small.
    log_softmax, "[1000.0, 0.0]" => "[0.0, -1000.0]";
}
