//! Recurrent layers.

use std::ops::Range;

use super::{is_narrow, product_with_bias, uniform};
use crate::array::{Array, Float};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::{concat, eval, stack};

/// A gated recurrent unit (Cho et al. 2014). As in PyTorch, the state is multiplied by its weight,
/// and the bias of the state is added. The reset gate then multiplies the sum.
///
/// A step is a matrix product and one expression. The expression computes all gates and the new
/// state. The inputs of all steps are multiplied by their weight in one product.
///
/// In `f16` and `bf16`, a step is computed in `f32`, and the new state is rounded once. The
/// products with the inputs are `f32`. To save memory, they are computed for 256 rows at a time.
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Gru<T: Float = f32> {
    /// The weight of the inputs, of shape `[3 width, inputs]`. Its parts are for the reset gate,
    /// the update gate and the candidate.
    pub weight_ih_l0: Array<T>,
    /// The weight of the state, of shape `[3 width, width]`.
    pub weight_hh_l0: Array<T>,
    /// The bias of the inputs, of shape `[3 width]`.
    pub bias_ih_l0: Array<T>,
    /// The bias of the state, of shape `[3 width]`.
    pub bias_hh_l0: Array<T>,
}

impl<T: Float> Gru<T> {
    /// Makes a layer with uniform random parameters from −1 / √width to 1 / √width, by the calling
    /// thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Gru;
    ///
    /// assert_eq!(Gru::<f32>::new(4, 8)?.weight_ih_l0.shape(), [24, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`].
    #[track_caller]
    pub fn new(inputs: usize, width: usize) -> Result<Self> {
        Ok(Self {
            weight_ih_l0: uniform(width, [width.saturating_mul(3), inputs])?,
            weight_hh_l0: uniform(width, [width.saturating_mul(3), width])?,
            bias_ih_l0: uniform(width, width.saturating_mul(3))?,
            bias_hh_l0: uniform(width, width.saturating_mul(3))?,
        })
    }

    /// Returns the states after each step, of shape `[batch, length, width]`, and the last state,
    /// of shape `[batch, width]`. `x` has the shape `[batch, length, inputs]`. The initial state is
    /// `state`, or zeros.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Gru;
    ///
    /// let layer = Gru::<f32>::new(4, 8)?;
    /// let x = Array::randn([2, 5, 4])?;
    /// let (states, last) = layer.forward(&x, None)?;
    /// assert_eq!((states.shape(), last.shape()), ([2, 5, 8].as_slice(), [2, 8].as_slice()));
    /// // A longer text continues from the last state.
    /// let (more, _) = layer.forward(&x, Some(&last))?;
    /// assert_eq!(more.shape(), [2, 5, 8]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if `x` or the state has another shape, and
    /// [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn forward(&self, x: &Array<T>, state: Option<&Array<T>>) -> Result<(Array<T>, Array<T>)> {
        let weights = [&self.weight_ih_l0, &self.weight_hh_l0];
        let steps = Steps::of(("Gru", 3), x, weights)?;
        steps.check_biases([&self.bias_ih_l0, &self.bias_hh_l0])?;
        let mut state = steps.first("state", x, state)?;
        let across = self.weight_hh_l0.transpose()?;
        let [reset, update, new] = steps.parts(&unrounded(&self.bias_ih_l0)?)?;
        let [own_reset, own_update, own_new] = steps.parts(&unrounded(&self.bias_hh_l0)?)?;
        let (reset, update) = eval((reset + own_reset, update + own_update))?;
        let bias = concat(&[&reset, &update, &new], 0)?;
        let mut products = InputProducts::of(&steps, x, (&self.weight_ih_l0, bias))?;
        let zeros = steps.zeros(x)?;
        let mut states = Vec::new();
        for step in 0..steps.length {
            let [x_reset, x_update, x_new] = steps.parts(&products.at(step)?)?;
            let own = steps.parts(&steps.product(&state, &across, zeros.as_ref())?)?;
            let [h_reset, h_update, h_new] = own;
            let r = (x_reset + h_reset).sigmoid();
            let z = (x_update + h_update).sigmoid();
            let n = (x_new + r * (h_new + &own_new)).tanh();
            let next = &n + z * (state.cast::<T::Computed>() - &n);
            state = next.cast::<T>().eval_unfused()?;
            states.push(state.clone());
        }
        Ok((steps.all(&products.of_steps, &states)?, state))
    }
}

