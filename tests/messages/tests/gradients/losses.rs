use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, Result};

// Losses that are not arrays.
fn losses(x: &Array<f32>) -> Result<()> {
    value_and_grad(x, |x| x.square().sum()?.item())?;
    value_and_grad(x, |x| Ok(x.square().sum()))?;
    value_and_grad(&0.5_f32, |_| Array::<f32>::ones([]))?;
    Ok(())
}

// Fields that hold no parameters.
#[derive(Parameters)]
struct Layer {
    weight: Array<f32>,
    rate: f32,
}

fn main() {}
