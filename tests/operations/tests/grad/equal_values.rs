//! Derivatives through factorizations of matrices with equal eigenvalues or singular values. The
//! vectors of these matrices are not unique.
//!
//! The losses do not depend on the choice of vectors, so their derivatives exist. The reference
//! values are differences of gradients at neighbouring matrices.

use cachescope::grad::{hvp, jvp, value_and_grad};
use cachescope::linalg::{self, MatrixNorm};
use cachescope::{Array, Result};

use crate::grad::differences::numbers;

type Loss = fn(&Array<f64>) -> Result<Array<f64>>;

fn matrix(rows: &[&[f64]]) -> Array<f64> {
    Array::from_vec(rows.concat(), [rows.len(), rows[0].len()]).unwrap()
}

fn t(a: &Array<f64>) -> Result<Array<f64>> {
    a.swap_axes(-2, -1)
}

fn item(x: Result<Array<f64>>) -> f64 {
    x.unwrap().item().unwrap()
}

/// Returns a rotation in three dimensions.
fn rotation() -> Array<f64> {
    linalg::qr(&numbers(&[3, 3], 1.0)).unwrap().0
}

/// Returns Q diag(values) Qᵀ.
fn symmetric(values: [f64; 3]) -> Array<f64> {
    let q = rotation();
    let scaled = (&q * Array::from_slice(&values, 3).unwrap())
        .eval()
        .unwrap();
    scaled.matmul(&t(&q).unwrap()).unwrap()
}

fn diagonal(values: &[f64]) -> Array<f64> {
    let values = Array::from_slice(values, values.len()).unwrap();
    values.diag(0).unwrap()
}

/// Returns the symmetric part, because the factorizations read only one triangle.
fn part(x: &Array<f64>) -> Result<Array<f64>> {
    ((x + t(x)?) * 0.5).eval()
}

fn columns(a: &Array<f64>, of_rows: usize) -> Array<f64> {
    let rows = a.to_vec().unwrap();
    let n = a.shape()[1];
    Array::from_slice(&rows[..of_rows * n], [of_rows, n]).unwrap()
}

/// Returns square matrices of three rows, of each rank, with and without equal values.
fn squares() -> Vec<(&'static str, Array<f64>)> {
    let rows = columns(&rotation(), 2);
    vec![
        ("the identity", Array::eye(3).unwrap()),
        ("twice the identity", diagonal(&[2.0; 3])),
        ("zeros", Array::zeros([3, 3]).unwrap()),
        ("two equal values", diagonal(&[1.0, 1.0, 2.0])),
        ("two other equal values", symmetric([1.0, 3.0, 3.0])),
        ("three equal values", symmetric([0.7; 3])),
        ("opposite values", symmetric([-1.0, 1.0, 1.0])),
        ("rank 2", symmetric([0.0, 1.0, 2.0])),
        (
            "rank 2 of equal values",
            t(&rows).unwrap().matmul(&rows).unwrap(),
        ),
        ("rank 1", symmetric([0.0, 0.0, 1.5])),
        ("distinct values", symmetric([0.5, 1.0, 3.0])),
    ]
}

fn directions(shape: &[usize]) -> Vec<Array<f64>> {
    let own = (numbers(shape, -0.9) + 0.8).eval().unwrap();
    let exchange: Vec<f64> = (0..shape[0] * shape[1])
        .map(|at| f64::from(at == 1 || at == shape[1]))
        .collect();
    let exchange = Array::from_vec(exchange, shape).unwrap();
    let third = (numbers(shape, 1.3).sin() - 0.6).eval().unwrap();
    vec![own, exchange, third]
}

/// Returns the errors of `hvp` and of `jvp`. The reference values are differences of gradients, and
/// of losses, at matrices with distinct values.
fn errors(x: &Array<f64>, along: &Array<f64>, loss: Loss) -> [f64; 2] {
    const STEP: f64 = 1e-3;
    let at = |by: f64| (x + along * by).eval().unwrap();
    let gradient_at = |by: f64| value_and_grad(&at(by), loss).unwrap().1;
    let twice = |by: f64| {
        ((gradient_at(by) - gradient_at(-by)) / (2.0 * by))
            .eval()
            .unwrap()
    };
    let differences = ((twice(STEP) * 4.0 - twice(2.0 * STEP)) / 3.0)
        .eval()
        .unwrap();
    let product = hvp(x, along, loss).unwrap().1;
    let largest = item(differences.abs().max()).max(1.0);
    let of_product = item((product - differences).abs().max()) / largest;
    let once = |by: f64| (item(loss(&at(by))) - item(loss(&at(-by)))) / (2.0 * by);
    let slope = (once(STEP) * 4.0 - once(2.0 * STEP)) / 3.0;
    let along = item(Ok(jvp(x, along, loss).unwrap().1));
    [of_product, (along - slope).abs() / slope.abs().max(1.0)]
}

