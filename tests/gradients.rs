//! Gradients of a training step, derived by hand and compared with finite differences. The
//! comparison tests the operations of the step.

use cachescope::{Array, Generator, Result, cache_scope, select};

/// The distance between the two points of a finite difference. In `f64`, the errors of rounding and
/// curvature are about 1e-8.
const STEP: f64 = 1e-4;
const TOLERANCE: f64 = 1e-7;

/// A network of two layers on a few examples, with tanh and the cross-entropy of a softmax.
struct Network {
    inputs: Array<f64>,
    labels: Array<i64>,
    /// The weights and biases of both layers, in order.
    parameters: [Array<f64>; 4],
}

impl Network {
    fn new() -> Result<Self> {
        let mut generator = Generator::new(11);
        let mut random = |shape: &[usize]| Array::<f64>::randn_with(&mut generator, shape);
        Ok(Self {
            inputs: random(&[6, 4])?,
            labels: Array::from_slice(&[0, 2, 1, 1, 2, 0], 6)?,
            parameters: [
                random(&[4, 5])?,
                random(&[5])?,
                random(&[5, 3])?,
                random(&[3])?,
            ],
        })
    }

    /// Returns the activations of the hidden layer, and the logarithms of the probabilities.
    fn forward(&self) -> Result<(Array<f64>, Array<f64>)> {
        let [w, b, v, c] = &self.parameters;
        let hidden = (self.inputs.matmul(w)? + b).tanh().eval()?;
        let scores = (hidden.matmul(v)? + c).eval()?;
        let shifted = (&scores - scores.max_axis(1)?.unsqueeze(1)?).eval()?;
        let totals = shifted.exp().sum_axis(1)?.unsqueeze(1)?;
        Ok((hidden, (shifted - totals.ln()).eval()?))
    }

    fn is_label(&self) -> Result<Array<bool>> {
        let classes = Array::arange(0, 3, 1)?;
        self.labels.unsqueeze(1)?.eq(classes).eval()
    }

    /// Returns the mean cross-entropy.
    fn loss(&self) -> Result<f64> {
        let (_, logarithms) = self.forward()?;
        let chosen = select(self.is_label()?, -&logarithms, 0.0).sum()?;
        Ok(chosen.item()? / self.inputs.shape()[0] as f64)
    }

    /// Returns the gradient of the loss for each parameter, derived by hand.
    fn gradients(&self) -> Result<[Array<f64>; 4]> {
        let (hidden, logarithms) = self.forward()?;
        let count = self.inputs.shape()[0] as f64;
        let d_scores = (logarithms.exp() - self.is_label()?.cast::<f64>()) / count;
        let d_scores = d_scores.eval()?;
        let d_hidden = d_scores.matmul(&self.parameters[2].transpose()?)?;
        let d_inner = (d_hidden * (1.0 - hidden.square())).eval()?;
        Ok([
            self.inputs.transpose()?.matmul(&d_inner)?,
            d_inner.sum_axis(0)?,
            hidden.transpose()?.matmul(&d_scores)?,
            d_scores.sum_axis(0)?,
        ])
    }

    /// Returns the loss after `change` is added to one element of a parameter. Restores the
    /// element.
    fn loss_with(&mut self, which: usize, at: usize, change: f64) -> Result<f64> {
        let parameter = &mut self.parameters[which];
        let places = Array::arange(0, parameter.len() as i64, 1)?.reshape(parameter.shape())?;
        let before = parameter.to_uncached()?;
        parameter.update(|p| p + select(places.eq(at as i64), change, 0.0))?;
        let loss = self.loss();
        self.parameters[which].assign(&before)?;
        loss
    }
}

#[test]
fn gradients_are_those_of_differences() -> Result<()> {
    let mut network = Network::new()?;
    let gradients = network.gradients()?;
    for (which, gradient) in gradients.iter().enumerate() {
        assert_eq!(gradient.shape(), network.parameters[which].shape());
        for (at, &analytic) in gradient.to_vec()?.iter().enumerate() {
            let above = network.loss_with(which, at, STEP / 2.0)?;
            let below = network.loss_with(which, at, -STEP / 2.0)?;
            let difference = (above - below) / STEP;
            assert!(
                (difference - analytic).abs() < TOLERANCE,
                "parameter {which} at {at}: {difference} by differences, {analytic} by hand"
            );
        }
    }
    Ok(())
}

#[test]
fn a_step_down_the_gradient_loses_what_it_promises() -> Result<()> {
    let mut network = Network::new()?;
    // To first order, a step of `rate` times the gradient lowers the loss by `rate` times the
    // gradient's squared norm.
    let rate = 1e-4;
    for _ in 0..20 {
        cache_scope!("descent by hand", {
            let before = network.loss()?;
            let mut promised = 0.0;
            let gradients = network.gradients()?;
            for (parameter, gradient) in network.parameters.iter_mut().zip(&gradients) {
                promised += rate * gradient.square().sum()?.item()?;
                parameter.update(|p| p - rate * gradient)?;
            }
            let lost = before - network.loss()?;
            assert!((lost / promised - 1.0).abs() < 1e-3, "{lost} of {promised}");
        });
    }
    Ok(())
}

#[test]
fn the_probabilities_of_a_row_add_up() -> Result<()> {
    let (_, logarithms) = Network::new()?.forward()?;
    let totals = logarithms.exp().sum_axis(1)?;
    assert!((totals - 1.0).abs().max()?.item()? < 1e-15);
    // Because a row's probabilities sum to 1, the gradient of the row's scores sums to 0.
    let gradients = Network::new()?.gradients()?;
    assert!(gradients[3].sum()?.item()?.abs() < 1e-15);
    Ok(())
}
