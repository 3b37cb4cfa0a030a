//! Arithmetic of structures of parameters, as if they were vectors.
//!
//! A structure counts as one vector of all elements of its arrays. The functions of this module are
//! building blocks of methods that are not in [`optim`](super::optim). Examples are a line search,
//! an average and conjugate gradients.
//!
//! ```
//! use cachescope::grad::arithmetic::{axpy, dot, norm, zeros_like};
//! use cachescope::grad::nn::Linear;
//! use cachescope::grad::value_and_grad;
//! use cachescope::{Array, manual_seed};
//!
//! manual_seed(1);
//! let mut layer = Linear::<f64>::new(3, 2)?;
//! let x = Array::randn([8, 3])?;
//! let loss = |layer: &Linear<f64>| layer.forward(&x)?.square().mean();
//! let (before, gradient) = value_and_grad(&layer, loss)?;
//! let slope = dot(&gradient, &gradient)?;
//! assert!((norm(&gradient)? - slope.sqrt()).abs() < 1e-12);
//! axpy(-0.01, &gradient, &mut layer)?; // a step of gradient descent
//! assert!(loss(&layer)?.item()? < before.item()?);
//! assert_eq!(norm(&zeros_like(&layer)?)?, 0.0);
//! # Ok::<(), cachescope::Error>(())
//! ```

use std::panic::Location;

use super::place::{follow_place, map_erased, zeros_of};
use super::{MapArrays, ParameterPath, Parameters, ZipArrays};
use crate::array::{AnyArray, Array, DType, Float};
use crate::error::{AtCaller, CallSiteOverride, Error, ErrorKind, Result};
use crate::ops::derivatives::{GlobalNorm, Total};
use crate::ops::{add_scaled, scaled};

/// Returns a structure of zeros with the types and shapes of `x`, each array on the device of its
/// counterpart.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::zeros_like;
///
/// let zeros = zeros_like(&(Array::<f32>::ones(2)?, Array::<f64>::ones([])?))?;
/// assert_eq!((zeros.0.to_vec()?, zeros.1.item()?), (vec![0.0, 0.0], 0.0));
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`OutOfMemory`](ErrorKind::OutOfMemory).
#[track_caller]
pub fn zeros_like<P: Parameters>(x: &P) -> Result<P> {
    let _call_site = CallSiteOverride::at(Location::caller());
    zeros_of(x).at_caller()
}

/// Adds `a` times `x` to `y`, in place.
///
/// `f16` and `bf16` are computed in `f32`. If `a` is out of the range of `f32`, the product is
/// computed in `f64`.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::axpy;
///
/// let (x, mut y) = (vec![Array::<f32>::ones(2)?], vec![Array::full(2, 3.0)?]);
/// axpy(0.5, &x, &mut y)?;
/// assert_eq!(y[0].to_vec()?, [3.5, 3.5]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the structures differ. The error names the
/// array whose shape differs, and `y` is unchanged. The errors of [`Array::update`].
#[track_caller]
pub fn axpy<P: Parameters>(a: f64, x: &P, y: &mut P) -> Result<()> {
    let _call_site = CallSiteOverride::at(Location::caller());
    let checked = y.zip_arrays(x, &mut SameShapes::of("axpy"));
    checked
        .and_then(|()| y.zip_arrays(x, &mut Axpy(a)))
        .at_caller()
}

/// Returns `x`, with each element multiplied by `a`, computed like [`axpy`].
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::scale;
///
/// assert_eq!(scale(3.0, &Array::<f32>::ones(2)?)?.to_vec()?, [3.0, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Lazy::eval`](crate::Lazy::eval).
#[track_caller]
pub fn scale<P: Parameters>(a: f64, x: &P) -> Result<P> {
    let _call_site = CallSiteOverride::at(Location::caller());
    x.map_arrays(&mut Scaled(a)).at_caller()
}

/// Returns the sum of the products of corresponding elements, computed in `f64`. The host waits for
/// the sum.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::dot;
///
/// let x = (Array::<f32>::full(2, 2.0)?, Array::<f64>::full([], 3.0)?);
/// assert_eq!(dot(&x, &x)?, 17.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the array whose shape differs, if the
/// structures differ. The errors of [`Array::sum`].
#[track_caller]
pub fn dot<P: Parameters>(x: &P, y: &P) -> Result<f64> {
    let _call_site = CallSiteOverride::at(Location::caller());
    let mut products = Products::default();
    // A traversal of two structures may write the first structure, so `x` is a structure of
    // handles.
    let mut x = map_erased(x, Ok).at_caller()?;
    let checked = x.zip_arrays(y, &mut SameShapes::of("dot"));
    checked
        .and_then(|()| x.zip_arrays(y, &mut products))
        .at_caller()?;
    products.0.item().at_caller()
}

