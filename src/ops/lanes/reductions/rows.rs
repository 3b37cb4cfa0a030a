//! The rows of reductions: the methods of arrays and of expressions, each with its reducer.

use super::declare::reductions;
use cachescope_kernels::reduce::{
    All, Any, Argmax, Argmin, Logsumexp, Max, Mean, Min, Norm, Prod, Std, Sum, Var,
};

reductions! {
    /// Returns the sum of the elements. Signed integers and `bool` are summed in `i64`, and
    /// unsigned integers in `u64`. Integer sums wrap. Floats are summed in their own type (`f16`
    /// and `bf16` are computed in `f32`). The error does not grow with the number of elements. The
    /// sum of no elements is 0.
    sum, sum_axis, sum_keepdims: Sum over AnyElement -> T::Total, f32 [1.0, 2.0, 3.0, 4.0] => 10.0, [4.0, 6.0];

    /// Returns the mean of the elements. The mean of integers and `bool` is an `f64`, and the mean
    /// of floats has their own type. The mean of no elements is NaN.
    mean, mean_axis, mean_keepdims: Mean over AnyElement -> T::Average, f32 [1.0, 2.0, 3.0, 4.0] => 2.5, [2.0, 3.0];

    /// Returns the product of the elements. Signed integers and `bool` are multiplied in `i64`, and
    /// unsigned integers in `u64`. Integer products wrap. Floats are multiplied in their own type
    /// (`f16` and `bf16` are computed in `f32`). The product of no elements is 1.
    prod, prod_axis, prod_keepdims: Prod over AnyElement -> T::Total, f32 [1.0, 2.0, 3.0, 4.0] => 24.0, [3.0, 8.0];

    /// Returns the largest element, or NaN if an element is NaN. The gradient is divided equally
    /// among all elements that equal the largest element. If the result is NaN, the gradient of
    /// every element is NaN. If there are no elements, returns the error
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    max, max_axis, max_keepdims: Max over Element -> T, f32 [1.0, 4.0, 3.0, 2.0] => 4.0, [3.0, 4.0];

    /// Returns the smallest element, or NaN if an element is NaN. The gradient is divided like the
    /// gradient of [`max`](Self::max). If there are no elements, returns the error
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    min, min_axis, min_keepdims: Min over Element -> T, f32 [1.0, 4.0, 3.0, 2.0] => 1.0, [1.0, 2.0];

    /// Returns the position of the largest element in row-major order. If several elements are the
    /// largest, returns the first position. If an element is NaN, returns the position of the first
    /// NaN. If there are no elements, returns the error
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    argmax, argmax_axis, argmax_keepdims: Argmax over Element -> i64, f32 [1.0, 4.0, 3.0, 4.0] => 1, [1, 0];

    /// Returns the position of the smallest element in row-major order. If several elements are the
    /// smallest, returns the first position. If an element is NaN, returns the position of the
    /// first NaN. If there are no elements, returns the error
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument).
    argmin, argmin_axis, argmin_keepdims: Argmin over Element -> i64, f32 [1.0, 4.0, 3.0, 2.0] => 0, [0, 1];

    /// Returns the variance of the elements, the mean of their squared distances from the mean. The
    /// variance of integers and `bool` is an `f64`. The variance of floats has their own type
    /// (`f16` and `bf16` are computed in `f32`). The variances of blocks are merged by the method
    /// of Chan, Golub and LeVeque ("Updating Formulae and a Pairwise Algorithm for Computing Sample
    /// Variances", 1979). So a large mean costs no digits. The variance of no elements is NaN.
    var, var_axis, var_keepdims: Var over Element -> T::Average, f32 [1.0, 2.0, 3.0, 6.0] => 3.5, [1.0, 4.0];

    /// Returns the standard deviation of the elements, the square root of [`var`](Self::var). The
    /// standard deviation of no elements is NaN. If the result is 0, its gradient and the
    /// derivatives of the gradient are 0. For the curvature at 0, differentiate [`var`](Self::var).
    /// On a CUDA device, an `f64` result above 1e154 is infinite or NaN. An `f64` result below
    /// 1e-154 loses digits on a CUDA device.
    std, std_axis, std_keepdims: Std over Element -> T::Average, f32 [1.0, 5.0, 1.0, 5.0] => 2.0, [0.0, 0.0];

    /// Returns the Euclidean norm, the square root of the sum of squares. The sum is computed in
    /// `f64`. The norm of integers and `bool` is an `f64`, and the norm of floats has their own
    /// type. If the norm does not overflow, the sum does not, either. For `f64`, elements that are
    /// too large or too small to be squared are scaled and summed separately (Anderson, "Algorithm
    /// 978: Safe Scaling in the Level 1 BLAS", 2017). The norm of no elements is 0. If the norm is
    /// 0, its gradient and second derivatives are 0. For the curvature at 0, differentiate the sum
    /// of squares.
    norm, norm_axis, norm_keepdims: Norm over Element -> T::Average, f32 [3.0, 0.0, 4.0, 0.0] => 5.0, [5.0, 0.0];

    /// Returns the logarithm of the sum of the exponentials, without intermediate overflow. The
    /// result has the elements' own type (`f16` and `bf16` are computed in `f32`). The result for
    /// no elements is −∞, the logarithm of 0.
    logsumexp, logsumexp_axis, logsumexp_keepdims: Logsumexp over Float -> T,
        f32 [1000.0, f32::NEG_INFINITY, 900.0, 0.0] => 1000.0, [1000.0, 0.0];

    /// Returns whether every element is true. A number is true unless it is 0, so NaN is true. The
    /// result for no elements is true.
    all, all_axis, all_keepdims: All over Element -> bool, f32 [1.0, 0.0, 3.0, 4.0] => false, [true, false];

    /// Returns whether any element is true. A number is true unless it is 0, so NaN is true. The
    /// result for no elements is false.
    any, any_axis, any_keepdims: Any over Element -> bool, f32 [1.0, 0.0, 3.0, 0.0] => true, [true, false];
}
