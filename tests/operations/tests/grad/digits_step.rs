//! The step of the example `train_digits`, compared with a step with hand-written gradients.

use cachescope::grad::optim::Sgd;
use cachescope::grad::value_and_grad;
use cachescope::{Array, Generator, Result};

use shared::by_hand::Model;
use shared::dataset::Dataset;

/// The weights and biases of both layers.
type Weights = [Array<f32>; 4];

fn loss(weights: &Weights, batch: &Dataset) -> Result<Array<f32>> {
    let [hidden, first, output, second] = weights;
    let hidden = (batch.images.matmul(hidden)? + first).relu().eval()?;
    (hidden.matmul(output)? + second)
        .eval()?
        .cross_entropy(&batch.labels)
}

#[test]
fn steps_by_gradients_are_those_by_hand() -> Result<()> {
    let mut generator = Generator::new(11);
    let mut by_hand = Model::new(32, &mut generator)?;
    let copy = |array: &Array<f32>| array.lazy().eval();
    let mut weights = [
        copy(&by_hand.hidden.weights.value)?,
        Array::zeros(32)?,
        copy(&by_hand.output.weights.value)?,
        Array::zeros(10)?,
    ];
    let batch = Dataset {
        images: Array::rand_with(&mut generator, [64, 64])?,
        labels: Array::randint_with(&mut generator, 0, 10, 64)?,
    };
    let mut optimizer = Sgd::new(0.1).momentum(0.9);
    for _ in 0..10 {
        let sum = by_hand.step(&batch)?.item()?;
        let (mean, gradients) = value_and_grad(&weights, |weights| loss(weights, &batch))?;
        optimizer.step(&mut weights, &gradients)?;
        assert!((sum / 64.0 - mean.item()?).abs() < 1e-4);
    }
    for (own, other) in [
        (&weights[0], &by_hand.hidden.weights.value),
        (&weights[2], &by_hand.output.weights.value),
    ] {
        let apart = (own - other).abs().max()?.item()?;
        assert!(apart < 1e-4, "{apart}");
    }
    Ok(())
}
