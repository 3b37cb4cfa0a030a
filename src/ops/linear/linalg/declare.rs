//! The public functions of [`linalg`](crate::linalg). They call type-erased functions.

use super::{Factorizable, MatrixNorm, factors, norms, spectral};
use crate::array::Array;
use crate::error::Result;

/// Returns the solutions `x` of `a x = b`, by the LU factorization with partial pivoting.
///
/// `a` holds square matrices `[.., n, n]`. `b` is one vector `[n]`, or holds matrices `[.., n, k]`
/// of `k` right-hand sides each, as in NumPy 2. The leading axes broadcast. The result is `[.., n]`
/// or `[.., n, k]`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[3.0_f64, 1.0, 1.0, 2.0], [2, 2])?;
/// let b = Array::from_slice(&[9.0, 8.0], 2)?;
/// let x = linalg::solve(&a, &b)?;
/// let error = (a.matmul(&x)? - &b).norm()?.item()?;
/// assert!(error < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the matrices are not square, or a
/// pivot is exactly zero. [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the numbers of rows
/// differ or the leading axes do not broadcast.
/// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory). The function waits for the result.
#[track_caller]
pub fn solve<T: Factorizable>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    super::solve::solve(a.erased(), b.erased()).map(Array::from_erased)
}

/// Returns the inverses of square matrices `[.., n, n]`. To solve equations, [`solve`] is faster
/// and more accurate.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[2.0_f64, 0.0, 0.0, 4.0], [2, 2])?;
/// assert_eq!(linalg::inv(&a)?.to_vec()?, [0.5, 0.0, 0.0, 0.25]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the matrices are not square, or a
/// pivot is exactly zero, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). The function waits
/// for the result.
#[track_caller]
pub fn inv<T: Factorizable>(a: &Array<T>) -> Result<Array<T>> {
    super::solve::inv(a.erased()).map(Array::from_erased)
}

/// Returns the determinants of square matrices `[.., n, n]`. The result has the leading axes of
/// `a`. The determinant of a singular matrix is 0. The determinant of a matrix without rows is 1.
/// If a determinant is in the type's range, its computation does not overflow.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[1.0_f64, 2.0, 3.0, 4.0], [2, 2])?;
/// assert!((linalg::det(&a)?.item()? + 2.0_f64).abs() < 1e-15);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the matrices are not square, and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
#[track_caller]
pub fn det<T: Factorizable>(a: &Array<T>) -> Result<Array<T>> {
    super::solve::det(a.erased()).map(Array::from_erased)
}

/// Returns the Cholesky factors `l` of symmetric positive definite matrices `[.., n, n]`. The
/// factors are lower triangular matrices with `a = l lᵀ`. Only the lower triangles of `a` are read.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[4.0_f64, 2.0, 2.0, 5.0], [2, 2])?;
/// assert_eq!(linalg::cholesky(&a)?.to_vec()?, [2.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the matrices are not square or not
/// positive definite, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). The function waits for
/// the result.
#[track_caller]
pub fn cholesky<T: Factorizable>(a: &Array<T>) -> Result<Array<T>> {
    factors::cholesky(a.erased()).map(Array::from_erased)
}

/// Returns the reduced QR factorizations `(q, r)` of matrices `[.., m, n]`, by Householder
/// reflections: `a = q r`. Let `k` be the smaller of `m` and `n`. `q` is `[.., m, k]` with
/// orthonormal columns. `r` is `[.., k, n]` and upper triangular. The signs of the rows of `r` are
/// not specified.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[3.0_f64, 1.0, 4.0, 2.0, 0.0, 5.0], [3, 2])?;
/// let (q, r) = linalg::qr(&a)?;
/// assert_eq!((q.shape(), r.shape()), (&[3, 2][..], &[2, 2][..]));
/// let error = (q.matmul(&r)? - &a).norm()?.item()?;
/// assert!(error < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `a` has fewer than two axes, and
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory).
#[track_caller]
pub fn qr<T: Factorizable>(a: &Array<T>) -> Result<(Array<T>, Array<T>)> {
    let [q, r] = factors::qr(a.erased())?.map(Array::from_erased);
    Ok((q, r))
}

/// Returns the reduced singular value decompositions `(u, s, vt)` of matrices `[.., m, n]`: `a = u
/// diag(s) vt`. Let `k` be the smaller of `m` and `n`. `u` is `[.., m, k]` with orthonormal
/// columns. `s` is `[.., k]`, from the largest to the smallest value. `vt` is `[.., k, n]` with
/// orthonormal rows. The signs of each pair of vectors are not specified.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[3.0_f64, 0.0, 0.0, 0.0, 5.0, 0.0], [2, 3])?;
/// let (u, s, vt) = linalg::svd(&a)?;
/// assert_eq!((u.shape(), s.shape(), vt.shape()), (&[2, 2][..], &[2][..], &[2, 3][..]));
/// let again = (&u * &s).eval()?.matmul(&vt)?;
/// assert!((again - &a).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `a` has fewer than two axes, or
/// elements that are not finite, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). The function
/// waits for the result.
#[track_caller]
pub fn svd<T: Factorizable>(a: &Array<T>) -> Result<(Array<T>, Array<T>, Array<T>)> {
    let [u, s, vt] = spectral::svd(a.erased())?.map(Array::from_erased);
    Ok((u, s, vt))
}

