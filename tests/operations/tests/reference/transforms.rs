//! Fourier transforms, by name. Each new transform needs a row. In the files, complex numbers are
//! two arrays of real and imaginary parts.

use cachescope::fft::{self, Spectrum};
use cachescope::{Array, Complex, Result, complex};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    by_type!(trial, &element[..], transforms: f32 f64);
}

fn transforms<T>(trial: &mut Trial<'_>)
where
    T: Stored + fft::Signal<Spectrum = Complex<T>>,
    Complex<T>: Spectrum<Part = T>,
{
    let x = trial.input::<T>(0);
    let z = |trial: &Trial<'_>| complex(&x, trial.input::<T>(1)).eval().unwrap();
    let axis = |position| trial.axis(position);
    match trial.op() {
        "fft" => trial.gives_both(parts(fft::fft(&z(trial), axis(0)))),
        "ifft" => trial.gives_both(parts(fft::ifft(&z(trial), axis(0)))),
        "fft2" => trial.gives_both(parts(fft::fft2(&z(trial)))),
        "ifft2" => trial.gives_both(parts(fft::ifft2(&z(trial)))),
        "rfft" => trial.gives_both(parts(fft::rfft(&x, axis(0)))),
        "irfft" => trial.gives(fft::irfft(&z(trial), trial.count(0), axis(1))),
        "fftshift" => trial.gives(fft::fftshift(&x, axis(0))),
        "ifftshift" => trial.gives(fft::ifftshift(&x, axis(0))),
        "fftfreq" => trial.gives(fft::fftfreq(trial.count(0), trial.arg::<T>(1))),
        "rfftfreq" => trial.gives(fft::rfftfreq(trial.count(0), trial.arg::<T>(1))),
        _ => {}
    }
}

fn parts<T>(z: Result<Array<Complex<T>>>) -> Result<(Array<T>, Array<T>)>
where
    T: Stored,
    Complex<T>: Spectrum<Part = T>,
{
    let z = z?;
    Ok((z.re().eval()?, z.im().eval()?))
}