/// Returns the square root of the sum of the squares of all elements, computed in `f64`. The host
/// waits for the result.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::norm;
///
/// assert_eq!(norm(&vec![Array::<f32>::full([], 3.0)?, Array::full([], 4.0)?])?, 5.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`Array::sum`].
#[track_caller]
pub fn norm<P: Parameters>(x: &P) -> Result<f64> {
    let _call_site = CallSiteOverride::at(Location::caller());
    global_norm(x).at_caller()?.item().at_caller()
}

/// Returns the number of elements of all arrays.
///
/// # Examples
///
/// ```
/// use cachescope::grad::arithmetic::count;
/// use cachescope::grad::nn::Linear;
///
/// assert_eq!(count(&Linear::<f32>::new(3, 2)?), 8);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn count<P: Parameters>(x: &P) -> usize {
    let mut count = 0;
    // The closure returns no errors. If a hand-written implementation of `Parameters` fails, the
    // arrays after the failure are not counted.
    let _ = map_erased(x, |array| {
        count += array.layout.len();
        Ok(array)
    });
    count
}

/// Returns a copy of `x` in which the results of `function` replace the arrays. `function` receives
/// the [name](super::MapArrays::enter) of the array, such as `layers.0.weight`. All arrays must
/// have the type `T`. For several types, implement [`MapArrays`].
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::arithmetic::map;
/// use cachescope::grad::nn::Linear;
///
/// let layer = Linear::<f32>::new(3, 2)?;
/// let clamped = map(&layer, |name, array: &Array<f32>| match name {
///     "weight" => array.clamp(-0.1, 0.1).eval(),
///     _ => Ok(array.clone()),
/// })?;
/// assert!(clamped.weight.abs().max()?.item()? <= 0.1);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of `function`. [`InvalidArgument`](ErrorKind::InvalidArgument), with the array's
/// name, for an array of another type than `T`.
#[track_caller]
pub fn map<T: Float, P: Parameters>(
    x: &P,
    mut function: impl FnMut(&str, &Array<T>) -> Result<Array<T>>,
) -> Result<P> {
    // The function is type-erased, so that the traversal is compiled once for all functions.
    let mut mapping = Mapping {
        place: ParameterPath::default(),
        dtype: T::DTYPE,
        function: &mut |name, array| {
            let mapped = function(name, &array.into_array())?;
            Ok(AnyArray::of(&mapped))
        },
    };
    x.map_arrays(&mut mapping).at_caller()
}

struct Mapping<'a> {
    place: ParameterPath,
    dtype: DType,
    function: &'a mut dyn FnMut(&str, AnyArray) -> Result<AnyArray>,
}

impl MapArrays for Mapping<'_> {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        let name = self.place.name();
        if T::DTYPE != self.dtype {
            let [found, expected] = [T::DTYPE, self.dtype].map(DType::name);
            let text = format!(
                "map: `{name}` has the type {found}, the function takes {expected}: implement \
                 MapArrays to map several types"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok((self.function)(name, AnyArray::of(array))?.into_array())
    }

    follow_place!();
}

pub(super) struct Scaled(pub(super) f64);

impl MapArrays for Scaled {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        scaled(array, self.0)
    }
}

pub(super) struct Axpy(pub(super) f64);

impl ZipArrays for Axpy {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        add_scaled(own, other, self.0)
    }
}

/// A traversal that returns an error for arrays of different shapes, because a write would
/// broadcast them.
pub(super) struct SameShapes {
    function: &'static str,
    place: ParameterPath,
}

impl SameShapes {
    pub(super) fn of(function: &'static str) -> Self {
        Self {
            function,
            place: ParameterPath::default(),
        }
    }
}

impl ZipArrays for SameShapes {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let [own, other] = [&*own, other].map(|array| *array.layout().shape());
        if own == other {
            return Ok(());
        }
        let (function, name) = (self.function, self.place.name());
        let text = format!(
            "{function}: `{name}` has the shape {own} in one structure, {other} in the other"
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    follow_place!();
}

#[track_caller]
pub(crate) fn global_norm<P: Parameters>(x: &P) -> Result<GlobalNorm> {
    let mut norm = NormOfArrays::default();
    x.map_arrays(&mut norm)?;
    Ok(norm.0)
}

#[derive(Default)]
struct NormOfArrays(GlobalNorm);

impl MapArrays for NormOfArrays {
    fn map<T: Float>(&mut self, array: &Array<T>) -> Result<Array<T>> {
        self.0.add(array.erased())?;
        Ok(array.clone())
    }
}

#[derive(Default)]
struct Products(Total);

impl ZipArrays for Products {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, other: &Array<T>) -> Result<()> {
        let products = own.cast::<f64>() * other.cast::<f64>();
        self.0.add(products.sum()?)
    }
}
