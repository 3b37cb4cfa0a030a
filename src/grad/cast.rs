//! Structures of parameters of another element type.

use super::parameters::Parameters;
use crate::array::{Array, Float};
use crate::error::Result;

/// A structure of parameters that can be converted to another element type, for training in half
/// precision.
///
/// `#[derive(CastParameters)]` implements this trait beside `#[derive(Parameters)]`, for a `struct`
/// with one type parameter, the type of its elements. A field whose type does not name the type
/// parameter is cloned. A field marked `#[parameters(skip)]` is also cloned.
///
/// # Examples
///
/// The parameters, their gradients and the optimizer's states are `f32`. The network computes in
/// `bf16`, and saves arrays of `bf16` for the backward pass. The gradients of the weights of
/// products, of biases and of norms are summed in `f32`, and not rounded to `bf16`:
///
/// ```
/// use cachescope::grad::optim::AdamW;
/// use cachescope::grad::{CastParameters, Parameters, nn, value_and_step};
/// use cachescope::half::bf16;
/// use cachescope::{Array, Float, Result, manual_seed};
///
/// #[derive(Parameters, CastParameters)]
/// struct Network<T: Float = f32> {
///     hidden: nn::Linear<T>,
///     out: nn::Linear<T>,
/// }
///
/// impl<T: Float> Network<T> {
///     fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
///         self.out.forward(&self.hidden.forward(x)?.gelu().eval()?)
///     }
/// }
///
/// manual_seed(1);
/// let x = Array::<f32>::randn([32, 4])?.cast::<bf16>().eval()?;
/// let classes = Array::randint(0_i64, 3, 32)?;
/// let (hidden, out) = (nn::Linear::<f32>::new(4, 16)?, nn::Linear::new(16, 3)?);
/// let mut network = Network { hidden, out };
/// let mut optimizer = AdamW::new(0.01);
/// let loss = value_and_step(&mut network, &mut optimizer, |own| {
///     let scores = own.cast::<bf16>()?.forward(&x)?;
///     scores.cast::<f32>().eval()?.cross_entropy(&classes)
/// })?;
/// assert!(loss.item()? < 2.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be converted to another element type",
    label = "expected an array of floats, or a structure of arrays of floats with a type parameter",
    note = "to convert a structure, give it a type parameter, as in `struct Network<T: Float = \
            f32>`, and write `#[derive(Parameters, CastParameters)]`"
)]
pub trait CastParameters: Parameters {
    /// The structure with elements of another type.
    type Cast<U: Float>: Parameters;

    /// Returns the structure with its elements converted to `U`. If gradients are computed, they
    /// pass back through the conversion. An array that already has the type `U` is shared, not
    /// copied.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::{CastParameters, nn::Linear, value_and_grad};
    /// use cachescope::half::f16;
    ///
    /// let layer = Linear::<f32>::new(3, 2)?;
    /// let halves: Linear<f16> = layer.cast()?;
    /// assert_eq!(halves.weight.shape(), [2, 3]);
    /// let (_, gradient) = value_and_grad(&layer, |own| own.cast::<f16>()?.weight.sum())?;
    /// assert_eq!(gradient.weight.to_vec()?, [1.0_f32; 6]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Lazy::eval`](crate::Lazy::eval).
    #[track_caller]
    fn cast<U: Float>(&self) -> Result<Self::Cast<U>>;
}

impl<T: Float> CastParameters for Array<T> {
    type Cast<U: Float> = Array<U>;

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<Array<U>> {
        match T::DTYPE == U::DTYPE {
            true => Ok(self.clone().downcast()),
            false => Self::cast::<U>(self).eval_unfused(),
        }
    }
}

impl<P: CastParameters> CastParameters for Vec<P> {
    type Cast<U: Float> = Vec<P::Cast<U>>;

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<Vec<P::Cast<U>>> {
        let mut parts = Vec::with_capacity(self.len());
        for own in self {
            parts.push(own.cast()?);
        }
        Ok(parts)
    }
}

impl<P: CastParameters> CastParameters for Option<P> {
    type Cast<U: Float> = Option<P::Cast<U>>;

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<Option<P::Cast<U>>> {
        Ok(match self {
            Some(own) => Some(own.cast()?),
            None => None,
        })
    }
}

impl<P: CastParameters> CastParameters for Box<P> {
    type Cast<U: Float> = Box<P::Cast<U>>;

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<Box<P::Cast<U>>> {
        Ok(Box::new(P::cast(self)?))
    }
}

impl<P: CastParameters, const N: usize> CastParameters for [P; N] {
    type Cast<U: Float> = [P::Cast<U>; N];

    #[track_caller]
    fn cast<U: Float>(&self) -> Result<[P::Cast<U>; N]> {
        let mut parts = Vec::with_capacity(N);
        for own in self {
            parts.push(own.cast()?);
        }
        let parts: Result<[P::Cast<U>; N], _> = parts.try_into();
        Ok(parts.unwrap_or_else(|_| unreachable!("the number of parts is unchanged")))
    }
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        impl<$($name: CastParameters),*> CastParameters for ($($name,)*) {
            type Cast<Own: Float> = ($($name::Cast<Own>,)*);

            #[track_caller]
            fn cast<Own: Float>(&self) -> Result<Self::Cast<Own>> {
                Ok(($(self.$index.cast::<Own>()?,)*))
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