fn check(name: &str, x: &Array<f64>, loss: Loss, wrong: &mut Vec<String>) {
    for along in directions(x.shape()) {
        let [second, first] = errors(x, &along, loss);
        if !(second < 1e-6 && first < 1e-7) {
            wrong.push(format!("{name} along {along:?}: {second}, {first}"));
        }
    }
}

/// Returns V f(w) Vᵀ.
fn of_values(a: &Array<f64>, f: impl Fn(&Array<f64>) -> Result<Array<f64>>) -> Result<Array<f64>> {
    let (w, v) = linalg::eigh(&part(a)?)?;
    (&v * f(&w)?).eval()?.matmul(&t(&v)?)
}

const OF_SQUARES: &[(&str, Loss)] = &[
    ("det", linalg::det),
    ("sin det", |x| linalg::det(x)?.sin().eval()),
    ("trace of eigvalsh", |x| linalg::eigvalsh(&part(x)?)?.sum()),
    ("squares of eigvalsh", |x| {
        linalg::eigvalsh(&part(x)?)?.square().sum()
    }),
    ("exp of eigvalsh", |x| {
        linalg::eigvalsh(&part(x)?)?.exp().sum()
    }),
    ("product of eigvalsh", |x| {
        linalg::eigvalsh(&part(x)?)?.prod()
    }),
    ("eigvalsh of a product", |x| {
        linalg::eigvalsh(&(t(x)?.matmul(x)? * 0.5).eval()?)?
            .sin()
            .sum()
    }),
    ("squares of svdvals", |x| linalg::svdvals(x)?.square().sum()),
    ("cosh of svdvals", |x| linalg::svdvals(x)?.cosh().sum()),
    ("fourth powers of svdvals", |x| {
        linalg::svdvals(x)?.square().square().sum()
    }),
    ("eigh, again", |x| {
        of_values(x, |w| Ok(w.clone()))?.square().sum()
    }),
    ("exp by eigh", |x| {
        of_values(x, |w| w.exp().eval())?.square().sum()
    }),
    ("trace by eigh", |x| {
        let eye = Array::eye(x.shape()[0])?;
        (of_values(x, |w| w.sin().eval())? * eye).sum()
    }),
    ("vectors of eigh", |x| {
        let v = linalg::eigh(&part(x)?)?.1;
        v.matmul(&t(&v)?)?.square().sum()
    }),
    ("svd, again", |x| {
        let (u, s, vt) = linalg::svd(x)?;
        (u * s).eval()?.matmul(&vt)?.square().sum()
    }),
];