/// The state and the cell of an [`Lstm`], each of shape `[batch, width]`.
pub type LstmState<T> = (Array<T>, Array<T>);

/// A layer of long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000).
///
/// A step is a matrix product and one pass. The pass computes all gates, the new cell and the new
/// state. The inputs of all steps are multiplied by their weight in one product. `f16` and `bf16`
/// are computed as in a [`Gru`].
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Lstm<T: Float = f32> {
    /// The weight of the inputs, of shape `[4 width, inputs]`. Its parts are for the input gate,
    /// the forget gate, the candidate and the output gate.
    pub weight_ih_l0: Array<T>,
    /// The weight of the state, of shape `[4 width, width]`.
    pub weight_hh_l0: Array<T>,
    /// The bias of the inputs, of shape `[4 width]`.
    pub bias_ih_l0: Array<T>,
    /// The bias of the state, of shape `[4 width]`.
    pub bias_hh_l0: Array<T>,
}

impl<T: Float> Lstm<T> {
    /// Makes a layer with uniform random parameters from −1 / √width to 1 / √width, by the calling
    /// thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Lstm;
    ///
    /// assert_eq!(Lstm::<f32>::new(4, 8)?.weight_hh_l0.shape(), [32, 8]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`].
    #[track_caller]
    pub fn new(inputs: usize, width: usize) -> Result<Self> {
        Ok(Self {
            weight_ih_l0: uniform(width, [width.saturating_mul(4), inputs])?,
            weight_hh_l0: uniform(width, [width.saturating_mul(4), width])?,
            bias_ih_l0: uniform(width, width.saturating_mul(4))?,
            bias_hh_l0: uniform(width, width.saturating_mul(4))?,
        })
    }

