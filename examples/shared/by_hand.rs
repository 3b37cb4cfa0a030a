//! A network of two layers, and its training step with hand-written gradients. The example
//! `train_digits` has an equal step with automatic gradients. Benchmarks use the hand-written step.

use cachescope::{Array, Expr, Generator, Lazy, Result, select};

use crate::dataset::Dataset;
use crate::digits::{CLASSES, PIXELS};

const LEARNING_RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

/// 64 pixels → hidden units with relu → 10 scores, one for each digit.
#[derive(Debug)]
pub struct Model {
    /// The hidden layer.
    pub hidden: Layer,
    /// The layer of the scores.
    pub output: Layer,
    /// The classes 0 to 9, which labels are compared with.
    classes: Array<i64>,
}

impl Model {
    /// Makes a network with random weights on the current device.
    pub fn new(hidden_units: usize, generator: &mut Generator) -> Result<Self> {
        Ok(Self {
            hidden: Layer::new(PIXELS, hidden_units, generator)?,
            output: Layer::new(hidden_units, CLASSES, generator)?,
            classes: Array::arange(0, CLASSES as i64, 1)?,
        })
    }

    /// Runs one step of gradient descent on a batch. Returns the sum of all images' losses before
    /// the step, of rank 0.
    pub fn step(&mut self, batch: &Dataset) -> Result<Array<f32>> {
        let hidden = self.hidden.apply(&batch.images)?.relu().eval()?;
        let scores = self.output.apply(&hidden)?.eval()?;
        let (loss, d_scores) = cross_entropy(&scores, &batch.labels, &self.classes)?;

        let mut d_hidden = d_scores.matmul(&self.output.weights.value.transpose()?)?;
        d_hidden.assign(select(hidden.gt(0.0), &d_hidden, 0.0))?;
        self.output.learn(&hidden, &d_scores)?;
        self.hidden.learn(&batch.images, &d_hidden)?;
        Ok(loss)
    }

    /// Returns the fraction of the images whose label has the highest score.
    pub fn accuracy(&self, data: &Dataset) -> Result<f64> {
        let hidden = self.hidden.apply(&data.images)?.relu().eval()?;
        let guesses = self.output.apply(&hidden)?.argmax_axis(1)?;
        guesses.eq(&data.labels).mean()?.item()
    }
}

/// Weights of shape `[inputs, outputs]` and a bias of shape `[outputs]`.
#[derive(Debug)]
pub struct Layer {
    /// The weights, of shape `[inputs, outputs]`.
    pub weights: Parameter,
    bias: Parameter,
}

impl Layer {
    /// Makes random weights of variance 2 / inputs, and a bias of zeros. Through a relu, this
    /// variance preserves the variance of the signal (He et al. 2015).
    fn new(inputs: usize, outputs: usize, generator: &mut Generator) -> Result<Self> {
        let scale = (2.0 / inputs as f32).sqrt();
        let weights = Array::randn_with(generator, [inputs, outputs])? * scale;
        Ok(Self {
            weights: Parameter::new(weights.eval()?)?,
            bias: Parameter::new(Array::zeros(outputs)?)?,
        })
    }

    fn apply(&self, input: &Array<f32>) -> Result<Lazy<impl Expr<Item = f32>>> {
        Ok(input.matmul(&self.weights.value)? + &self.bias.value)
    }

    /// Updates the parameters from the layer's input and the gradient of its output.
    fn learn(&mut self, input: &Array<f32>, d_output: &Array<f32>) -> Result<()> {
        self.weights
            .descend(&input.transpose()?.matmul(d_output)?)?;
        self.bias.descend(&d_output.sum_axis(0)?)
    }
}

/// A trained array and its velocity.
#[derive(Debug)]
pub struct Parameter {
    /// The value.
    pub value: Array<f32>,
    velocity: Array<f32>,
}

impl Parameter {
    fn new(value: Array<f32>) -> Result<Self> {
        let velocity = Array::zeros(value.shape())?;
        Ok(Self { value, velocity })
    }

    fn descend(&mut self, gradient: &Array<f32>) -> Result<()> {
        self.velocity.assign(&self.velocity * MOMENTUM + gradient)?;
        self.value
            .assign(&self.value - &self.velocity * LEARNING_RATE)
    }
}

/// Returns the loss and the gradient with respect to the scores. The loss is the cross-entropy of
/// the softmax, summed over all rows. The gradient is of the mean cross-entropy.
fn cross_entropy(
    scores: &Array<f32>,
    labels: &Array<i64>,
    classes: &Array<i64>,
) -> Result<(Array<f32>, Array<f32>)> {
    let rows = scores.shape()[0] as f32;
    let shifted = scores - scores.max_axis(1)?.unsqueeze(1)?;
    let totals = shifted.clone().exp().sum_axis(1)?.unsqueeze(1)?;
    let log_probabilities = shifted - totals.ln();
    let is_label = labels.unsqueeze(1)?.eq(classes);

    let loss = select(&is_label, -&log_probabilities, 0.0).sum()?;
    let gradient = (log_probabilities.exp() - is_label.cast::<f32>()) / rows;
    Ok((loss, gradient.eval()?))
}
