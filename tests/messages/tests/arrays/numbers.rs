use cachescope::{Array, Result};

// Numbers of other types than the elements.
fn numbers(x: &Array<f32>, n: &Array<i64>, rate: f64, count: usize) -> Result<()> {
    let _ = x * rate;
    let _ = (x + 1.0) * rate;
    let _ = rate * x;
    let _ = 2.0_f64 * x;
    let _ = 1.0 / x - 1.0_f64;
    let _ = 1.5 * n;
    let _ = x / count;
    let _ = x.maximum(0.0_f64);
    let _ = x.lt(rate);
    Ok(())
}

// These are none.
fn matching(x: &Array<f32>, d: &Array<f64>, rate: f64) {
    let _ = 2.0 * x + 1.0;
    let _ = 2.0 / x.clone() * rate as f32;
    let _ = rate * d % 2.0;
    let _ = 1.0 - 2.0 * (x + 1.0);
    let _ = rate * (d + 1.0);
}

fn inferred(rate: f64) -> Result<()> {
    let x = Array::from_slice(&[1.0, 2.0], 2)?;
    let _ = 2.0 * &x + rate;
    Ok(())
}

fn main() {}
