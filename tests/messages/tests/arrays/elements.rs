use cachescope::{Array, Result};

// Other types than are due.
fn others(a: &Array<f32>, d: &Array<f64>, n: &Array<i32>) -> Result<()> {
    let _ = a + d;
    let _ = n * 2.5;
    let _ = a * 2usize;
    let _ = a + a.matmul(a);
    let _ = Array::<usize>::zeros(3)?;
    let _ = n.exp();
    Ok(())
}

fn main() {}
