//! Checks that each operation of the public API has a correct derivative. `listed` checks that each
//! operation has a row in this file.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(feature = "fft")]
use cachescope::fft;
#[cfg(feature = "linalg")]
use cachescope::linalg;
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, Generator, PadMode, Result, attention, concat,
    einsum, meshgrid, select, stack, update,
};
use ndarray::s;

use crate::grad::complex::{self, spun};
use crate::grad::differences::{check, numbers};

pub(crate) type Loss = fn(&Array<f64>) -> Result<Array<f64>>;

/// Returns a weighted sum of all elements. The weights differ, so all gradients differ.
fn weighted(x: &Array<f64>) -> Result<Array<f64>> {
    (x * numbers(x.shape(), 1.0)).sum()
}

fn places(values: &[i64], shape: &[usize]) -> Array<i64> {
    Array::from_slice(values, shape).unwrap()
}

/// Returns a matrix with distinct singular values, which depends on `x`.
#[cfg(feature = "linalg")]
fn regular(x: &Array<f64>) -> Result<Array<f64>> {
    let diagonal = Array::from_slice(&[1.0, 2.0, 4.0, 0.0], 4)?.diag(0)?;
    (x + diagonal.slice(s![.., ..3])?).eval()
}

/// Returns a matrix with distinct positive eigenvalues, which depends on `x`.
#[cfg(feature = "linalg")]
fn positive(x: &Array<f64>) -> Result<Array<f64>> {
    let n = x.shape()[x.ndim() - 1];
    let diagonal = Array::from_vec((1..=n).map(|i| i as f64).collect(), n)?.diag(0)?;
    (x.swap_axes(-1, -2)?.matmul(x)? + diagonal).eval()
}

