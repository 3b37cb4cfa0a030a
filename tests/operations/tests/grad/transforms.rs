//! Gradients of Fourier transforms.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result, complex, fft};

use crate::grad::complex::{spun, weighted};
use crate::grad::differences::{check, numbers};

#[test]
fn transforms_of_every_length() {
    for length in 1..=9 {
        let x = numbers(&[2, length], 1.0);
        check(&x, |x| weighted(&fft::fft(&spun(x)?, 1)?));
        check(&x, |x| weighted(&fft::ifft(&spun(x)?, -1)?));
        check(&x, |x| weighted(&fft::rfft(&(x * x).eval()?, 1)?));
        check(&x, |x| fft::rfft(x, 1)?.abs().sum());
        // For these lengths, the transforms use some or all of the numbers, or append zeros.
        for own in [1, length, 2 * length, 2 * length + 1] {
            let reals = |x: &Array<f64>| fft::irfft(&spun(x)?, own, 1);
            check(&x, |x| (reals(x)? * numbers(&[2, own], 1.0)).sum());
        }
    }
}

#[test]
fn transforms_along_other_axes() {
    let x = numbers(&[2, 4, 3], 1.0);
    check(&x, |x| weighted(&fft::fft(&spun(x)?, 1)?));
    check(&x, |x| weighted(&fft::fft2(&spun(x)?)?));
    check(&x, |x| weighted(&fft::ifft2(&spun(x)?.swap_axes(0, 1)?)?));
    check(&x, |x| weighted(&fft::rfft(x, 0)?));
    check(&x, |x| fft::irfft(&spun(x)?, 5, 1)?.square().sum());
}

#[test]
fn narrow_numbers() -> Result<()> {
    let x = Array::from_slice(&[3.0_f32, 0.0], 2)?;
    let (length, gradient) = value_and_grad(&x, |x| {
        fft::rfft(&complex(x, 4.0).abs().eval()?, 0)?.re().sum()
    })?;
    // The loss is twice the absolute value of the first number.
    assert_eq!(length.item()?, 10.0);
    assert_eq!(gradient.to_vec()?, [1.2, 0.0]);
    Ok(())
}
