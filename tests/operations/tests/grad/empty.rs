//! Gradients of arrays without elements. A function that takes an empty array is tracked, and the
//! gradient has the array's shape.

use std::collections::BTreeSet;

#[cfg(feature = "fft")]
use cachescope::fft;
use cachescope::grad::nn::{Gru, Lstm};
use cachescope::grad::value_and_grad;
#[cfg(feature = "linalg")]
use cachescope::linalg::{self, MatrixNorm};
use cachescope::{Array, ErrorKind, Result, attention, concat, einsum, stack};

#[cfg(feature = "fft")]
use crate::grad::complex::{self, spun};
use crate::grad::differences::numbers;
use crate::grad::operations::{LOSSES, LOSSES_OF_OPERANDS, Loss};

/// Returns the fault of the gradient of `loss` at `x`, or `Some(None)` if the gradient is correct.
/// If `loss` refuses `x`, returns `None`.
fn fault(
    x: &Array<f64>,
    loss: impl Fn(&Array<f64>) -> Result<Array<f64>>,
) -> Option<Option<String>> {
    let expected = loss(x).ok().filter(|value| value.len() == 1)?;
    Some(match value_and_grad(x, &loss) {
        Err(error) => Some(error.to_string()),
        Ok((value, gradient)) if !is_equal(&value, &expected) || gradient.shape() != x.shape() => {
            Some(format!("{value:?}, of shape {:?}", gradient.shape()))
        }
        Ok((_, gradient)) => {
            let is_zero = gradient.ne(0.0).any().unwrap().item().unwrap();
            is_zero.then(|| format!("{gradient:?}"))
        }
    })
}

/// Returns whether two values are equal, or both NaN, such as the mean of no elements.
fn is_equal(one: &Array<f64>, other: &Array<f64>) -> bool {
    let [one, other] = [one, other].map(|value| value.item().unwrap());
    one == other || (one.is_nan() && other.is_nan())
}

/// Returns shapes without elements. In each shape, one axis has length 0, or a leading batch axis
/// of length 0 is added.
fn without_elements(shape: &[usize]) -> Vec<Vec<usize>> {
    let axes = (0..shape.len()).map(|at| {
        let mut shape = shape.to_vec();
        shape[at] = 0;
        shape
    });
    let batch = (shape.len() < 8).then(|| [&[0], shape].concat());
    axes.chain(batch).collect()
}

