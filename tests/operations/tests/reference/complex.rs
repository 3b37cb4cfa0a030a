//! Operations on complex numbers, by name. Each new operation needs a row.

use cachescope::{AnyElement, Array, Complex, Float, Number, complex};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    match trial.element(0) {
        "c32" => numbers::<f32>(trial),
        "c64" => numbers::<f64>(trial),
        "f32" => of_parts::<f32>(trial),
        _ => of_parts::<f64>(trial),
    }
}

fn of_parts<R: Stored + Float>(trial: &mut Trial<'_>)
where
    Complex<R>: Stored,
{
    let (re, im) = (trial.input::<R>(0), trial.input::<R>(1));
    trial.gives(complex(&re, &im).eval());
}

fn numbers<R: Stored + Float>(trial: &mut Trial<'_>)
where
    Complex<R>: Stored + Number<Part = R, Total = Complex<R>, Average = Complex<R>>,
{
    let x = trial.input::<Complex<R>>(0);
    let other = |trial: &Trial<'_>, at| -> Array<Complex<R>> { trial.input(at) };
    match trial.op() {
        "add" => trial.gives((&x + other(trial, 1)).eval()),
        "sub" => trial.gives((&x - other(trial, 1)).eval()),
        "mul" => trial.gives((&x * other(trial, 1)).eval()),
        "div" => trial.gives((&x / other(trial, 1)).eval()),
        "mul_add" => trial.gives(x.mul_add(other(trial, 1), other(trial, 2)).eval()),
        "square" => trial.gives(x.square().eval()),
        "neg" => trial.gives((-&x).eval()),
        "abs" => trial.gives(x.abs().eval()),
        "re" => trial.gives(x.re().eval()),
        "im" => trial.gives(x.im().eval()),
        "conj" => trial.gives(x.conj().eval()),
        "eq" => trial.gives(x.eq(other(trial, 1)).eval()),
        "ne" => trial.gives(x.ne(other(trial, 1)).eval()),
        "cast" => casts(trial, &x),
        "sum" => trial.gives(x.sum()),
        "mean" => trial.gives(x.mean()),
        "prod" => trial.gives(x.prod()),
        "sum_axis" => trial.gives(x.sum_axis(trial.axis(0))),
        "cumsum" => trial.gives(x.cumsum(trial.axis(0))),
        "cumprod" => trial.gives(x.cumprod(trial.axis(0))),
        "matmul" => trial.gives(x.matmul(&other(trial, 1))),
        _ => {}
    }
}

fn casts<T: AnyElement>(trial: &mut Trial<'_>, x: &Array<T>) {
    match trial.output_element() {
        "c32" => trial.gives(x.cast::<Complex<f32>>().eval()),
        "c64" => trial.gives(x.cast::<Complex<f64>>().eval()),
        "bool" => trial.gives(x.cast::<bool>().eval()),
        "f32" => trial.gives(x.cast::<f32>().eval()),
        "f64" => trial.gives(x.cast::<f64>().eval()),
        "i32" => trial.gives(x.cast::<i32>().eval()),
        _ => {}
    }
}
