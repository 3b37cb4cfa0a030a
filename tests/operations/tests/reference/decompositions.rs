//! Factorizations, by name. Each new factorization needs a row. If the signs of factors are
//! arbitrary, the product of the factors is compared.

use cachescope::linalg::{self, Factorizable, MatrixNorm};
use cachescope::{Array, Result};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

const NORMS: [MatrixNorm; 5] = [
    MatrixNorm::Frobenius,
    MatrixNorm::Nuclear,
    MatrixNorm::Spectral,
    MatrixNorm::One,
    MatrixNorm::Infinity,
];

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    by_type!(trial, &element[..], matrices: f32 f64);
}

fn matrices<T: Stored + Factorizable>(trial: &mut Trial<'_>) {
    let a = trial.input::<T>(0);
    let right = |trial: &Trial<'_>| trial.input::<T>(1);
    match trial.op() {
        "solve" => trial.gives(linalg::solve(&a, &right(trial))),
        "inv" => trial.gives(linalg::inv(&a)),
        "det" => trial.gives(linalg::det(&a)),
        "cholesky" => trial.gives(linalg::cholesky(&a)),
        "lstsq" => trial.gives(linalg::lstsq(&a, &right(trial))),
        "svdvals" => trial.gives(linalg::svdvals(&a)),
        "eigvalsh" => trial.gives(linalg::eigvalsh(&a)),
        "norm" => trial.gives(linalg::norm(&a, NORMS[trial.count(0)])),
        "qr" => trial.gives_all(qr(&a)),
        "svd" => trial.gives_all(svd(&a)),
        "eigh" => trial.gives_all(eigh(&a)),
        _ => {}
    }
}

/// Returns the products of the columns with each other.
fn gram<T: Factorizable>(q: &Array<T>) -> Result<Array<T>> {
    q.swap_axes(-2, -1)?.matmul(q)
}

fn qr<T: Factorizable>(a: &Array<T>) -> Result<Vec<Array<T>>> {
    let (q, r) = linalg::qr(a)?;
    assert_eq!(r, r.triu(0)?, "the right factor is no triangle");
    Ok(vec![q.matmul(&r)?, gram(&q)?])
}

fn svd<T: Factorizable>(a: &Array<T>) -> Result<Vec<Array<T>>> {
    let (u, s, vt) = linalg::svd(a)?;
    let again = (&u * s.unsqueeze(-2)?).eval()?.matmul(&vt)?;
    let of_rows = gram(&vt.swap_axes(-2, -1)?)?;
    Ok(vec![s, again, gram(&u)?, of_rows])
}

fn eigh<T: Factorizable>(a: &Array<T>) -> Result<Vec<Array<T>>> {
    let (w, v) = linalg::eigh(a)?;
    let again = (&v * w.unsqueeze(-2)?).eval()?;
    let again = again.matmul(&v.swap_axes(-2, -1)?)?;
    Ok(vec![w, again, gram(&v)?])
}
