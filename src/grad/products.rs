//! Products of derivatives with vectors.
//!
//! A backward pass may itself be tracked, so that its gradients can be differentiated by a second
//! backward pass. `hvp` differentiates them with respect to the parameters. `jvp` differentiates
//! them with respect to their cotangents, in which they are linear. Therefore gradients, `jvp` and
//! `hvp` use one table of derivative rules. The disadvantage is memory, because the first backward
//! pass frees nothing. A rule that saves values other than operands and results rejects second
//! derivatives.

use super::loss::Loss;
use super::parameters::{Parameters, ZipArrays};
use super::tape::Tape;
use crate::array::{AnyArray, Array, Float};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::ops::derivatives::{
    Gradients, Seeds, Tracked, has_constants, length, seed, track, tracked, tracked_backward,
    zeros_like,
};

/// Returns the value of `function` at `parameters`, and the product of its Jacobian matrix with
/// `tangents`. The product is the derivative of the value in the direction `tangents`. If no
/// parameter reaches the value, the product is zeros.
///
/// The method is from Townsend (2017, "A new trick for calculating Jacobian vector products"). The
/// gradients are linear in the cotangents of the value. Therefore the product is the gradient of
/// `tangents` times the gradients, with respect to the cotangents. The computation needs two
/// backward passes, for any number of parameters and values.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::jvp;
///
/// let x = Array::from_slice(&[1.0_f64, 2.0, 3.0], 3)?;
/// let tangents = Array::from_slice(&[1.0, 0.0, -1.0], 3)?;
/// let (squares, change) = jvp(&x, &tangents, |x| x.square().eval())?;
/// assert_eq!(squares.to_vec()?, [1.0, 4.0, 9.0]);
/// assert_eq!(change.to_vec()?, [2.0, 0.0, -6.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The first error of `function`. [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the shapes of
/// `tangents` differ from the shapes of the parameters. [`Unsupported`](ErrorKind::Unsupported),
/// with name and line, for an operation whose gradient has no derivative. The errors of
/// [`value_and_grad`](super::value_and_grad).
#[track_caller]
pub fn jvp<P: Parameters, T: Float>(
    parameters: &P,
    tangents: &P,
    function: impl FnOnce(&P) -> Result<Array<T>>,
) -> Result<(Array<T>, Array<T>)> {
    let mut tape = Tape::begin_nested("jvp")?;
    #[cfg_attr(
        not(feature = "linalg"),
        expect(
            unused_mut,
            reason = "only the derivatives of factorizations need `mut`"
        )
    )]
    let mut parameters = tape.track(parameters)?;
    let value = {
        #[cfg(feature = "linalg")]
        let _along = super::along::begin(&mut parameters, tangents, &tape);
        function(&parameters)?
    };
    let forward_length = length();
    let Some(to_value) = Tracked::of(value.buffer(), value.layout())? else {
        return Ok((tape.result(&value), zeros_like(&value)?));
    };
    // The gradients are linear in the cotangents, so the cotangents may have any values.
    let cotangents = zeros_like(&value)?;
    let layout = *cotangents.layout();
    let buffer = track(cotangents.into_buffer(), &layout, T::DTYPE);
    let of_cotangents = tracked(&buffer)?;
    let cotangents = AnyArray {
        buffer,
        layout,
        dtype: T::DTYPE,
    };
    let gradients = tracked_backward(vec![(to_value, cotangents)], tape.first_step)?;
    let seeds = DirectionalSeeds::of(parameters, tangents, (gradients, &tape.variables))?;
    // Only the steps of the first backward pass, from `forward_length` on, read the cotangents.
    let mut products = tape.backward(seeds, forward_length)?;
    let product = of_cotangents.map(|own| products.take(own));
    let product = match product.transpose()?.flatten() {
        Some(product) => tape.result(&product.into_array()),
        None => zeros_like(&value)?,
    };
    Ok((tape.result(&value), product))
}

