//! Tests that the product of each function's results is the matrix. The tests use many shapes, and
//! one or two threads.

mod product;

use std::fmt::Debug;

use cachescope_linalg::{Failure, Real};

/// A generator of pseudorandom numbers between -1 and 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

trait Test: Real + Into<f64> + Debug + PartialEq + Default {
    const EPSILON: f64;

    fn of(value: f64) -> Self;
}

impl Test for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;

    fn of(value: f64) -> Self {
        value as Self
    }
}

impl Test for f64 {
    const EPSILON: f64 = f64::EPSILON;

    fn of(value: f64) -> Self {
        value
    }
}

/// Returns the rows of a pseudorandom matrix of shape `[m, n]`.
fn random<T: Test>(m: usize, n: usize) -> Vec<T> {
    let mut numbers = Numbers((m * 1000 + n) as u64);
    (0..m * n).map(|_| T::of(numbers.next())).collect()
}

/// Converts the rows of a matrix to its columns, or the columns to the rows.
fn transposed<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    let height = rows.len() / width.max(1);
    (0..rows.len())
        .map(|place| rows[place % height * width + place / height])
        .collect()
}

/// Returns the rows of the product of two matrices. The matrices are given by their rows.
fn product<T: Test>(left: &[T], right: &[T], inner: usize) -> Vec<f64> {
    let (height, width) = (left.len() / inner, right.len() / inner);
    let element = |row: usize, column: usize| -> f64 {
        (0..inner)
            .map(|at| left[row * inner + at].into() * right[at * width + column].into())
            .sum()
    };
    (0..height)
        .flat_map(|row| (0..width).map(move |column| (row, column)))
        .map(|(row, column)| element(row, column))
        .collect()
}

#[track_caller]
fn assert_close<T: Test>(got: &[f64], wanted: &[T], steps: usize) {
    assert_eq!(got.len(), wanted.len());
    let limit = 20.0 * T::EPSILON * steps as f64;
    for (&got, &wanted) in got.iter().zip(wanted) {
        assert!(
            (got - wanted.into()).abs() <= limit,
            "{got} instead of {wanted:?}"
        );
    }
}

fn identity<T: Test>(n: usize) -> Vec<T> {
    let one = |place| if place % (n + 1) == 0 { 1.0 } else { 0.0 };
    (0..n * n).map(|place| T::of(one(place))).collect()
}

const SHAPES: [[usize; 2]; 9] = [
    [1, 1],
    [2, 2],
    [5, 3],
    [3, 5],
    [30, 30],
    [90, 7],
    [7, 90],
    [130, 70],
    [200, 200],
];

fn factors_multiply_to_the_matrix<T: Test>(threads: usize) {
    for [m, n] in SHAPES {
        let k = m.min(n);
        let a = random::<T>(m, n);
        let (mut q, mut r) = (vec![T::default(); m * k], vec![T::default(); k * n]);
        T::qr(&mut transposed(&a, n), &mut q, &mut r, [m, n], threads).unwrap();
        assert_close(&product(&q, &r, k), &a, m + n);
        assert_close(
            &product(&transposed(&q, k), &q, m),
            &identity::<T>(k),
            m + n,
        );

        let (mut u, mut vt, mut s) = (q, r, vec![T::default(); k]);
        T::svd(&a, &mut s, Some([&mut u, &mut vt]), [m, n], threads).unwrap();
        let scaled: Vec<T> = (0..m * k)
            .map(|at| T::of(u[at].into() * s[at % k].into()))
            .collect();
        assert_close(&product(&scaled, &vt, k), &a, m + n);
        assert_close(
            &product(&transposed(&u, k), &u, m),
            &identity::<T>(k),
            m + n,
        );
        assert_close(
            &product(&vt, &transposed(&vt, n), n),
            &identity::<T>(k),
            m + n,
        );
        assert!(s.windows(2).all(|pair| pair[0].into() >= pair[1].into()));
        let mut alone = vec![T::default(); k];
        T::svd(&a, &mut alone, None, [m, n], threads).unwrap();
        let alone: Vec<f64> = alone.into_iter().map(Into::into).collect();
        assert_close(&alone, &s, 20 + m + n);
    }
}

