//! Power iteration: finds the largest eigenvalue of a symmetric matrix, and its eigenvector. Each
//! step multiplies a vector by the matrix (von Mises and Pollaczek-Geiringer 1929).

use cachescope::Generator;
use cachescope::prelude::*;
use shared::savings;

const N: usize = 500;
const STEPS: usize = 200;
const TOLERANCE: f64 = 1e-9;

/// Returns the Euclidean norm of a vector.
fn length(vector: &Array<f64>) -> Result<f64> {
    Ok(vector.square().sum()?.item()?.sqrt())
}

fn main() -> Result<()> {
    let mut generator = Generator::new(3);
    // All columns have a common component. Therefore the largest eigenvalue of `matrix` is much
    // larger than the other eigenvalues.
    let rectangle = (Array::<f64>::randn_with(&mut generator, [N, N / 2])? + 0.2).eval()?;
    let matrix = (rectangle.matmul(&rectangle.transpose()?)? / N as f64).eval()?;
    let start = Array::<f64>::randn_with(&mut generator, N)?;

    let mut vector = (&start / length(&start)?).eval()?;
    let mut eigenvalue = 0.0;
    savings::watch("iteration");
    for step in 1..=STEPS {
        let residual = cache_scope!("iteration", {
            let image = matrix.matmul(&vector)?;
            eigenvalue = (&image * &vector).sum()?.item()?; // Rayleigh's quotient
            let residual = (&image - eigenvalue * &vector).eval()?;
            vector.assign(&image / length(&image)?)?; // in place: no array leaves the scope
            length(&residual)? / eigenvalue
        });
        if residual < TOLERANCE {
            println!("settled after {step} steps");
            break;
        }
    }
    savings::print("iteration");

    let image = matrix.matmul(&vector)?;
    let residual = (image - eigenvalue * &vector).abs().max()?.item()?;
    println!("\neigenvalue {eigenvalue:.9}, and A v − λ v is at most {residual:.1e}");
    assert!(residual < 1e-6, "that is no eigenvector");
    let even = Array::<f64>::full(N, (N as f64).powf(-0.5))?;
    let less = (matrix.matmul(&even)? * even).sum()?.item()?;
    assert!(
        eigenvalue > less && less > 0.9 * eigenvalue,
        "that is not the largest"
    );
    Ok(())
}