/// Expands rows `name, shape of x, a loss of x;`.
macro_rules! losses {
    ($($(#[$condition:meta])? $name:ident, $shape:expr, |$x:ident| $loss:expr;)+) => {
        pub(crate) const LOSSES: &[(&str, &[usize], Loss)] =
            &[$($(#[$condition])? (stringify!($name), &$shape, |$x| $loss)),+];
    };
}

losses! {
    matmul, [3, 3], |x| weighted(&x.matmul(x)?);
    dot, [4], |x| x.dot(&x.exp().eval()?);
    outer, [3], |x| weighted(&x.outer(&x.sin().eval()?)?);
    kron, [2, 3], |x| weighted(&x.kron(&x.transpose()?)?);
    kron, [2, 1, 2, 2], |x| weighted(&x.kron(x)?);
    einsum, [3, 3], |x| weighted(&einsum("ij,jk,lk->il", (x, x, &x.exp().eval()?))?);
    einsum, [3, 3], |x| weighted(&einsum("ii->i", (x,))?);
    einsum, [2, 3, 3], |x| weighted(&einsum("bij,bjk->bk", (x, x))?);
    einsum, [3, 3], |x| einsum("ij,ij->", (x, x));
    prod, [5], |x| (x * 1.3).prod();
    prod, [5], |x| (x - 0.13 - 0.073 * 3.0).prod();
    prod_axis, [3, 4, 2], |x| weighted(&x.exp().prod_axis([0, 2])?);
    prod_keepdims, [3, 4], |x| weighted(&x.prod_keepdims(1)?);
    complex, [3, 4], |x| complex::weighted(&spun(x)?);
    #[cfg(feature = "fft")]
    fft, [3, 4], |x| complex::weighted(&fft::fft(&spun(x)?, 0)?);
    #[cfg(feature = "fft")]
    ifft, [3, 4], |x| complex::weighted(&fft::ifft(&spun(x)?, 0)?);
    #[cfg(feature = "fft")]
    fft2, [3, 4], |x| complex::weighted(&fft::fft2(&spun(x)?)?);
    #[cfg(feature = "fft")]
    ifft2, [3, 4], |x| complex::weighted(&fft::ifft2(&spun(x)?)?);
    #[cfg(feature = "fft")]
    rfft, [3, 4], |x| complex::weighted(&fft::rfft(x, 0)?);
    #[cfg(feature = "fft")]
    irfft, [3, 4], |x| weighted(&fft::irfft(&spun(x)?, 6, 1)?);
    #[cfg(feature = "fft")]
    fftshift, [3, 4], |x| weighted(&fft::fftshift(x, 0)?);
    #[cfg(feature = "fft")]
    ifftshift, [3, 4], |x| complex::weighted(&fft::ifftshift(&spun(x)?, 0)?);
    cumsum, [3, 4], |x| weighted(&(x * x).cumsum(1)?);
    cumsum, [3, 4], |x| weighted(&x.cumsum(0)?);
    cumprod, [3, 5], |x| weighted(&(x * 1.7).cumprod(1)?);
    cumprod, [7, 2], |x| weighted(&(x - 0.13 - 0.073 * 3.0).cumprod(0)?);
    cumprod, [1, 2], |x| weighted(&x.cumprod(0)?);
    diff, [2, 5], |x| weighted(&x.diff(1)?);
    sort, [3, 4], |x| weighted(&(x * x).eval()?.sort(0)?);
    topk, [3, 5], |x| weighted(&x.topk(2, 1)?.0);
    median, [3, 4], |x| weighted(&x.median(1)?);
    quantile, [3, 5], |x| weighted(&x.quantile(0.3, 1)?);
    unique, [6], |x| weighted(&x.unique()?);
    diag, [3], |x| weighted(&(x * x).eval()?.diag(1)?);
    diag, [3, 5], |x| weighted(&x.diag(1)?);
    diag, [4, 3], |x| weighted(&x.diag(-2)?);
    tril, [3, 4], |x| weighted(&x.tril(0)?);
    triu, [3, 4], |x| weighted(&x.triu(1)?);
    take, [4, 3], |x| weighted(&x.take(&places(&[2, 0, 2], &[3]), 0)?);
    gather, [2, 3], |x| weighted(&x.gather(&places(&[2, 0, 2, 1], &[2, 2]), 1)?);
    select_by, [2, 3], |x| weighted(&x.select_by(&x.gt(0.5).eval()?)?);
    select_by, [4, 2], |x| {
        weighted(&x.select_by(&Array::from_slice(&[true, false, true, true], 4)?)?)
    };
    select, [5], |x| (select(x.gt(0.5), x * x, x.exp()) * numbers(&[5], 1.0)).sum();
    masked_assign, [5], |x| {
        let mut y = (x * x).eval()?;
        y.masked_assign(&x.gt(0.5).eval()?, x.exp())?;
        weighted(&y)
    };
    scatter_add, [4, 2], |x| {
        let mut y = x.sin().eval()?;
        y.scatter_add(&places(&[1, 0, 1, 1], &[2, 2]), &x.slice(s![..2, ..])?, 0)?;
        weighted(&y)
    };
    scatter, [4, 2], |x| {
        let mut y = x.sin().eval()?;
        y.scatter(&places(&[1, 0, 1, 1], &[2, 2]), &x.slice(s![..2, ..])?, 0)?;
        weighted(&y)
    };
    assign, [4], |x| {
        let mut y = Array::zeros(4)?;
        y.assign(x * x)?;
        weighted(&y)
    };
    slice_mut, [4, 3], |x| {
        let mut y = (x * x).eval()?;
        let before = y.clone();
        y.slice_mut(s![1..;2, ..])?.assign(x.slice(s![0, ..])?.exp())?;
        y.slice_mut(s![.., 0])?.update(|column| column * 3.0)?;
        y.slice_mut(s![0, 1])?.fill(2.0)?;
        weighted(&(y * before).eval()?)
    };
    slice_mut, [3], |x| {
        let mut y = Array::ones([2, 3])?;
        y.slice_mut(s![1, ..])?.assign(x)?;
        weighted(&y.square().eval()?)
    };
    update, [4], |x| {
        let (mut y, mut z) = (x.exp().eval()?, Array::ones(4)?);
        let before = y.clone();
        update((&mut y, &mut z), |(y, z)| (&y * &z * x, y + z))?;
        weighted(&(y * z * before).eval()?)
    };
    concat, [2, 3], |x| weighted(&concat(&[x, &x.exp().eval()?], 1)?);
    stack, [2, 3], |x| weighted(&stack(&[x, &x.exp().eval()?], 1)?);
    split, [4, 3], |x| weighted(&(&x.split(2, 0)?[0] * &x.split(2, 0)?[1]).eval()?);
    repeat, [2, 3], |x| weighted(&x.repeat(3, 0)?);
    repeat, [2, 1, 1, 1, 1, 1, 1, 2], |x| weighted(&x.repeat(2, -1)?);
    shuffle, [5, 2], |x| weighted(&x.shuffle_with(&mut Generator::new(7))?);
    shuffle_with, [4], |x| weighted(&x.shuffle_with(&mut Generator::new(3))?);
    roll, [5, 2], |x| weighted(&x.roll(2, 0)?);
    pad, [2, 3], |x| weighted(&x.pad(&[(1, 0), (2, 1)], 0.5)?);
    pad_with, [3, 4], |x| weighted(&x.pad_with(&[(2, 1), (0, 3)], PadMode::Reflect)?);
    pad_with, [3, 4], |x| weighted(&x.pad_with(&[(2, 1), (0, 3)], PadMode::Edge)?);
    pad_with, [3, 4], |x| weighted(&x.pad_with(&[(2, 1), (0, 3)], PadMode::Wrap)?);
    pad_with, [3, 4], |x| weighted(&x.pad_with(&[(2, 1), (0, 3)], PadMode::Constant(2.0))?);
    windows, [7], |x| weighted(&x.windows(&[3])?.square().eval()?);
    windows, [2, 5, 6], |x| weighted(&x.windows(&[3, 2])?.square().eval()?);
    reshape, [2, 3, 4], |x| weighted(&x.permute(&[1, 0, 2])?.reshape([3, 8])?);
    flatten, [3, 2], |x| weighted(&x.transpose()?.flatten()?);
    transpose, [3, 2], |x| weighted(&x.transpose()?.matmul(x)?);
    permute, [3, 2, 2], |x| weighted(&x.permute(&[2, 0, 1])?.exp().eval()?);
    swap_axes, [3, 2], |x| weighted(&x.swap_axes(0, 1)?.exp().eval()?);
    unsqueeze, [3], |x| weighted(&(x.unsqueeze(1)? * x).eval()?);
    squeeze, [3, 1], |x| weighted(&x.squeeze(1)?.exp().eval()?);
    broadcast_to, [3, 1], |x| weighted(&x.broadcast_to([2, 3, 4])?.exp().eval()?);
    slice, [5, 4], |x| weighted(&x.slice(s![1..;2, ..;-1])?.exp().eval()?);
    flip, [4], |x| weighted(&(x.flip(0)? * x).eval()?);
    cast, [4], |x| weighted(&x.cast::<f64>().square().eval()?);
    to_device, [3, 4], |x| {
        let other = Device::host_with(DeviceConfig::default())?;
        let there = x.slice(s![1.., ..])?.to_device(&other)?.square().eval()?;
        weighted(&(there.to_device(x.device())? * x.slice(s![..2, ..])?).eval()?)
    };
    cross_entropy, [3, 4], |x| x.cross_entropy(&places(&[1, 3, 0], &[3]));
    layer_norm, [3, 4], |x| {
        let (weight, bias) = (x.slice(s![0, ..])?, x.slice(s![1, ..])?.exp().eval()?);
        weighted(&x.layer_norm(&weight, &bias, 1e-5)?)
    };
    layer_norm, [4], |x| weighted(&x.layer_norm(&numbers(&[4], 1.0), x, 1e-5)?);
    rms_norm, [2, 3, 4], |x| weighted(&x.rms_norm(&x.slice(s![0, 1, ..])?, 1e-5)?);
    softmax, [3, 4], |x| weighted(&x.softmax(0)?);
    log_softmax, [3, 4], |x| weighted(&x.log_softmax(1)?);
    max_pool2d, [2, 3, 4, 5], |x| weighted(&x.max_pool2d([2, 2], [2, 2])?);
    max_pool2d, [1, 6, 6], |x| weighted(&x.max_pool2d([3, 2], [1, 2])?);
    max_pool2d, [1, 7, 7], |x| weighted(&x.max_pool2d([5, 5], [1, 2])?);
    avg_pool2d, [2, 3, 4, 5], |x| weighted(&x.avg_pool2d([2, 2], [2, 1])?);
    avg_pool2d, [1, 7, 7], |x| weighted(&x.avg_pool2d([5, 5], [1, 2])?);
    conv1d, [2, 2, 6], |x| {
        let kernel = x.slice(s![.., .., ..3])?.exp().eval()?;
        weighted(&x.conv1d(&kernel, ConvOptions { padding: [0, 1], ..ConvOptions::default() })?)
    };
    conv2d, [2, 2, 4, 5], |x| {
        let kernel = x.slice(s![.., .., ..3, ..2])?.exp().eval()?;
        weighted(&x.conv2d(&kernel, ConvOptions { padding: [1, 2], ..ConvOptions::default() })?)
    };
    conv2d, [2, 4, 6, 5], |x| {
        let kernel = x.slice(s![.., ..2, ..2, ..2])?.exp().eval()?;
        let options = ConvOptions { stride: [2, 3], padding: [1, 0], dilation: [2, 1], groups: 2 };
        weighted(&x.conv2d(&concat(&[&kernel, &kernel], 0)?, options)?)
    };
    conv2d, [1, 2, 3, 3], |x| {
        let kernel = x.slice(s![.., .., ..1, ..1])?.exp().eval()?;
        weighted(&x.conv2d(&kernel, ConvOptions { padding: [2, 1], stride: [2, 1], ..ConvOptions::default() })?)
    };
    conv2d, [2, 2, 3, 3], |x| {
        let kernel = x.slice(s![.., .., ..1, ..1])?.exp().eval()?;
        weighted(&x.conv2d(&kernel, ConvOptions::default())?)
    };
    attention, [2, 4, 3], |x| weighted(&attention(x, &x.exp().eval()?, &x.sin().eval()?, false)?);
    attention, [2, 4, 3], |x| weighted(&attention(x, &x.exp().eval()?, &x.sin().eval()?, true)?);
    attention, [2, 4, 3], |x| {
        let (k, v) = (x.slice(s![..1, ..3, ..])?, x.slice(s![1, ..3, ..2])?);
        weighted(&attention(x, &k, &v, true)?)
    };
    #[cfg(feature = "linalg")]
    solve, [3, 3], |x| weighted(&linalg::solve(&positive(x)?, x)?);
    #[cfg(feature = "linalg")]
    solve, [2, 3, 3], |x| weighted(&linalg::solve(&positive(x)?, &x.slice(s![0, 0, ..])?)?);
    #[cfg(feature = "linalg")]
    inv, [2, 3, 3], |x| weighted(&linalg::inv(&positive(x)?)?);
    #[cfg(feature = "linalg")]
    det, [2, 3, 3], |x| weighted(&linalg::det(x)?);
    #[cfg(feature = "linalg")]
    det, [3, 3], |x| linalg::det(&(x - x.slice(s![..1, ..])?).eval()?);
    #[cfg(feature = "linalg")]
    cholesky, [3, 3], |x| weighted(&linalg::cholesky(&positive(x)?)?);
    #[cfg(feature = "linalg")]
    qr, [2, 4, 3], |x| {
        let (q, r) = linalg::qr(&regular(x)?)?;
        (weighted(&q)? + weighted(&r)?).eval()
    };
    #[cfg(feature = "linalg")]
    qr, [2, 4], |x| {
        let (q, r) = linalg::qr(x)?;
        (weighted(&q)? + weighted(&r)?).eval()
    };
    #[cfg(feature = "linalg")]
    svd, [4, 3], |x| {
        let (u, s, vt) = linalg::svd(&regular(x)?)?;
        // The signs of singular vectors are arbitrary, so only results that do not depend on the
        // signs have a gradient.
        (weighted(&u.square().eval()?)? + weighted(&s)? + weighted(&vt.square().eval()?)?).eval()
    };
    #[cfg(feature = "linalg")]
    svd, [2, 4], |x| {
        let (u, _, vt) = linalg::svd(x)?;
        weighted(&u.matmul(&vt)?)
    };
    #[cfg(feature = "linalg")]
    svdvals, [2, 3, 4], |x| weighted(&linalg::svdvals(x)?);
    #[cfg(feature = "linalg")]
    eigh, [2, 3, 3], |x| {
        let (w, v) = linalg::eigh(&positive(x)?)?;
        (weighted(&w)? + weighted(&v.square().eval()?)?).eval()
    };
    #[cfg(feature = "linalg")]
    eigvalsh, [3, 3], |x| weighted(&linalg::eigvalsh(&positive(x)?)?);
    #[cfg(feature = "linalg")]
    lstsq, [4, 3], |x| weighted(&linalg::lstsq(&regular(x)?, &x.slice(s![.., ..1])?)?);
    #[cfg(feature = "linalg")]
    lstsq, [3, 4], |x| weighted(&linalg::lstsq(x, &x.slice(s![.., 0])?.sin().eval()?)?);
    #[cfg(feature = "linalg")]
    lstsq, [2, 3], |x| weighted(&linalg::lstsq(&(Array::<f64>::eye(3)? + x.slice(s![0, ..])?.sum()? * 0.0).eval()?, &x.transpose()?)?);
    #[cfg(feature = "linalg")]
    norm, [3, 4], |x| linalg::norm(x, linalg::MatrixNorm::Nuclear);
    #[cfg(feature = "linalg")]
    norm, [3, 4], |x| linalg::norm(x, linalg::MatrixNorm::Spectral);
}

/// Expands rows `name, shapes of the operands, a loss of them;` for each operation on several
/// arrays. Each operand in turn is the parameter.
macro_rules! losses_of_operands {
    ($($(#[$condition:meta])? $name:ident, [$($shape:expr),+], |[$($x:ident),+]| $loss:expr;)+) => {
        pub(crate) const LOSSES_OF_OPERANDS: &[(&str, &[&[usize]], LossOfOperands)] = &[$($(#[$condition])? (
            stringify!($name),
            &[$(&$shape),+],
            |operands| {
                let [$($x),+] = operands else {
                    unreachable!("there are as many shapes")
                };
                $loss
            },
        )),+];
    };
}

pub(crate) type LossOfOperands = fn(&[Array<f64>]) -> Result<Array<f64>>;

losses_of_operands! {
    matmul, [[2, 3], [3, 4]], |[a, b]| weighted(&a.matmul(b)?);
    dot, [[4], [4]], |[a, b]| a.dot(b);
    outer, [[3], [2]], |[a, b]| weighted(&a.outer(b)?);
    kron, [[2, 3], [3, 2]], |[a, b]| weighted(&a.kron(b)?);
    einsum, [[2, 3], [3, 4], [5, 4]], |[a, b, c]| weighted(&einsum("ij,jk,lk->il", (a, b, c))?);
    attention, [[2, 4, 3], [2, 5, 3], [2, 5, 2]], |[q, k, v]| weighted(&attention(q, k, v, false)?);
    conv1d, [[2, 2, 6], [3, 2, 2]], |[x, kernel]| weighted(&x.conv1d(kernel, ConvOptions::default())?);
    conv2d, [[2, 2, 4, 5], [3, 2, 2, 2]], |[x, kernel]| weighted(&x.conv2d(kernel, ConvOptions::default())?);
    layer_norm, [[3, 4], [4], [4]], |[x, weight, bias]| weighted(&x.layer_norm(weight, bias, 1e-5)?);
    rms_norm, [[3, 4], [4]], |[x, weight]| weighted(&x.rms_norm(weight, 1e-5)?);
    #[cfg(feature = "linalg")]
    solve, [[3, 3], [3, 2]], |[a, b]| weighted(&linalg::solve(&positive(a)?, b)?);
    #[cfg(feature = "linalg")]
    lstsq, [[4, 3], [4, 2]], |[a, b]| weighted(&linalg::lstsq(&regular(a)?, b)?);
    concat, [[2, 3], [2, 1]], |[a, b]| weighted(&concat(&[a, b], 1)?);
    stack, [[2, 3], [2, 3]], |[a, b]| weighted(&stack(&[a, b], 1)?);
    meshgrid, [[2], [3]], |[a, b]| {
        let grid = meshgrid(&[a, b])?;
        weighted(&(&grid[0] * &grid[1]).eval()?)
    };
    select, [[5], [5]], |[a, b]| weighted(&select(a.gt(b), a * b, b.exp()).eval()?);
    complex, [[3], [3]], |[re, im]| complex::weighted(&cachescope::complex(re, im).eval()?);
    assign, [[3], [1]], |[a, b]| {
        let mut y = a.exp().eval()?;
        y.assign(b)?;
        y.slice_mut(s![1])?.assign(a.slice(s![0])?)?;
        weighted(&y)
    };
    update, [[3], [3]], |[a, b]| {
        let mut y = a.exp().eval()?;
        y.update(|y| y * b)?;
        weighted(&y)
    };
    masked_assign, [[5], [5]], |[a, b]| {
        let mut y = a.exp().eval()?;
        y.masked_assign(&a.gt(0.5).eval()?, b)?;
        weighted(&y)
    };
    scatter, [[4, 2], [2, 2]], |[a, b]| {
        let mut y = a.sin().eval()?;
        y.scatter(&places(&[1, 0, 1, 1], &[2, 2]), b, 0)?;
        weighted(&y)
    };
    scatter_add, [[4, 2], [2, 2]], |[a, b]| {
        let mut y = a.sin().eval()?;
        y.scatter_add(&places(&[1, 0, 1, 1], &[2, 2]), b, 0)?;
        weighted(&y)
    };
    operators, [[3], [3]], |[a, b]| weighted(&((a + b) * a - b / a + b % 0.71 * a).eval()?);
    powf, [[3], [3]], |[a, b]| weighted(&a.powf(b).eval()?);
    atan2, [[3], [3]], |[a, b]| weighted(&a.atan2(b).eval()?);
    maximum, [[3], [3]], |[a, b]| weighted(&(a.maximum(b * 1.1) * a.minimum(b * 0.9)).eval()?);
    mul_add, [[3], [3], [3]], |[a, b, c]| weighted(&a.mul_add(b, c).eval()?);
    clamp, [[6], [6], [6]], |[x, low, high]| {
        weighted(&x.flip(0)?.clamp(low * 0.9, high * 1.1 + 0.01).eval()?)
    };
}

#[test]
fn every_operation_is_right() {
    let mut wrong = Vec::new();
    for (name, shape, loss) in LOSSES {
        let x = numbers(shape, 1.0);
        let is_right = catch_unwind(|| check(&x, loss));
        if is_right.is_err() {
            wrong.push(format!("{name} of {shape:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_operand_is_right() {
    let mut wrong = Vec::new();
    for (name, shapes, loss) in LOSSES_OF_OPERANDS {
        let operands: Vec<_> = (0..).zip(*shapes).collect();
        let operands = operands.into_iter().map(|(at, shape)| {
            // The operands have different values.
            (numbers(shape, 1.0) + f64::from(at) * 0.017)
                .eval()
                .unwrap()
        });
        let operands: Vec<Array<f64>> = operands.collect();
        for operand in 0..operands.len() {
            let of_one = |x: &Array<f64>| {
                let mut all = operands.clone();
                all[operand] = x.clone();
                loss(&all)
            };
            let is_right = catch_unwind(AssertUnwindSafe(|| check(&operands[operand], of_one)));
            if is_right.is_err() {
                wrong.push(format!("operand {operand} of {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
