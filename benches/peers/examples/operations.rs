//! Times this library's operations on whole arrays, for a script that compares them with NumPy.
//! Each input line is `NAME SIDE TIMES`. `NAME` is an operation. `SIDE` is the number of rows of
//! its square matrices, and `TIMES` is the number of runs. The output line is the total time of the
//! runs in nanoseconds. For the input line `names`, the output is the list of all names.
//!
//! ```text
//! $ echo 'nonzero 256 10' | cargo run --release --manifest-path benches/peers/Cargo.toml --example operations
//! ```

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use cachescope::{
    Array, Complex, ConvOptions, PadMode, Result, attention, cache_scope, complex, einsum, fft,
    linalg,
};
use candle_core::{Device, Tensor};

type Run = Box<dyn FnMut() -> Result<()>>;

/// A row of the table: the name of an operation, and the function that prepares it. The argument of
/// the function is the number of rows of the square matrices.
type Row = (&'static str, fn(usize) -> Result<Run>);

/// Defines the table of operations. A row has operands, which are prepared in advance, and a timed
/// operation.
macro_rules! rows {
    ($($name:literal |$side:ident| { $($prepare:stmt;)* } => $once:expr;)+) => {
        &[$(($name, |$side| {
            $($prepare)*
            Ok(Box::new(move || {
                black_box($once);
                Ok(())
            }))
        }),)+]
    };
}

/// Returns a square matrix of random elements between 0 and 1.
fn matrix(side: usize) -> Result<Array<f32>> {
    Array::rand([side, side])
}

/// Returns a vector with `side * side` random elements between 0 and 1.
fn vector(side: usize) -> Result<Array<f32>> {
    Array::rand(side * side)
}

/// Returns a well-conditioned square matrix of `f64`.
fn regular(side: usize) -> Result<Array<f64>> {
    (Array::<f64>::rand([side, side])? + Array::<f64>::eye(side)? * side as f64).eval()
}

fn symmetric(side: usize) -> Result<Array<f64>> {
    let a = Array::<f64>::rand([side, side])?;
    (&a + a.transpose()?).eval()
}

fn spectra(side: usize) -> Result<Array<Complex<f64>>> {
    complex(
        Array::<f64>::rand([side, side])?,
        Array::<f64>::rand([side, side])?,
    )
    .eval()
}

const ROWS: &[Row] = rows! {
    "nonzero" |side| { let mask = vector(side)?.gt(0.5).eval()?; } => mask.nonzero()?;
    "select_by" |side| { let x = vector(side)?; let mask = x.gt(0.5).eval()?; } => x.select_by(&mask)?;
    "masked_assign" |side| { let mut x = vector(side)?; let mask = x.gt(0.5).eval()?; } => x.masked_assign(&mask, 2.0)?;
    "scatter" |side| {
        let mut x = vector(side)?;
        let index = Array::<i64>::permutation(side * side)?;
        let source = vector(side)?;
    } => x.scatter(&index, &source, 0)?;
    "scatter along rows" |side| {
        let mut x = matrix(side)?;
        let index = Array::<i64>::randint(0, side as i64, [side, side])?;
        let source = matrix(side)?;
    } => x.scatter(&index, &source, -1)?;
    "scatter_add" |side| {
        let mut x = vector(side)?;
        let index = Array::<i64>::permutation(side * side)?;
        let source = vector(side)?;
    } => x.scatter_add(&index, &source, 0)?;
    "take" |side| { let x = vector(side)?; let index = Array::<i64>::permutation(side * side)?; } => x.take(&index, 0)?;
    "cumprod" |side| { let x = matrix(side)?; } => x.cumprod(-1)?;
    "diff" |side| { let x = matrix(side)?; } => x.diff(-1)?;
    "roll" |side| { let x = matrix(side)?; } => x.roll(3, -1)?;
    "median" |side| { let x = matrix(side)?; } => x.median(-1)?;
    "quantile" |side| { let x = matrix(side)?; } => x.quantile(0.3, -1)?;
    "unique" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => x.unique()?;
    "unique of floats" |side| { let x = vector(side)?; } => x.unique()?;
    "sort" |side| { let x = vector(side)?; } => x.sort(0)?;
    "searchsorted" |side| { let sorted = vector(side)?.sort(0)?; let values = vector(side)?; } => sorted.searchsorted(&values)?;
    "bincount" |side| { let x = Array::<i64>::randint(0, 256, side * side)?; } => x.bincount(256)?;
    "histogram" |side| { let x = vector(side)?; } => x.histogram(64)?;
    "topk" |side| { let x = vector(side)?; } => x.topk(10, 0)?;
    "topk, indices" |side| { let x = vector(side)?; } => x.topk(10, 0)?.1;
    "topk 1000, indices" |side| { let x = vector(side)?; } => x.topk(1000, 0)?.1;
    "bit and" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => (&x & 255).eval()?;
    "shift" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => (&x << 3).eval()?;
    "integer powi" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => x.powi(3).eval()?;
    "integer square" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => x.powi(2).eval()?;
    "integer powi 20" |side| { let x = Array::<i32>::randint(0, 1000, side * side)?; } => x.powi(20).eval()?;
    "i64 powi" |side| { let x = Array::<i64>::randint(0, 1000, side * side)?; } => x.powi(3).eval()?;
    "windows sum" |side| { let x = matrix(side)?; } => x.windows(&[8])?.sum_axis(-1)?;
    "pad reflect" |side| { let x = matrix(side)?; } => x.pad_with(&[(2, 2), (2, 2)], PadMode::Reflect)?;
    "max_pool2d" |side| { let x = matrix(side)?.reshape([1, 1, side, side])?; } => x.max_pool2d([2, 2], [2, 2])?;
    "avg_pool2d" |side| { let x = matrix(side)?.reshape([1, 1, side, side])?; } => x.avg_pool2d([2, 2], [2, 2])?;
    "cross_entropy" |side| {
        let logits = matrix(side)?;
        let classes = Array::<i64>::randint(0, side as i64, side)?;
    } => logits.cross_entropy(&classes)?;
    "layer_norm" |side| {
        let x = matrix(side)?;
        let (weight, bias) = (Array::<f32>::rand(side)?, Array::<f32>::rand(side)?);
    } => x.layer_norm(&weight, &bias, 1e-5)?;
    "rms_norm" |side| { let x = matrix(side)?; let weight = Array::<f32>::rand(side)?; } => x.rms_norm(&weight, 1e-5)?;
    "attention" |side| {
        let [q, k, v] = [0; 3].map(|_| Array::<f32>::rand([side / 64, 8, 128, 64]));
        let (q, k, v) = (q?, k?, v?);
    } => attention(&q, &k, &v, true)?;
    "einsum ij,kj->ik" |side| { let (a, b) = (matrix(side)?, matrix(side)?); } => einsum("ij,kj->ik", (&a, &b))?;
    "einsum ij,ij->i" |side| { let (a, b) = (matrix(side)?, matrix(side)?); } => einsum("ij,ij->i", (&a, &b))?;
    "einsum ij->ji" |side| { let a = matrix(side)?; } => einsum("ij->ji", (&a,))?;
    "kron" |side| { let a = Array::<f32>::rand([side / 8, side / 8])?; let b = Array::<f32>::rand([8, 8])?; } => a.kron(&b)?;
    "small @ many" |side| {
        let a = Array::<f32>::rand([2, 2])?;
        let b = Array::<f32>::rand([side * side / 4, 2, 2])?;
    } => a.matmul(&b)?;
    "many @ small" |side| {
        let a = Array::<f32>::rand([2, 2])?;
        let b = Array::<f32>::rand([side * side / 4, 2, 2])?;
    } => b.matmul(&a)?;
    "fft" |side| { let z = spectra(side)?; } => fft::fft(&z, -1)?;
    "fft f32" |side| { let z = spectra(side)?.cast::<Complex<f32>>().eval()?; } => fft::fft(&z, -1)?;
    "fft of columns" |side| { let z = spectra(side)?; } => fft::fft(&z, 0)?;
    "fft of one row" |side| { let z = spectra(side)?.flatten()?; } => fft::fft(&z, 0)?;
    "ifft" |side| { let z = spectra(side)?; } => fft::ifft(&z, -1)?;
    "rfft" |side| { let x = Array::<f64>::rand([side, side])?; } => fft::rfft(&x, -1)?;
    "irfft" |side| { let z = fft::rfft(&Array::<f64>::rand([side, side])?, -1)?; } => fft::irfft(&z, side, -1)?;
    "fft2" |side| { let z = spectra(side)?; } => fft::fft2(&z)?;
    "solve" |side| { let a = regular(side)?; let b = Array::<f64>::rand([side, 8])?; } => linalg::solve(&a, &b)?;
    "inv" |side| { let a = regular(side)?; } => linalg::inv(&a)?;
    "det" |side| { let a = regular(side)?; } => linalg::det(&a)?;
    "cholesky" |side| { let a = symmetric(side)?; let a = (a + Array::<f64>::eye(side)? * side as f64).eval()?; } => linalg::cholesky(&a)?;
    "qr" |side| { let a = regular(side)?; } => linalg::qr(&a)?;
    "svd" |side| { let a = Array::<f64>::rand([side, side])?; } => linalg::svd(&a)?;
    "eigh" |side| { let a = symmetric(side)?; } => linalg::eigh(&a)?;
    "lstsq" |side| { let a = Array::<f64>::rand([2 * side, side])?; let b = Array::<f64>::rand(2 * side)?; } => linalg::lstsq(&a, &b)?;
    "conv2d" |channels| {
        let x = Array::<f32>::rand([8, channels, 56, 56])?;
        let kernel = Array::<f32>::rand([channels, channels, 3, 3])?;
    } => x.conv2d(&kernel, ConvOptions { padding: [1, 1], ..Default::default() })?;
    "conv2d of candle" |channels| {
        let of = |shape: [usize; 4]| Tensor::rand(0_f32, 1.0, &shape[..], &Device::Cpu).expect("it fits");
        let x = of([8, channels, 56, 56]);
        let kernel = of([channels, channels, 3, 3]);
    } => x.conv2d(&kernel, 1, 1, 1, 1).expect("the shapes fit");
};

fn main() -> io::Result<()> {
    let mut prepared: Option<(String, Run)> = None;
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line == "names" {
            let names: Vec<&str> = ROWS.iter().map(|(name, _)| *name).collect();
            writeln!(out, "{}", names.join(";"))?;
            out.flush()?;
            continue;
        }
        let (task, times) = line.rsplit_once(' ').expect("NAME SIDE TIMES");
        if prepared.as_ref().is_none_or(|(name, _)| name != task) {
            drop(prepared.take());
            prepared = Some((task.to_owned(), prepare(task)));
        }
        let (_, run) = prepared.as_mut().expect("it was put there");
        let times: usize = times.parse().expect("a number of times");
        let start = Instant::now();
        cache_scope!("operations", {
            for _ in 0..times {
                run().expect("the shapes fit");
            }
        });
        writeln!(out, "{}", start.elapsed().as_nanos())?;
        out.flush()?;
    }
    Ok(())
}

fn prepare(task: &str) -> Run {
    let (name, side) = task.rsplit_once(' ').expect("NAME SIDE TIMES");
    let side = side.parse().expect("a number of rows");
    let (_, row) = ROWS.iter().find(|row| row.0 == name).expect("an operation");
    row(side).expect("the operands fit into memory")
}