/// Returns the value of `function` at `parameters`, and the product of its Hessian matrix with
/// `vector`. The product is the derivative of the gradient in the direction `vector` (Pearlmutter
/// 1994).
///
/// The product is the gradient of the gradient's product with `vector`. The first backward pass
/// frees no saved values, because the second backward pass needs them.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::hvp;
///
/// let x = Array::from_slice(&[1.0_f64, 2.0], 2)?;
/// let vector = Array::from_slice(&[1.0, 10.0], 2)?;
/// let (value, product) = hvp(&x, &vector, |x| (x * x * x).sum())?;
/// assert_eq!(value.item()?, 9.0);
/// assert_eq!(product.to_vec()?, [6.0, 120.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// The errors of [`jvp`]. [`InvalidShape`](ErrorKind::InvalidShape) if the result of `function` is
/// not a single value. [`InvalidArgument`](ErrorKind::InvalidArgument) if no parameter reaches the
/// value, as for [`value_and_grad`](super::value_and_grad).
#[track_caller]
pub fn hvp<P: Parameters, L: Loss>(
    parameters: &P,
    vector: &P,
    function: impl FnOnce(&P) -> Result<L>,
) -> Result<(Array<L::Item>, P)> {
    let mut tape = Tape::begin_nested("hvp")?;
    #[cfg_attr(
        not(feature = "linalg"),
        expect(
            unused_mut,
            reason = "only the derivatives of factorizations need `mut`"
        )
    )]
    let mut tracked = tape.track(parameters)?;
    let loss = {
        #[cfg(feature = "linalg")]
        let _along = super::along::begin(&mut tracked, vector, &tape);
        function(&tracked)?.into_value()?
    };
    tape.check_loss(&loss)?;
    let gradients = tracked_backward(seed(&loss, 1.0)?, tape.first_step)?;
    let is_reached = |variable: &u32| gradients.has(*variable);
    tape.check_gradients(has_constants() || tape.variables.iter().any(is_reached))?;
    let seeds = DirectionalSeeds::of(tracked, vector, (gradients, &tape.variables))?;
    let products = tape.backward(seeds, tape.first_step)?;
    let mut take = tape.take(products, tape.variables.clone());
    let products = parameters.map_arrays(&mut take).at_caller()?;
    Ok((tape.result(&loss), products))
}

/// A traversal that sets the cotangent of each parameter's gradient to the elements of the vector.
struct DirectionalSeeds<'a> {
    gradients: Gradients,
    variables: std::slice::Iter<'a, u32>,
    seeds: Seeds,
}

impl<'a> DirectionalSeeds<'a> {
    #[track_caller]
    fn of<P: Parameters>(
        mut parameters: P,
        vector: &P,
        (gradients, variables): (Gradients, &'a [u32]),
    ) -> Result<Seeds> {
        let mut directed = Self {
            gradients,
            variables: variables.iter(),
            seeds: Vec::new(),
        };
        let directed_all = parameters.zip_arrays(vector, &mut directed);
        directed_all.at_caller()?;
        Ok(directed.seeds)
    }
}

impl ZipArrays for DirectionalSeeds<'_> {
    fn zip<T: Float>(&mut self, own: &mut Array<T>, vector: &Array<T>) -> Result<()> {
        if own.shape() != vector.shape() {
            let [own, vector] = [&*own, vector].map(|array| *array.layout().shape());
            let text = format!("a vector has the shape {vector}, its parameter has {own}");
            return Err(Error::new(ErrorKind::ShapeMismatch, text));
        }
        let variable = self.variables.next();
        let gradient = variable.map(|&variable| self.gradients.take(variable));
        if let Some(gradient) = gradient.transpose()?.flatten()
            && let Some(tracked) = Tracked::of(&gradient.buffer, &gradient.layout)?
        {
            let vector = AnyArray::of(vector);
            self.seeds.push((tracked, vector));
        }
        Ok(())
    }
}