#[test]
fn every_loss_of_a_square_matrix_has_derivatives() {
    let mut wrong = Vec::new();
    for (name, loss) in OF_SQUARES {
        for (of, x) in squares() {
            check(&format!("{name} of {of}"), &x, *loss, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Losses that are differentiable at regular matrices.
const OF_REGULAR: &[(&str, Loss)] = &[
    ("inv", |x| linalg::inv(x)?.square().sum()),
    ("solve", |x| {
        linalg::solve(x, &numbers(&[3, 2], 1.0))?.square().sum()
    }),
    ("lstsq", |x| {
        linalg::lstsq(x, &numbers(&[3, 2], 1.0))?.square().sum()
    }),
    ("qr", |x| {
        let (q, r) = linalg::qr(x)?;
        q.matmul(&r.square().eval()?)?.square().sum()
    }),
    ("nuclear norm", |x| linalg::norm(x, MatrixNorm::Nuclear)),
    ("Frobenius norm", |x| linalg::norm(x, MatrixNorm::Frobenius)),
    ("logarithms of svdvals", |x| linalg::svdvals(x)?.ln().sum()),
    ("logarithms of eigvalsh", |x| {
        linalg::eigvalsh(&part(x)?)?.abs().ln().sum()
    }),
    ("the nearest rotation", |x| {
        let (u, _, vt) = linalg::svd(x)?;
        (u.matmul(&vt)? * x).sum()
    }),
    ("cholesky", |x| {
        let a = (t(x)?.matmul(x)? + Array::eye(3)?).eval()?;
        linalg::cholesky(&a)?.square().square().sum()
    }),
];

#[test]
fn every_loss_of_an_invertible_matrix_has_derivatives() {
    let mut wrong = Vec::new();
    for (name, loss) in OF_REGULAR {
        for (of, x) in squares() {
            if !of.contains("rank") && of != "zeros" {
                check(&format!("{name} of {of}"), &x, *loss, &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn losses_of_tall_and_wide_matrices_have_derivatives() {
    let losses = OF_SQUARES.iter().filter(|row| row.0.contains("svd"));
    let tall = |x: &[&[f64]]| matrix(x);
    let matrices = [
        ("zeros", Array::zeros([3, 2]).unwrap()),
        (
            "equal values",
            tall(&[&[1.0, 0.0], &[0.0, 1.0], &[0.0, 0.0]]),
        ),
        (
            "a value of 0",
            tall(&[&[1.0, 1.0], &[1.0, 1.0], &[2.0, 2.0]]),
        ),
        ("distinct values", numbers(&[3, 2], 1.0)),
    ];
    let mut wrong = Vec::new();
    for (name, loss) in losses {
        for (of, x) in &matrices {
            check(&format!("{name} of {of}"), x, *loss, &mut wrong);
            let wide = (t(x).unwrap() * 1.0).eval().unwrap();
            check(&format!("{name} of wide {of}"), &wide, *loss, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn gradients_of_gradients_of_values_are_right() -> Result<()> {
    let is_of_values =
        |name: &str| name.contains("det") || (name.contains("vals") && !name.contains("trace"));
    let mut wrong = Vec::new();
    for (name, loss) in OF_SQUARES.iter().filter(|row| is_of_values(row.0)) {
        for (of, x) in squares() {
            for along in directions(x.shape()) {
                let (_, nested) =
                    value_and_grad(&x, |x| (value_and_grad(x, *loss)?.1 * &along).sum())?;
                let product = hvp(&x, &along, *loss)?.1;
                let largest = product.abs().max()?.item()?.max(1.0);
                let error = (nested - product).abs().max()?.item()? / largest;
                if error.is_nan() || error >= 1e-10 {
                    wrong.push(format!("{name} of {of} along {along:?}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn exact_second_derivatives_of_determinants() -> Result<()> {
    let exchange = matrix(&[&[0.0, 1.0], &[1.0, 0.0]]);
    let (_, product) = hvp(&Array::eye(2)?, &exchange, linalg::det)?;
    let error = (product - matrix(&[&[0.0, -1.0], &[-1.0, 0.0]]))
        .abs()
        .max()?;
    assert!(error.item()? < 1e-15);
    let (_, product) = hvp(&diagonal(&[2.0; 3]), &Array::eye(3)?, linalg::det)?;
    assert!((product - diagonal(&[4.0; 3])).abs().max()?.item()? < 1e-14);
    // In a batch, the ranks of the matrices differ.
    let batch = cachescope::stack(&[&Array::eye(2)?, &Array::zeros([2, 2])?, &exchange], 0)?;
    let along = cachescope::stack(&[&exchange, &exchange, &exchange], 0)?;
    let (_, product) = hvp(&batch, &along, |x| linalg::det(x)?.sum())?;
    for row in 0..3 {
        let own = product.slice(ndarray::s![row, .., ..])?;
        assert!((own + &exchange).abs().max()?.item()? < 1e-14);
    }
    Ok(())
}

#[test]
fn third_derivatives_of_determinants() -> Result<()> {
    // The determinant of x · 1 is x³.
    let cube = |x: &Array<f64>| linalg::det(&(Array::eye(3)? * x).eval()?);
    let x = Array::from_slice(&[1.5], 1)?;
    let (_, third) = value_and_grad(&x, |x| {
        let (_, second) = value_and_grad(x, |x| value_and_grad(x, cube)?.1.sum())?;
        second.sum()
    })?;
    assert!((third.item()? - 6.0).abs() < 1e-12);
    Ok(())
}

#[test]
fn gradients_of_equal_values_are_right() -> Result<()> {
    let mut wrong = Vec::new();
    for (name, loss) in OF_SQUARES {
        for (of, x) in squares() {
            let (_, gradient) = value_and_grad(&x, *loss)?;
            for along in directions(x.shape()) {
                let at = |by: f64| item(loss(&(&x + &along * by).eval().unwrap()));
                let once = |by: f64| (at(by) - at(-by)) / (2.0 * by);
                let slope = (once(1e-3) * 4.0 - once(2e-3)) / 3.0;
                let own = item((&gradient * &along).sum());
                let error = (own - slope).abs() / slope.abs().max(1.0);
                if error.is_nan() || error >= 1e-7 {
                    wrong.push(format!("{name} of {of}: {own}, {slope}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn a_loss_of_single_vectors_of_equal_values_has_no_finite_gradient() -> Result<()> {
    let weights = numbers(&[3, 3], 1.0);
    for x in [Array::eye(3)?, diagonal(&[2.0, 2.0, 1.0])] {
        let (_, gradient) = value_and_grad(&x, |x| (linalg::eigh(x)?.1 * &weights).sum())?;
        assert!(!gradient.abs().sum()?.item()?.is_finite());
        let (_, gradient) = value_and_grad(&x, |x| (linalg::svd(x)?.0 * &weights).sum())?;
        assert!(!gradient.abs().sum()?.item()?.is_finite());
    }
    Ok(())
}
