use cachescope::{Array, Result, select};

// Two literals, whose type only a result determines.
fn chosen(a: &Array<f32>, mask: &Array<bool>) -> Result<()> {
    let count = select(mask, 1.0, 0.0).sum()?;
    let _ = a * count;
    let mean = select(mask, 1.0, 0.0).eval()?.mean()?;
    let _ = a - mean;
    Ok(())
}

// Literals whose type the other operand determines.
fn inferred(a: &mut Array<f32>, mask: &Array<bool>) -> Result<()> {
    let chosen = select(mask, 1.0, 0.0).eval()?;
    let _: Array<f32> = (&*a * select(mask, 1.0, 0.0) + chosen).eval()?;
    let typed = select(mask, 1.0_f32, 0.0).sum()?;
    a.assign(select(mask, 1.0, 0.0) * typed)
}

fn main() {}