fn squares_are_solved<T: Test>(threads: usize) {
    for n in [1, 2, 5, 30, 200] {
        let mut a = random::<T>(n, n);
        for place in (0..n * n).step_by(n + 1) {
            a[place] = T::of(a[place].into() + n as f64);
        }
        let b = random::<T>(n, 3);
        let mut x = b.clone();
        T::solve(&mut transposed(&a, n), &mut x, n, threads).unwrap();
        assert_close(&product(&a, &x, n), &b, n);
        let mut inverse = vec![T::default(); n * n];
        T::invert(&mut transposed(&a, n), &mut inverse, n, threads).unwrap();
        assert_close(&product(&a, &inverse, n), &identity::<T>(n), n);

        let lower = |place: usize| {
            if place % n <= place / n {
                a[place]
            } else {
                a[place % n * n + place / n]
            }
        };
        let symmetric: Vec<T> = (0..n * n).map(lower).collect();
        let mut factor = vec![T::default(); n * n];
        let shifted: Vec<T> = (0..n * n)
            .map(|at| T::of(symmetric[at].into() + if at % (n + 1) == 0 { n as f64 } else { 0.0 }))
            .collect();
        T::cholesky(&mut transposed(&shifted, n), &mut factor, n, threads).unwrap();
        assert_close(
            &product(&factor, &transposed(&factor, n), n),
            &shifted,
            n * n,
        );

        let (mut w, mut v) = (vec![T::default(); n], vec![T::default(); n * n]);
        // `eigh` reads the lower triangle of `a`.
        T::eigh(&a, &mut w, Some(&mut v), n, threads).unwrap();
        let scaled: Vec<T> = (0..n * n)
            .map(|at| T::of(v[at].into() * w[at % n].into()))
            .collect();
        assert_close(&product(&scaled, &transposed(&v, n), n), &symmetric, n * n);
        assert_close(
            &product(&transposed(&v, n), &v, n),
            &identity::<T>(n),
            n * n,
        );
        assert!(w.windows(2).all(|pair| pair[0].into() <= pair[1].into()));
    }
}

#[test]
fn factors_are_right() {
    for threads in [1, 2] {
        factors_multiply_to_the_matrix::<f32>(threads);
        factors_multiply_to_the_matrix::<f64>(threads);
    }
}

#[test]
fn equations_and_symmetric_matrices_are_right() {
    for threads in [1, 2] {
        squares_are_solved::<f32>(threads);
        squares_are_solved::<f64>(threads);
    }
}

#[test]
fn matrices_without_elements_have_factors() {
    assert_eq!(f32::determinant(&mut [], 0, 1), Ok(1.0));
    assert_eq!(f32::solve(&mut [], &mut [], 0, 1), Ok(()));
    assert_eq!(f32::invert(&mut [], &mut [], 0, 1), Ok(()));
    assert_eq!(f32::cholesky(&mut [], &mut [], 0, 1), Ok(()));
    assert_eq!(f32::eigh(&[], &mut [], Some(&mut []), 0, 1), Ok(()));
    for shape in [[0, 3], [3, 0], [0, 0]] {
        assert_eq!(f32::qr(&mut [], &mut [], &mut [], shape, 1), Ok(()));
        assert_eq!(
            f32::svd(&[], &mut [], Some([&mut [], &mut []]), shape, 1),
            Ok(())
        );
    }
}

#[test]
fn a_matrix_without_factors_is_an_error_with_the_reason() {
    let mut right = [1.0, 1.0];
    let singular = f64::solve(&mut [1.0, 2.0, 2.0, 4.0], &mut right, 2, 1);
    assert_eq!(singular, Err(Failure::Singular(1)));
    assert_eq!(
        f64::invert(&mut [0.0; 4], &mut [0.0; 4], 2, 1),
        Err(Failure::Singular(0))
    );
    let lower = f64::cholesky(&mut [1.0, 2.0, 2.0, 1.0], &mut [0.0; 4], 2, 1);
    assert_eq!(lower, Err(Failure::NotPositiveDefinite(2)));
    let lower = f64::cholesky(&mut [f64::NAN, 2.0, 2.0, 1.0], &mut [0.0; 4], 2, 1);
    assert_eq!(lower, Err(Failure::NotPositiveDefinite(1)));
    let bad = [1.0, 0.0, f64::INFINITY, 1.0];
    assert_eq!(
        f64::svd(&bad, &mut right, None, [2, 2], 1),
        Err(Failure::NotConverged)
    );
    assert_eq!(
        f64::eigh(&bad, &mut right, None, 2, 1),
        Err(Failure::NotConverged)
    );
    let mut determinant = [0.0, 0.0, 1.0, 1.0];
    assert_eq!(f64::determinant(&mut determinant, 2, 1), Ok(0.0));
}

/// `cachescope` always passes one number of threads, so that its results do not depend on the pool.
#[test]
fn results_for_a_number_of_threads_do_not_depend_on_the_pool() {
    let a = random::<f64>(300, 300);
    let found = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| {
            let (mut u, mut vt, mut s) = (vec![0.0; 90_000], vec![0.0; 90_000], vec![0.0; 300]);
            f64::svd(&a, &mut s, Some([&mut u, &mut vt]), [300, 300], 2).unwrap();
            (s, u, vt)
        })
    };
    assert!(found(1) == found(2) && found(2) == found(3));
}
