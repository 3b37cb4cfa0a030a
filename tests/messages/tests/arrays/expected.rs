use cachescope::{Array, Expr, Lazy, Result};

fn takes(x: &Array<f32>) -> Result<Array<f32>> {
    x.to_uncached()
}

// Expressions where an array is expected. The library cannot customise these messages.
fn bound(a: &Array<f32>, b: &Array<f32>) -> Result<()> {
    let _: Array<f32> = a + b;
    let _: Array<f32> = ((a - b) * 2.0).exp();
    takes(&(a * 2.0))?;
    takes(&opaque(a, b))?;
    a.matmul(&(b - 1.0))?;
    Ok(())
}

fn returned(a: &Array<f32>, b: &Array<f32>) -> Result<Array<f32>> {
    Ok(a / b)
}

fn opaque(a: &Array<f32>, b: &Array<f32>) -> Lazy<impl Expr<Item = f32> + use<>> {
    ((a - b) * (a + b) / (a * 2.0) + (b - 3.0).exp().sin().relu() * (a + 1.0) % b).square()
}

fn main() {}
