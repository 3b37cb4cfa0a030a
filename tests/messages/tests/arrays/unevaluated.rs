use cachescope::ndarray::s;
use cachescope::{Array, Expr, Lazy, Result};

fn deep(a: &Array<f32>, b: &Array<f32>) -> Lazy<impl Expr<Item = f32> + use<>> {
    ((a - b) * (a + b) / (a * 2.0) + (b - 3.0).exp().sin().relu() * (a + 1.0) % b).square()
}

// An array's methods.
fn methods(a: &Array<f32>, b: &Array<f32>, n: &Array<i64>) -> Result<()> {
    (a + b).to_vec()?;
    ((a - b) * (a + b) / (a * 2.0) + (b - 3.0).exp().sin().relu() * (a + 1.0) % b).to_vec()?;
    ((a - b) * (a + b) / (a * 2.0) + (b - 3.0).exp().sin().relu() * (a + 1.0) % b).matmul(b)?;
    deep(a, b).reshape([2, 2])?;
    deep(a, b).transpose()?.item()?;
    deep(a, b).slice(s![.., 0])?;
    deep(a, b).take(n, 0)?;
    let _count = deep(a, b).len();
    Ok(())
}

fn main() {}
