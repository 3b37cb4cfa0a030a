#![deny(unused_must_use)]

use cachescope::{Array, BoxedLazy, Expr, Lazy, Result, complex, elementwise, select, update};

elementwise! {
    fn leaky(x: f32, slope: f32) -> f32 { if x < 0.0 { x * slope } else { x } }
}

fn opaque(a: &Array<f32>) -> Lazy<impl Expr<Item = f32> + use<>> {
    a * 2.0
}

fn boxed(a: &Array<f32>) -> BoxedLazy<f32> {
    a.exp().boxed()
}

// Expressions that nothing evaluates.
fn dropped(a: &Array<f32>, b: &Array<f32>, mask: &Array<bool>) {
    a.exp();
    complex(a, b);
    a.maximum(b);
    a.cast::<f64>();
    a.lazy();
    a + b;
    -a;
    (a + 1.0).sqrt();
    select(mask, a, b);
    leaky(a, 0.1);
    opaque(a);
    boxed(a);
}

// These are evaluated.
fn used(a: &mut Array<f32>, b: &mut Array<f32>) -> Result<()> {
    a.assign(b.exp())?;
    a.update(|a| a + 1.0)?;
    update((a, b), |(a, b)| (&a + &b, a * b))?;
    Ok(())
}

fn main() {}
