//! Tests of each function against the defining sums in `f64`, for lengths of every kind.

mod plan_cache;

use std::f64::consts::TAU;
use std::thread;

use cachescope_fft::{Complex, Direction, Transformed};

/// A generator of pseudorandom numbers between -1 and 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = (self.0.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

trait Test: Transformed + Into<f64> + std::fmt::Debug + PartialEq {
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

/// Powers of two and of other primes, products, and two kinds of primes. For the first kind, the
/// prime minus 1 is smooth. For the second kind, the prime minus 1 is not smooth.
const LENGTHS: [usize; 27] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 23, 30, 31, 59, 64, 97, 100, 121, 128, 243, 360,
    509, 1024,
];

fn complex<T: Test>(value: Complex<f64>) -> Complex<T> {
    Complex::new(T::of(value.re), T::of(value.im))
}

fn wide<T: Test>(value: Complex<T>) -> Complex<f64> {
    Complex::new(value.re.into(), value.im.into())
}

fn random(count: usize) -> Vec<Complex<f64>> {
    let mut numbers = Numbers(count as u64 + 1);
    (0..count)
        .map(|_| Complex::new(numbers.next(), numbers.next()))
        .collect()
}

/// Returns the discrete Fourier transform by its definition. The exponents have the sign `sign`.
fn sums(row: &[Complex<f64>], sign: f64) -> Vec<Complex<f64>> {
    let n = row.len();
    let root = |k: usize| Complex::from_polar(1.0, sign * TAU * k as f64 / n as f64);
    (0..n)
        .map(|k| {
            let terms = row.iter().enumerate();
            terms.map(|(at, value)| value * root(at * k % n)).sum()
        })
        .collect()
}

#[track_caller]
fn assert_close<T: Test>(got: &[Complex<T>], wanted: &[Complex<f64>], n: usize) {
    assert_eq!(got.len(), wanted.len());
    // The numbers have magnitudes of about 1. The bound grows with the magnitude of their sums.
    // Like the rounding error, the bound also grows with the logarithm of `n`.
    let limit = 4.0 * T::EPSILON * (n as f64).sqrt() * (n as f64 + 2.0).log2();
    for (place, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (wide(got) - wanted).norm();
        assert!(
            error <= limit,
            "{n}: [{place}] is {got:?} instead of {wanted}"
        );
    }
}

/// Returns memory whose initial contents no function may use.
fn used<T: Test>(length: usize) -> Vec<Complex<T>> {
    vec![complex(Complex::new(f64::NAN, 7.0)); length]
}

fn rows_are_the_sums<T: Test>(n: usize, count: usize) {
    let all = random(n * count);
    for (direction, sign) in [(Direction::Forward, -1.0), (Direction::Inverse, 1.0)] {
        let plan = T::plan(n, direction).unwrap();
        assert_eq!(plan.length(), n);
        let mut rows: Vec<Complex<T>> = all.iter().copied().map(complex).collect();
        let narrowed: Vec<Complex<f64>> = rows.iter().copied().map(wide).collect();
        T::transform(&plan, &mut rows, &mut used(plan.scratch_length()));
        for (got, row) in rows.chunks(n).zip(narrowed.chunks(n)) {
            assert_close(got, &sums(row, sign), n);
        }
    }
}

fn real_rows_are_the_sums<T: Test>(n: usize, count: usize) {
    let width = n / 2 + 1;
    let rows: Vec<T> = random(n * count)
        .iter()
        .map(|value| T::of(value.re))
        .collect();
    let plan = T::plan_forward(n).unwrap();
    let mut spectra = used::<T>(width * count);
    T::forward(&plan, &rows, &mut spectra, &mut used(plan.scratch_length()));
    for (got, row) in spectra.chunks(width).zip(rows.chunks(n)) {
        let row: Vec<Complex<f64>> = row
            .iter()
            .map(|&value| Complex::from(value.into()))
            .collect();
        assert_close(got, &sums(&row, -1.0)[..width], n);
    }
    let plan = T::plan_inverse(n).unwrap();
    assert_eq!(
        (plan.length(), T::plan_forward(n).unwrap().length()),
        (n, n)
    );
    let mut again = vec![T::of(f64::NAN); n * count];
    let (factor, mut scratch) = (T::of(1.0 / n as f64), used(plan.scratch_length()));
    T::inverse(&plan, (&spectra, width), &mut again, factor, &mut scratch);
    for (got, &wanted) in again.iter().zip(&rows) {
        let error = ((*got).into() - wanted.into()).abs();
        let limit = 8.0 * T::EPSILON * (n as f64 + 2.0).log2();
        assert!(error <= limit, "{n}: {got:?} instead of {wanted:?}");
    }
}

