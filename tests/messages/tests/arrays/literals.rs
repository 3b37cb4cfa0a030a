use cachescope::{Array, Result, elementwise, select};

elementwise! {
    fn leaky(x: f32, slope: f32) -> f32 { if x < 0.0 { x * slope } else { x } }
}

// Integers for floats.
fn integers(a: &Array<f32>, target: &mut Array<f32>) -> Result<()> {
    let _ = a * 2;
    let _ = (a + 1.0) * 2;
    let _ = 2 * a;
    let _ = 1 - a.clone();
    let _ = a.maximum(0);
    let _ = a.powf(2);
    let _ = a.lt(0);
    let _ = ((a - 1.0) * (a + 2.0) / (a * 2.0) + (a - 3.0).exp().sin().relu() * (a + 1.0)).powf(2);
    let _ = a.clamp(0.0, 1);
    let _ = leaky(a, 2);
    let _ = select(a.lt(0.0), 0, a);
    target.assign(0)?;
    target.fill(0)?;
    Ok(())
}

// These are none.
fn matching(n: &Array<i64>, count: &Array<i32>) {
    let _ = 2 * n + 1;
    let _ = 2 * count.clone() - 1;
    let _ = 2 * (n + 1) % 3;
}

fn main() {}
