//! Fourier transforms in the order of streams.

use cachescope::{Array, Complex, Result, fft};

use crate::streams::device;

type C64 = Complex<f64>;

fn row() -> Result<Array<C64>> {
    Array::from_slice(&[1.0, 2.0, 3.0, 4.0].map(C64::from), 4)
}

const SPECTRUM: [C64; 4] = [
    C64::new(10.0, 0.0),
    C64::new(-2.0, 2.0),
    C64::new(-2.0, 0.0),
    C64::new(-2.0, -2.0),
];

#[test]
fn transforms_wait_for_the_stream_that_wrote() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let stream = device.new_stream()?;
    let x = {
        let _guard = stream.enter();
        row()?
    };
    let spectrum = fft::fft(&x, 0)?;
    let matrix = fft::fft2(&x.reshape([2, 2])?)?;
    let half = fft::rfft(&x.re().eval()?, 0)?;
    let again = fft::irfft(&half, 4, 0)?;
    assert_eq!(spectrum.to_vec()?, SPECTRUM);
    assert_eq!(matrix.to_vec()?, [10.0, -2.0, -4.0, 0.0].map(C64::from));
    assert_eq!(half.to_vec()?, SPECTRUM[..3]);
    assert_eq!(again.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn a_writer_waits_for_the_transforms_that_read() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let mut x = row()?;
    let columns = x.reshape([4, 1])?.broadcast_to([4, 3])?;
    let stream = device.new_stream()?;
    // Before `fill`, no read waits for these results.
    let (spectrum, along) = {
        let _guard = stream.enter();
        (fft::fft(&x, 0)?, fft::fft(&columns, 0)?)
    };
    drop(columns);
    x.fill(C64::ZERO)?;
    assert_eq!(spectrum.to_vec()?, SPECTRUM);
    assert_eq!(along.to_vec()?, SPECTRUM.map(|value| [value; 3]).concat());
    Ok(())
}

#[test]
fn blocks_that_a_transform_had_serve_again_behind_it() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let _scope = device.scope("fft").enter();
    let mut found = Vec::new();
    for scale in 1..5 {
        let x = (row()? * C64::from(f64::from(scale))).eval()?;
        found.push(fft::ifft(&fft::fft(&x.reshape([2, 2])?, 0)?, 0)?);
    }
    for (scale, found) in (1..5).zip(found) {
        let wanted = [1.0, 2.0, 3.0, 4.0].map(|value| C64::from(value * f64::from(scale)));
        assert_eq!(found.to_vec()?, wanted);
    }
    Ok(())
}
