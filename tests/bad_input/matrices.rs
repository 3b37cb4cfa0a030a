//! Matrices that linear algebra refuses.

use cachescope::linalg::{self, MatrixNorm};
use cachescope::{Array, ErrorKind};

use super::{ones, refused};

const KIND: ErrorKind = ErrorKind::InvalidArgument;

fn matrix(elements: &[f32; 4]) -> Array<f32> {
    Array::from_slice(elements, [2, 2]).unwrap()
}

#[test]
fn that_are_none_or_not_square() {
    let (vector, wide) = (ones(&[3]), ones(&[4, 2, 3]));
    let square = |operation| [operation, "[4, 2, 3]", "not square", "2 rows", "3 columns"];
    refused(linalg::solve(&wide, &vector), KIND, &square("solve"));
    refused(linalg::inv(&wide), KIND, &square("inv"));
    refused(linalg::det(&wide), KIND, &square("det"));
    refused(linalg::cholesky(&wide), KIND, &square("cholesky"));
    refused(linalg::eigh(&wide), KIND, &square("eigh"));
    refused(linalg::eigvalsh(&wide), KIND, &square("eigvalsh"));
    let none = |operation| [operation, "[3]", "fewer than two axes", "in the last two"];
    refused(linalg::inv(&vector), KIND, &none("inv"));
    refused(linalg::qr(&vector), KIND, &none("qr"));
    refused(linalg::svd(&vector), KIND, &none("svd"));
    refused(linalg::svdvals(&vector), KIND, &none("svdvals"));
    refused(linalg::lstsq(&vector, &vector), KIND, &none("lstsq"));
    let norm = linalg::norm(&vector, MatrixNorm::Nuclear);
    refused(norm, KIND, &none("norm"));
    refused(linalg::qr(&ones(&[])), KIND, &["qr", "[]"]);
}

#[test]
fn whose_right_sides_do_not_fit() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let a = ones(&[2, 3, 3]);
    let rows = |operation, shape| [operation, "[2, 3, 3]", shape, "a has 3 rows, b has 2"];
    refused(linalg::solve(&a, &ones(&[2])), KIND, &rows("solve", "[2]"));
    // A right operand of shape [2, 3] is one matrix, not two vectors.
    let right = ones(&[2, 3]);
    refused(linalg::solve(&a, &right), KIND, &rows("solve", "[2, 3]"));
    refused(linalg::lstsq(&a, &right), KIND, &rows("lstsq", "[2, 3]"));
    let other = ones(&[5, 3, 1]);
    let batches = ["[2, 3, 3]", "[5, 3, 1]", "[2] and [5], do not broadcast"];
    refused(linalg::solve(&a, &other), KIND, &batches);
    refused(linalg::lstsq(&a, &other), KIND, &batches);
    refused(linalg::solve(&a, &ones(&[])), KIND, &["solve", "[]"]);
}

#[test]
fn that_are_singular() {
    let singular = matrix(&[1.0, 2.0, 2.0, 4.0]);
    let words = ["[2, 2]", "singular", "U[1, 1]", "exactly zero"];
    let right = ones(&[2]);
    refused(linalg::solve(&singular, &right), KIND, &words);
    refused(linalg::inv(&singular), KIND, &words);
    let many = cachescope::stack(&[&matrix(&[1.0, 0.0, 0.0, 1.0]), &singular], 0).unwrap();
    let many = many.unsqueeze(0).unwrap();
    let named = ["[0, 1]", "[1, 2, 2, 2]", "singular"];
    refused(linalg::inv(&many), KIND, &named);
    refused(linalg::solve(&many, &right), KIND, &named);
    let zero = Array::<f64>::zeros([1, 1]).unwrap();
    refused(linalg::inv(&zero), KIND, &["inv", "U[0, 0]"]);
}

#[test]
fn that_are_not_positive_definite() {
    let words = ["cholesky", "[2, 2]", "not positive definite", "order 2"];
    refused(
        linalg::cholesky(&matrix(&[1.0, 2.0, 2.0, 1.0])),
        KIND,
        &words,
    );
    let of_nan = matrix(&[f32::NAN, 0.0, 0.0, 1.0]);
    refused(linalg::cholesky(&of_nan), KIND, &["cholesky", "order 1"]);
    let of_zero = Array::<f64>::zeros([2, 2, 2]).unwrap();
    let words = ["cholesky", "[0]", "[2, 2, 2]", "order 1"];
    refused(linalg::cholesky(&of_zero), KIND, &words);
}

#[test]
fn that_are_not_finite() {
    for element in [f32::NAN, f32::INFINITY] {
        let a = matrix(&[1.0, 2.0, element, 1.0]);
        let words = |operation| [operation, "[2, 2]", "not finite"];
        refused(linalg::svd(&a), KIND, &words("svd"));
        refused(linalg::svdvals(&a), KIND, &words("svdvals"));
        refused(linalg::eigh(&a), KIND, &words("eigh"));
        refused(linalg::eigvalsh(&a), KIND, &words("eigvalsh"));
        refused(linalg::lstsq(&a, &ones(&[2])), KIND, &words("lstsq"));
        let norm = linalg::norm(&a, MatrixNorm::Spectral);
        refused(norm, KIND, &words("norm"));
    }
    let a = matrix(&[f32::NAN, 1.0, 1.0, 2.0]);
    assert!(linalg::det(&a).unwrap().item().unwrap().is_nan());
    for solution in [linalg::solve(&a, &ones(&[2])), linalg::inv(&a)] {
        let solution = solution.unwrap().to_vec().unwrap();
        assert!(solution.iter().all(|x| x.is_nan()), "{solution:?}");
    }
    // The upper triangle is not read.
    let a = matrix(&[1.0, f32::NAN, 0.0, 1.0]);
    assert_eq!(linalg::eigvalsh(&a).unwrap().to_vec().unwrap(), [1.0; 2]);
    assert_eq!(
        linalg::cholesky(&a).unwrap().to_vec().unwrap(),
        [1.0, 0.0, 0.0, 1.0]
    );
}