    /// Returns the states after each step, of shape `[batch, length, width]`. Also returns the last
    /// state and the last cell, of shape `[batch, width]`. `x` has the shape
    /// `[batch, length, inputs]`. The initial state and cell are `first`, or zeros.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Lstm;
    ///
    /// let layer = Lstm::<f32>::new(4, 8)?;
    /// let x = Array::randn([2, 5, 4])?;
    /// let (states, (state, cell)) = layer.forward(&x, None)?;
    /// assert_eq!((states.shape(), cell.shape()), ([2, 5, 8].as_slice(), [2, 8].as_slice()));
    /// layer.forward(&x, Some((&state, &cell)))?;
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Gru::forward`].
    #[track_caller]
    pub fn forward(
        &self,
        x: &Array<T>,
        first: Option<(&Array<T>, &Array<T>)>,
    ) -> Result<(Array<T>, LstmState<T>)> {
        let weights = [&self.weight_ih_l0, &self.weight_hh_l0];
        let steps = Steps::of(("Lstm", 4), x, weights)?;
        steps.check_biases([&self.bias_ih_l0, &self.bias_hh_l0])?;
        let mut state = steps.first("state", x, first.map(|first| first.0))?;
        let mut cell = steps.first("cell", x, first.map(|first| first.1))?;
        let across = self.weight_hh_l0.transpose()?;
        let (of_input, of_state) = (unrounded(&self.bias_ih_l0)?, unrounded(&self.bias_hh_l0)?);
        let bias = (of_input + of_state).eval_unfused()?;
        let mut products = InputProducts::of(&steps, x, (&self.weight_ih_l0, bias))?;
        let zeros = steps.zeros(x)?;
        let mut states = Vec::new();
        for step in 0..steps.length {
            let of_input = products.at(step)?;
            // For a narrow type, the product with the inputs is the addend, and zeros replace it
            // below.
            let addend = zeros.as_ref().map(|_| &of_input);
            let own = steps.parts(&steps.product(&state, &across, addend)?)?;
            let of_input = steps.parts(zeros.as_ref().unwrap_or(&of_input))?;
            let [x_input, x_forget, x_new, x_out] = of_input;
            let [h_input, h_forget, h_new, h_out] = own;
            let input = (x_input + h_input).sigmoid();
            let forget = (x_forget + h_forget).sigmoid();
            let new = (x_new + h_new).tanh();
            let out = (x_out + h_out).sigmoid();
            let next = forget * cell.cast::<T::Computed>() + input * new;
            (state, cell) = eval(((out * next.tanh()).cast::<T>(), next.cast::<T>()))?;
            states.push(state.clone());
        }
        Ok((steps.all(&products.of_steps, &states)?, (state, cell)))
    }
}

/// Returns the elements of an array in the accumulation type.
#[track_caller]
fn unrounded<T: Float>(array: &Array<T>) -> Result<Array<T::Computed>> {
    let array = array.erased().share();
    array
        .converted(T::DTYPE.computed_in())
        .map(Array::from_erased)
}

/// The lengths of a recurrent layer's arrays.
struct Steps {
    layer: &'static str,
    batch: usize,
    length: usize,
    inputs: usize,
    width: usize,
    gates: usize,
}

impl Steps {
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if the weights have another number of gates, or
    /// `x` is not of shape `[batch, length, inputs]`.
    #[track_caller]
    fn of<T: Float>(
        (layer, gates): (&'static str, usize),
        x: &Array<T>,
        [of_input, of_state]: [&Array<T>; 2],
    ) -> Result<Self> {
        if let (&[batch, length, inputs], &[rows, own], &[across, width]) =
            (x.shape(), of_input.shape(), of_state.shape())
            && inputs == own
            && [rows, across] == [width.saturating_mul(gates); 2]
        {
            return Ok(Self {
                layer,
                batch,
                length,
                inputs,
                width,
                gates,
            });
        }
        let [x, of_input, of_state] = [x, of_input, of_state].map(|own| *own.layout().shape());
        let text = format!(
            "{layer}: x has the shape {x}, expected [batch, length, inputs] for weights of shapes {of_input} and {of_state}"
        );
        Err(Error::new(ErrorKind::ShapeMismatch, text))
    }

    #[track_caller]
    fn check_biases<T: Float>(&self, biases: [&Array<T>; 2]) -> Result<()> {
        let length = self.gates * self.width;
        let mut biases = biases.into_iter();
        let Some(other) = biases.find(|own| own.shape() != [length]) else {
            return Ok(());
        };
        let (layer, shape) = (self.layer, other.layout().shape());
        let text = format!("{layer}: a bias has the shape {shape}, expected [{length}]");
        Err(Error::new(ErrorKind::ShapeMismatch, text))
    }

    /// Returns the initial state: `given`, or zeros.
    #[track_caller]
    fn first<T: Float>(
        &self,
        name: &str,
        x: &Array<T>,
        given: Option<&Array<T>>,
    ) -> Result<Array<T>> {
        let expected = [self.batch, self.width];
        let Some(given) = given else {
            let _device = x.device().enter();
            return Array::zeros(expected);
        };
        if given.shape() == expected {
            return Ok(given.clone());
        }
        let (layer, shape) = (self.layer, given.layout().shape());
        let text = format!("{layer}: the {name} has the shape {shape}, expected {expected:?}");
        Err(Error::new(ErrorKind::ShapeMismatch, text))
    }

    /// Returns the unrounded product of a state with a weight, plus the addend if there is one. A
    /// narrow type requires an addend.
    #[track_caller]
    fn product<T: Float>(
        &self,
        state: &Array<T>,
        weight: &Array<T>,
        addend: Option<&Array<T::Computed>>,
    ) -> Result<Array<T::Computed>> {
        let (state, weight) = (state.erased(), weight.erased());
        let sums = match addend {
            Some(addend) => state.matmul_plus(weight, addend.erased())?,
            None => state.matmul(weight)?,
        };
        Ok(Array::from_erased(sums))
    }

    /// Returns zeros that broadcast to the products of a step, if `T` is narrow.
    #[track_caller]
    fn zeros<T: Float>(&self, x: &Array<T>) -> Result<Option<Array<T::Computed>>> {
        if !is_narrow(T::DTYPE) {
            return Ok(None);
        }
        let _device = x.device().enter();
        Array::zeros([1, self.gates * self.width]).map(Some)
    }

    /// Returns views of equal parts along the last axis.
    #[track_caller]
    fn parts<T: Float, const N: usize>(&self, whole: &Array<T>) -> Result<[Array<T>; N]> {
        let axis = whole.ndim() - 1;
        let part = |at: usize| {
            let own = at * self.width..(at + 1) * self.width;
            Ok(whole.viewed(whole.layout().part(axis, own, 1)?))
        };
        let parts: Result<Vec<_>> = (0..N).map(part).collect();
        let parts: Result<[Array<T>; N], _> = parts?.try_into();
        Ok(parts.unwrap_or_else(|_| unreachable!("the number of parts is unchanged")))
    }

    /// Returns the states of all steps in one array.
    #[track_caller]
    fn all<T: Float>(
        &self,
        products: &Array<T::Computed>,
        states: &[Array<T>],
    ) -> Result<Array<T>> {
        if states.is_empty() {
            // The array has no elements, but it is a view of the products, so that a tape tracks
            // it.
            let none = products.layout().part(2, 0..self.width, 1)?;
            return products.viewed(none).cast::<T>().eval_unfused();
        }
        stack(&states.iter().collect::<Vec<_>>(), 1)
    }
}

/// The unrounded products of the inputs of several steps with a weight, plus a bias. A bias that
/// each step adds would cost a reduction over the batch in each step's backward pass.
struct InputProducts<'a, T: Float> {
    steps: &'a Steps,
    x: &'a Array<T>,
    /// The weight, transposed.
    weight: Array<T>,
    bias: Array<T::Computed>,
    /// The number of steps whose products are computed together.
    together: usize,
    /// The products of the group of steps that contains the last step that was read.
    of_steps: Array<T::Computed>,
}

/// The number of rows of products of a narrow type that are computed together. The products are in
/// `f32`, so all rows would need twice the memory of products in `T`. More rows are not faster.
const ROWS: usize = 256;

impl<'a, T: Float> InputProducts<'a, T> {
    #[track_caller]
    fn of(
        steps: &'a Steps,
        x: &'a Array<T>,
        (weight, bias): (&Array<T>, Array<T::Computed>),
    ) -> Result<Self> {
        let together = match is_narrow(T::DTYPE) {
            true => (ROWS / steps.batch.max(1)).clamp(1, steps.length.max(1)),
            false => steps.length,
        };
        let weight = weight.transpose()?;
        let of_steps = products(steps, x, (&weight, &bias), 0..together.min(steps.length))?;
        Ok(Self {
            steps,
            x,
            weight,
            bias,
            together,
            of_steps,
        })
    }

    /// Returns the products of a step. Steps must be read in order.
    #[track_caller]
    fn at(&mut self, step: usize) -> Result<Array<T::Computed>> {
        let own = step % self.together;
        if step > 0 && own == 0 {
            let end = self.steps.length.min(step + self.together);
            let factors = (&self.weight, &self.bias);
            self.of_steps = products(self.steps, self.x, factors, step..end)?;
        }
        let own = self.of_steps.layout().part(1, own..own + 1, 1)?;
        self.of_steps.viewed(own).squeeze(1)
    }
}

/// Returns the products of the inputs of a range of steps with a weight, plus a bias.
#[track_caller]
fn products<T: Float>(
    steps: &Steps,
    x: &Array<T>,
    (weight, bias): (&Array<T>, &Array<T::Computed>),
    range: Range<usize>,
) -> Result<Array<T::Computed>> {
    let length = range.len();
    let x = match length == steps.length {
        true => x.clone(),
        false => x.viewed(x.layout().part(1, range, 1)?),
    };
    let rows = x.reshape([steps.batch * length, steps.inputs])?;
    let products = product_with_bias(rows.erased(), weight.erased(), bias)?;
    products.reshape([steps.batch, length, steps.gates * steps.width])
}
