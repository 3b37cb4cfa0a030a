//! Methods of arrays that expressions do not have. A call of such a method on an expression is a
//! compiler error that says to evaluate the expression.
//!
//! Without these definitions, the compiler would report an unknown method. The message of that
//! error cannot be customised.

use ndarray::ArrayD;

use super::expr::{Expr, Lazy};
use crate::array::{Array, DType};
use crate::context::Device;
use crate::error::Result;

/// The marker of expressions, for the bound on the methods of arrays.
///
/// Compiler errors quote the type that lacks a trait. The bound is on this marker, because the type
/// of an expression would be long.
#[derive(Debug)]
pub struct Expression;

/// A type that has the methods of arrays. No type implements this trait.
#[diagnostic::on_unimplemented(
    message = "this is an expression, and only an array has this method",
    label = "call `.eval()?` first, which computes the array"
)]
pub trait IsArray {
    /// Returns the result of a method that cannot be called.
    fn never<T>() -> T;
}

/// Defines a method by the types of its arguments and its result. Each method has its own macro
/// call, because the compiler's message quotes the line of the call.
macro_rules! method_of_arrays {
    ($name:ident($($argument:ident)*) -> $output:ty) => {
        impl<E: Expr> Lazy<E> {
            #[doc(hidden)]
            pub fn $name<$($argument),*>(&self, $(_: $argument),*) -> $output
            where
                E::Kind: IsArray,
            {
                E::Kind::never()
            }
        }
    };
}

method_of_arrays!(address() -> u64);
method_of_arrays!(argsort(A) -> Result<Array<i64>>);
method_of_arrays!(bincount(A) -> Result<Array<i64>>);
method_of_arrays!(broadcast_to(A) -> Result<Array<E::Item>>);
method_of_arrays!(to_uncached() -> Result<Array<E::Item>>);
method_of_arrays!(device() -> &Device);
method_of_arrays!(diag(A) -> Result<Array<E::Item>>);
method_of_arrays!(dot(A) -> Result<Array<E::Item>>);
method_of_arrays!(dtype() -> DType);
method_of_arrays!(flatten() -> Result<Array<E::Item>>);
method_of_arrays!(flip(A) -> Result<Array<E::Item>>);
method_of_arrays!(full_like(A) -> Result<Array<E::Item>>);
method_of_arrays!(gather(A B) -> Result<Array<E::Item>>);
method_of_arrays!(histogram(A) -> Result<(Array<i64>, Array<E::Item>)>);
method_of_arrays!(is_contiguous() -> bool);
method_of_arrays!(is_empty() -> bool);
method_of_arrays!(item() -> Result<E::Item>);
method_of_arrays!(len() -> usize);
method_of_arrays!(matmul(A) -> Result<Array<E::Item>>);
method_of_arrays!(median(A) -> Result<Array<E::Item>>);
method_of_arrays!(ndim() -> usize);
method_of_arrays!(nonzero() -> Result<Array<i64>>);
method_of_arrays!(ones_like() -> Result<Array<E::Item>>);
method_of_arrays!(outer(A) -> Result<Array<E::Item>>);
method_of_arrays!(pad(A B) -> Result<Array<E::Item>>);
method_of_arrays!(permute(A) -> Result<Array<E::Item>>);
method_of_arrays!(quantile(A B) -> Result<Array<E::Item>>);
method_of_arrays!(repeat(A B) -> Result<Array<E::Item>>);
method_of_arrays!(reshape(A) -> Result<Array<E::Item>>);
method_of_arrays!(searchsorted(A) -> Result<Array<i64>>);
method_of_arrays!(select_by(A) -> Result<Array<E::Item>>);
method_of_arrays!(size_bytes() -> usize);
method_of_arrays!(slice(A) -> Result<Array<E::Item>>);
method_of_arrays!(sort(A) -> Result<Array<E::Item>>);
method_of_arrays!(split(A B) -> Result<Vec<Array<E::Item>>>);
method_of_arrays!(squeeze(A) -> Result<Array<E::Item>>);
method_of_arrays!(strides() -> &[isize]);
method_of_arrays!(swap_axes(A B) -> Result<Array<E::Item>>);
method_of_arrays!(t() -> Result<Array<E::Item>>);
method_of_arrays!(take(A B) -> Result<Array<E::Item>>);
method_of_arrays!(to_device(A) -> Result<Array<E::Item>>);
method_of_arrays!(to_ndarray() -> Result<ArrayD<E::Item>>);
method_of_arrays!(to_vec() -> Result<Vec<E::Item>>);
method_of_arrays!(topk(A B) -> Result<(Array<E::Item>, Array<i64>)>);
method_of_arrays!(transpose() -> Result<Array<E::Item>>);
method_of_arrays!(tril(A) -> Result<Array<E::Item>>);
method_of_arrays!(triu(A) -> Result<Array<E::Item>>);
method_of_arrays!(unique() -> Result<Array<E::Item>>);
method_of_arrays!(unsqueeze(A) -> Result<Array<E::Item>>);
method_of_arrays!(write_npy(A) -> Result<()>);
method_of_arrays!(zeros_like() -> Result<Array<E::Item>>);
