use cachescope::Array;

// Numbers of other types than the elements.
fn numbers(x: &Array<f32>, rate: f64, count: usize) {
    let _ = x * rate;
    let _ = (x + 1.0) * rate;
    let _ = x / count;
    let _ = x.maximum(0.0_f64);
    let _ = x.lt(rate);
}

// These compile.
fn matching(x: &Array<f32>, d: &Array<f64>, rate: f64) {
    let _ = 2.0 * x + 1.0;
    let _ = 2.0 / x.clone() * rate as f32;
    let _ = rate * d % 2.0;
    let _ = 1.0 - 2.0 * (x + 1.0);
    let _ = rate * (d + 1.0);
}

fn main() {}