#[test]
fn rows_are_transformed() {
    for n in LENGTHS {
        for count in [1, 3] {
            rows_are_the_sums::<f32>(n, count);
            rows_are_the_sums::<f64>(n, count);
        }
    }
}

#[test]
fn rows_of_real_numbers_are_transformed_there_and_back() {
    for n in LENGTHS {
        for count in [1, 3] {
            real_rows_are_the_sums::<f32>(n, count);
            real_rows_are_the_sums::<f64>(n, count);
        }
    }
}

/// The spectra are longer or shorter than half of the row. Their first and last numbers are not
/// real.
#[test]
fn spectra_are_cut_and_filled_up_and_what_must_be_real_is_taken_for_it() {
    for n in LENGTHS {
        let half = n / 2 + 1;
        for width in [1, half / 2 + 1, half, half + 1, 2 * n] {
            let given = random(width);
            let mut spectrum = vec![Complex::ZERO; n];
            for (k, &value) in given.iter().take(half).enumerate() {
                let is_real = k == 0 || 2 * k == n;
                spectrum[k] = if is_real { value.re.into() } else { value };
                spectrum[(n - k) % n] = spectrum[k].conj();
            }
            let plan = f64::plan_inverse(n).unwrap();
            let (mut row, mut scratch) = (vec![f64::NAN; n], used(plan.scratch_length()));
            f64::inverse(&plan, (&given, width), &mut row, 0.5, &mut scratch);
            let row: Vec<Complex<f64>> = row.into_iter().map(Complex::from).collect();
            let wanted: Vec<Complex<f64>> =
                sums(&spectrum, 1.0).iter().map(|sum| sum * 0.5).collect();
            assert_close(&row, &wanted, n);
        }
    }
}

#[test]
fn numbers_are_scaled() {
    let mut numbers = [Complex::new(1.0_f32, -2.0), Complex::new(0.5, 8.0)];
    f32::scale(&mut numbers, 0.25);
    assert_eq!(
        numbers,
        [Complex::new(0.25, -0.5), Complex::new(0.125, 2.0)]
    );
}

/// While threads use plans, other threads make and drop plans.
#[test]
fn threads_share_plans() {
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                for step in 0..200 {
                    let n = 1 + (first * 31 + step * 7) % 150;
                    let row = random(n);
                    let plan = f64::plan(n, Direction::Forward).unwrap();
                    let mut got = row.clone();
                    f64::transform(&plan, &mut got, &mut used(plan.scratch_length()));
                    assert_close(&got, &sums(&row, -1.0), n);
                }
            });
        }
    });
}

/// Elements that are not finite affect only their own row.
#[test]
fn a_row_with_nan_leaves_the_others_alone() {
    let plan = f64::plan(8, Direction::Forward).unwrap();
    let mut rows = random(24);
    let wanted = sums(&rows[16..], -1.0);
    rows[9].re = f64::NAN;
    let first = sums(&rows[..8], -1.0);
    f64::transform(&plan, &mut rows, &mut used(plan.scratch_length()));
    assert_close(&rows[..8], &first, 8);
    assert!(rows[8..16].iter().all(|value| value.is_nan()));
    assert_close(&rows[16..], &wanted, 8);
}

#[test]
fn one_number_is_its_own_transform() {
    let (infinite, one) = (f32::INFINITY, [Complex::new(f32::INFINITY, 2.0)]);
    for direction in [Direction::Forward, Direction::Inverse] {
        let (plan, mut row) = (f32::plan(1, direction).unwrap(), one);
        f32::transform(&plan, &mut row, &mut used(plan.scratch_length()));
        assert_eq!(row, one);
    }
    let (plan, mut spectrum) = (f32::plan_forward(1).unwrap(), used(1));
    let mut scratch = used(plan.scratch_length());
    f32::forward(&plan, &[infinite], &mut spectrum, &mut scratch);
    assert_eq!(spectrum, [Complex::new(infinite, 0.0)]);
    let (plan, mut row) = (f32::plan_inverse(1).unwrap(), [0.0]);
    let mut scratch = used(plan.scratch_length());
    f32::inverse(&plan, (&one, 1), &mut row, 1.0, &mut scratch);
    assert_eq!(row, [infinite]);
}