#[test]
fn every_operation_that_takes_no_elements_is_tracked() {
    let (mut wrong, mut reached) = (Vec::new(), BTreeSet::new());
    for (name, shape, loss) in LOSSES {
        for shape in without_elements(shape) {
            if let Some(fault) = fault(&Array::zeros(&shape[..]).unwrap(), loss) {
                reached.insert(*name);
                wrong.extend(fault.map(|fault| format!("{name} of {shape:?}: {fault}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(reached.len() > 50, "only {reached:?}");
}

#[test]
fn every_operand_without_elements_is_tracked() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, shapes, loss) in LOSSES_OF_OPERANDS {
        // Either all operands are in an empty batch, or one axis of one operand has length 0.
        let batch: Vec<Vec<usize>> = shapes.iter().map(|own| [&[0], *own].concat()).collect();
        let mut all = vec![batch];
        for (at, shape) in shapes.iter().enumerate() {
            all.extend(without_elements(shape).into_iter().map(|own| {
                let mut shapes: Vec<Vec<usize>> = shapes.iter().map(|own| own.to_vec()).collect();
                shapes[at] = own;
                shapes
            }));
        }
        for shapes in all {
            let operands: Vec<_> = shapes.iter().map(|own| numbers(own, 1.0)).collect();
            for own in 0..operands.len() {
                let of_one = |x: &Array<f64>| {
                    let mut all = operands.clone();
                    all[own] = x.clone();
                    loss(&all)
                };
                // If an operand has elements, its gradient need not be zero, but its computation
                // must not fail.
                let is_empty = operands[own].is_empty();
                if let Some(Some(fault)) = fault(&operands[own], of_one)
                    && (is_empty || fault.contains("CS"))
                {
                    wrong.push(format!("operand {own} of {name} {shapes:?}: {fault}"));
                }
                count += usize::from(is_empty);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 50, "only {count}");
}

/// Expands rows `shape of x, a loss of x;`. If a row requires a feature, `@` and the feature
/// precede the row.
macro_rules! losses {
    ($($(@$feature:tt)? $shape:expr, |$x:ident| $loss:expr;)+) => {
        const MORE: &[(&[usize], Loss)] = &[$($(#[cfg(feature = $feature)])? (&$shape, |$x| $loss)),+];
    };
}

losses! {
    @"fft" [0, 4], |x| fft::rfft(x, 1)?.abs().sum();
    @"fft" [0, 4], |x| fft::irfft(&spun(x)?, 6, 1)?.sum();
    @"fft" [0, 4], |x| complex::weighted(&fft::fft(&spun(x)?, 1)?);
    @"fft" [0, 4], |x| complex::weighted(&fft::ifft(&spun(x)?, 1)?);
    @"fft" [0, 4, 4], |x| complex::weighted(&fft::fft2(&spun(x)?)?);
    @"fft" [0, 4, 4], |x| complex::weighted(&fft::ifft2(&spun(x)?)?);
    @"fft" [0, 4], |x| fft::fftshift(x, 1)?.sum();
    @"fft" [0, 4], |x| fft::ifftshift(x, 0)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::inv(x)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::det(x)?.sum();
    @"linalg" [2, 0, 0], |x| linalg::det(x)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::cholesky(x)?.sum();
    @"linalg" [0, 3, 2], |x| linalg::qr(x)?.0.sum();
    @"linalg" [0, 3, 2], |x| linalg::qr(x)?.1.sum();
    @"linalg" [2, 3, 0], |x| linalg::qr(x)?.0.sum();
    @"linalg" [0, 3, 2], |x| linalg::svd(x)?.0.sum();
    @"linalg" [0, 3, 2], |x| linalg::svd(x)?.1.sum();
    @"linalg" [0, 3, 2], |x| linalg::svd(x)?.2.sum();
    @"linalg" [0, 3, 2], |x| linalg::svdvals(x)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::eigh(x)?.0.sum();
    @"linalg" [0, 3, 3], |x| linalg::eigh(x)?.1.sum();
    @"linalg" [0, 3, 3], |x| linalg::eigvalsh(x)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::solve(x, &Array::ones([3, 1])?)?.sum();
    @"linalg" [0, 3, 1], |x| linalg::solve(&Array::eye(3)?, x)?.sum();
    @"linalg" [0, 3, 2], |x| linalg::lstsq(x, &Array::ones([3, 1])?)?.sum();
    @"linalg" [0, 3, 1], |x| linalg::lstsq(&Array::eye(3)?, x)?.sum();
    @"linalg" [0, 2], |x| linalg::lstsq(x, &Array::ones([0])?)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::norm(x, MatrixNorm::Frobenius)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::norm(x, MatrixNorm::Nuclear)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::norm(x, MatrixNorm::Spectral)?.sum();
    @"linalg" [0, 3, 3], |x| linalg::norm(x, MatrixNorm::One)?.sum();
    @"linalg" [2, 0, 3], |x| linalg::norm(x, MatrixNorm::Infinity)?.sum();
    [0, 3], |x| x.norm();
    [0, 3], |x| x.norm_axis(1)?.sum();
    [0, 3], |x| x.norm_axis(0)?.sum();
    [0, 3], |x| x.sum();
    [0, 3], |x| x.prod();
    [0, 3], |x| x.sum_axis(1)?.sum();
    [0, 3], |x| x.mean_axis(1)?.sum();
    [0, 3], |x| x.max_axis(1)?.sum();
    [0, 3], |x| x.min_axis(1)?.sum();
    [0, 3], |x| x.var_axis(1)?.sum();
    [0, 3], |x| x.std_axis(1)?.sum();
    [0, 3], |x| x.logsumexp_axis(1)?.sum();
    [0, 3], |x| x.softmax(1)?.sum();
    [0, 3], |x| x.log_softmax(1)?.sum();
    [0, 3], |x| x.layer_norm(&Array::ones(3)?, &Array::zeros(3)?, 1e-5)?.sum();
    [0, 3], |x| x.rms_norm(&Array::ones(3)?, 1e-5)?.sum();
    [0, 3], |x| x.sort(1)?.sum();
    [0, 3], |x| x.topk(2, 1)?.0.sum();
    [0, 3], |x| x.median(1)?.sum();
    [0, 3], |x| x.quantile(0.3, 1)?.sum();
    [0], |x| x.unique()?.sum();
    [0, 3], |x| x.cumsum(1)?.sum();
    [0, 3], |x| x.cumprod(0)?.sum();
    [0, 3], |x| x.diff(1)?.sum();
    [0, 3, 4, 4], |x| x.max_pool2d([2, 2], [2, 2])?.sum();
    [0, 3, 4, 4], |x| x.avg_pool2d([2, 2], [2, 2])?.sum();
    [0, 3, 4, 4], |x| x.conv2d(&Array::ones([2, 3, 2, 2])?, cachescope::ConvOptions::default())?.sum();
    [0, 3, 4], |x| x.conv1d(&Array::ones([2, 3, 2])?, cachescope::ConvOptions::default())?.sum();
    [0, 4, 3], |x| attention(x, x, x, true)?.sum();
    [0, 3], |x| x.matmul(&Array::ones([3, 2])?)?.sum();
    [0], |x| x.dot(x);
    [0, 3], |x| x.kron(&Array::ones([2, 2])?)?.sum();
    [0, 3], |x| einsum("ij,kj->ik", (x, &Array::ones([2, 3])?))?.sum();
    [0, 3], |x| einsum("ij->", (x,));
    [0, 3], |x| x.tril(0)?.sum();
    [0, 3], |x| x.pad(&[(0, 0), (1, 0)], 0.0)?.sum();
    [0, 3], |x| x.roll(1, 1)?.sum();
    [0, 3], |x| x.repeat(2, 0)?.sum();
    [0, 3], |x| concat(&[x, x], 1)?.sum();
    [0, 3], |x| stack(&[x, x], 0)?.sum();
    [0, 3], |x| x.windows(&[2])?.sum();
    [0, 3], |x| x.cross_entropy(&Array::zeros(0)?);
}

#[test]
fn a_batch_of_none_is_tracked() {
    let mut wrong = Vec::new();
    for (number, (shape, loss)) in MORE.iter().enumerate() {
        let x = Array::zeros(*shape).unwrap();
        match fault(&x, loss) {
            Some(None) => {}
            Some(Some(fault)) => wrong.push(format!("row {number}, {shape:?}: {fault}")),
            // For some functions, the value of no elements is an error, with and without gradients.
            None => {
                let [plain, tracked] = [loss(&x).err(), value_and_grad(&x, loss).err()];
                let kinds = [plain, tracked].map(|error| error.map(|error| error.kind()));
                if kinds[0] != kinds[1] || kinds[0] == Some(ErrorKind::Unsupported) {
                    wrong.push(format!("row {number}, {shape:?}: {kinds:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sequences_of_no_steps_are_tracked() {
    let (gru, lstm) = (
        Gru::<f64>::new(4, 2).unwrap(),
        Lstm::<f64>::new(4, 2).unwrap(),
    );
    let x = Array::ones([2, 0, 4]).unwrap();
    let outcomes = [
        fault(&x, |x| gru.forward(x, None)?.0.sum()),
        fault(&x, |x| lstm.forward(x, None)?.0.sum()),
    ];
    for outcome in outcomes {
        assert_eq!(outcome, Some(None));
    }
}