/// Returns the singular values of matrices `[.., m, n]`, from the largest to the smallest. The
/// number of values is the smaller of `m` and `n`. This function is faster than [`svd`].
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[0.0_f64, 3.0, 4.0, 0.0], [2, 2])?;
/// let s = linalg::svdvals(&a)?;
/// assert!((s - &Array::from_slice(&[4.0, 3.0], 2)?).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`svd`].
#[track_caller]
pub fn svdvals<T: Factorizable>(a: &Array<T>) -> Result<Array<T>> {
    spectral::svdvals(a.erased()).map(Array::from_erased)
}

/// Returns the eigenvalues and eigenvectors `(w, v)` of symmetric matrices `[.., n, n]`: `a v = v
/// diag(w)`. `w` is `[.., n]`, from the smallest to the largest value. `v` is `[.., n, n]`, with
/// the orthonormal eigenvectors as columns. The signs of the eigenvectors are not specified. Only
/// the lower triangles of `a` are read.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[2.0_f64, 1.0, 1.0, 2.0], [2, 2])?;
/// let (w, v) = linalg::eigh(&a)?;
/// assert!((&w - &Array::from_slice(&[1.0, 3.0], 2)?).norm()?.item()? < 1e-14);
/// assert!((a.matmul(&v)? - &v * &w).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the matrices are not square, or have
/// elements that are not finite, and [`OutOfMemory`](crate::ErrorKind::OutOfMemory). The function
/// waits for the result.
#[track_caller]
pub fn eigh<T: Factorizable>(a: &Array<T>) -> Result<(Array<T>, Array<T>)> {
    let [w, v] = spectral::eigh(a.erased())?.map(Array::from_erased);
    Ok((w, v))
}

/// Returns the eigenvalues of symmetric matrices `[.., n, n]`, from the smallest to the largest.
/// This function is faster than [`eigh`].
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// let a = Array::from_slice(&[0.0_f64, 1.0, 1.0, 0.0], [2, 2])?;
/// let w = linalg::eigvalsh(&a)?;
/// assert!((w - &Array::from_slice(&[-1.0, 1.0], 2)?).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`eigh`].
#[track_caller]
pub fn eigvalsh<T: Factorizable>(a: &Array<T>) -> Result<Array<T>> {
    spectral::eigvalsh(a.erased()).map(Array::from_erased)
}

/// Returns the least-squares solutions `x` of `a x = b`, by the singular value decomposition. The
/// solution has the least norm of all `x` that minimize the norm of `b - a x`.
///
/// `a` holds matrices `[.., m, n]`. `b` is one vector `[m]`, or holds matrices `[.., m, k]`. The
/// leading axes broadcast. The result is `[.., n]` or `[.., n, k]`. As in NumPy, a singular value
/// counts as zero up to a limit. The limit is the largest value times the type's epsilon times the
/// larger of `m` and `n`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, linalg};
///
/// // The line through three points: y = 1 + 2 x.
/// let a = Array::from_slice(&[1.0_f64, 0.0, 1.0, 1.0, 1.0, 2.0], [3, 2])?;
/// let b = Array::from_slice(&[1.0, 3.0, 5.0], 3)?;
/// let x = linalg::lstsq(&a, &b)?;
/// assert!((x - &Array::from_slice(&[1.0, 2.0], 2)?).norm()?.item()? < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// As for [`svd`], [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the numbers of rows differ
/// or the leading axes do not broadcast, and [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch).
#[track_caller]
pub fn lstsq<T: Factorizable>(a: &Array<T>, b: &Array<T>) -> Result<Array<T>> {
    super::lstsq::lstsq(a.erased(), b.erased()).map(Array::from_erased)
}

/// Returns a norm of each of the matrices `[.., m, n]`. The result has the leading axes of `a`. The
/// norms of vectors are [`Array::norm`] and [`Array::norm_axis`].
///
/// # Examples
///
/// ```
/// use cachescope::linalg::{self, MatrixNorm};
/// use cachescope::Array;
///
/// let a = Array::from_slice(&[3.0_f64, 0.0, 0.0, -4.0], [2, 2])?;
/// assert_eq!(linalg::norm(&a, MatrixNorm::Frobenius)?.item()?, 5.0);
/// assert_eq!(linalg::norm(&a, MatrixNorm::Infinity)?.item()?, 4.0);
/// assert!((linalg::norm(&a, MatrixNorm::Nuclear)?.item()? - 7.0).abs() < 1e-14);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// For the norms of singular values, the errors of [`svd`].
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `a` has fewer than two axes.
#[track_caller]
pub fn norm<T: Factorizable>(a: &Array<T>, norm: MatrixNorm) -> Result<Array<T>> {
    norms::norm(a.erased(), norm).map(Array::from_erased)
}
