//! Logistic regression: recognises handwritten digits by their pixels, with a weight for each pair
//! of a pixel and a digit. The weights are learnt by gradient descent.

use std::path::Path;

use cachescope::ndarray::s;
use cachescope::prelude::*;

use shared::digits::{CLASSES, Digits, PIXELS};
use shared::failure::Failure;
use shared::savings;

const STEPS: usize = 500;
const RATE: f32 = 2.0;
/// The number of training images. The other images test the result.
const TRAINED: usize = 1400;

/// Returns the probability of every digit for every image: the softmax of the image's scores.
fn probabilities(
    images: &Array<f32>,
    weights: &Array<f32>,
    bias: &Array<f32>,
) -> Result<Array<f32>> {
    let scores = (images.matmul(weights)? + bias).eval()?;
    let powers = (&scores - scores.max_axis(1)?.unsqueeze(1)?).exp().eval()?;
    let totals = powers.sum_axis(1)?.unsqueeze(1)?;
    (powers / totals).eval()
}

fn run(digits: &Digits) -> Result<f64> {
    let count = digits.labels.len();
    let images = Array::from_slice(&digits.pixels, [count, PIXELS])?;
    let labels = Array::from_slice(&digits.labels, count)?;
    let (known, known_labels) = (
        images.slice(s![..TRAINED, ..])?,
        labels.slice(s![..TRAINED])?,
    );
    let wanted = known_labels
        .unsqueeze(1)?
        .eq(Array::arange(0, CLASSES as i64, 1)?);
    let wanted = wanted.cast::<f32>().eval()?;

    let mut weights = Array::zeros([PIXELS, CLASSES])?;
    let mut bias = Array::zeros(CLASSES)?;
    savings::watch("descent");
    for step in 1..=STEPS {
        cache_scope!("descent", {
            let guessed = probabilities(&known, &weights, &bias)?;
            let error = ((&guessed - &wanted) / TRAINED as f32).eval()?; // the scores' gradient
            let d_weights = known.transpose()?.matmul(&error)?;
            weights.update(|w| w - RATE * &d_weights)?;
            let d_bias = error.sum_axis(0)?;
            bias.update(|b| b - RATE * &d_bias)?;
            if step % 100 == 0 {
                let loss = -(&wanted * guessed.ln()).sum()?.item()? / TRAINED as f32;
                println!("step {step}: loss {loss:.4}");
            }
        });
    }
    savings::print("descent");

    let others = images.slice(s![TRAINED.., ..])?;
    let guesses = probabilities(&others, &weights, &bias)?.argmax_axis(1)?;
    guesses.eq(labels.slice(s![TRAINED..])?).mean()?.item()
}

fn main() -> Result<(), Failure> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits.csv.gz");
    let accuracy = run(&Digits::read(&file)?)?;
    println!(
        "\nof the images that it has not seen it tells {:.1} % right",
        accuracy * 100.0
    );
    assert!(accuracy > 0.9, "it should have learnt more than that");
    Ok(())
}
