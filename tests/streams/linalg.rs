//! Factorizations in the order of streams.

use cachescope::{Array, Result, linalg};

use crate::streams::device;

#[test]
fn factorizations_wait_for_the_stream_that_wrote() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let (a, b) = {
        let _guard = stream.enter();
        let a = Array::from_slice(&[2.0_f64, 0.0, 0.0, 4.0], [2, 2])?;
        (a, Array::from_slice(&[2.0, 8.0], 2)?)
    };
    let determinant = linalg::det(&a)?;
    let (q, r) = linalg::qr(&a)?;
    assert_eq!(linalg::solve(&a, &b)?.to_vec()?, [1.0, 2.0]);
    assert_eq!(linalg::svdvals(&a)?.to_vec()?, [4.0, 2.0]);
    assert_eq!(linalg::eigvalsh(&a)?.to_vec()?, [2.0, 4.0]);
    assert_eq!(determinant.item()?, 8.0);
    assert!((q.matmul(&r)? - &a).norm()?.item()? < 1e-14);
    Ok(())
}

#[test]
fn a_writer_waits_for_the_factorizations_that_read() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut a = Array::from_slice(&[2.0_f64, 0.0, 0.0, 4.0], [2, 2])?;
    let stream = device.new_stream()?;
    // Before `fill`, no read waits for these results.
    let (determinant, (q, r)) = {
        let _guard = stream.enter();
        (linalg::det(&a)?, linalg::qr(&a)?)
    };
    let before = a.to_uncached()?;
    a.fill(7.0)?;
    assert_eq!(determinant.item()?, 8.0);
    assert!((q.matmul(&r)? - &before).norm()?.item()? < 1e-14);
    Ok(())
}

#[test]
fn blocks_that_a_factorization_had_serve_again_behind_it() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let _scope = device.scope("linalg").enter();
    let mut determinants = Vec::new();
    for scale in 1..5 {
        let a = (Array::<f64>::eye(3)? * f64::from(scale)).eval()?;
        determinants.push(linalg::det(&a)?);
    }
    let values = determinants.iter().map(Array::item);
    assert_eq!(
        values.collect::<Result<Vec<f64>>>()?,
        [1.0, 8.0, 27.0, 64.0]
    );
    Ok(())
}
