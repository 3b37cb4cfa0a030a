//! Fourier transforms, compared with sums by definition, and with each other.

use cachescope::ndarray::{ArrayD, Axis};
use cachescope::{AnyElement, Array, Complex, ErrorKind, Float, Number, Result, complex, fft};
use proptest::prelude::*;

use crate::arrays::model::{counted, some_dims, with_axis};
use crate::arrays::{dirty_device, fails};
use crate::strided::placement;

type C64 = Complex<f64>;

fn number(at: usize) -> f64 {
    ((at * at * 7 + at * 3) % 23) as f64 / 11.0 - 1.0
}

fn narrow<T: Float>(at: usize) -> Complex<T> {
    Complex::new(T::from_f64(number(at)), T::from_f64(number(at + 5)))
}

fn wide<T: Float>(array: &Array<Complex<T>>) -> ArrayD<C64>
where
    Complex<T>: Number,
{
    let element = |value: &Complex<T>| C64::new(value.re.to_f64(), value.im.to_f64());
    array.to_ndarray().unwrap().mapv(|value| element(&value))
}

/// Returns the Fourier sums along an axis, with exponents of this sign.
fn sums(x: &ArrayD<C64>, axis: usize, sign: f64) -> ArrayD<C64> {
    let mut made = x.clone();
    let n = x.shape()[axis];
    let root = |turns: usize| {
        C64::from_polar(
            1.0,
            sign * std::f64::consts::TAU * (turns % n) as f64 / n as f64,
        )
    };
    let lanes = made.lanes_mut(Axis(axis)).into_iter();
    for (mut to, from) in lanes.zip(x.lanes(Axis(axis))) {
        for (k, slot) in to.iter_mut().enumerate() {
            let terms = from.iter().enumerate();
            *slot = terms.map(|(j, value)| value * root(j * k)).sum();
        }
    }
    made
}

#[track_caller]
fn assert_close(found: &ArrayD<C64>, wanted: &ArrayD<C64>, error: f64) {
    assert_eq!(found.shape(), wanted.shape());
    let size = wanted.iter().map(|value| value.norm()).fold(1.0, f64::max);
    for (index, wanted) in wanted.indexed_iter() {
        let apart = (found[&index] - wanted).norm();
        assert!(
            apart <= error * size,
            "{} instead of {wanted} at {index:?}",
            found[&index]
        );
    }
}

fn real(x: &ArrayD<C64>) -> ArrayD<C64> {
    x.mapv(|value| value.re.into())
}

fn first(x: &ArrayD<C64>, axis: usize, count: usize) -> ArrayD<C64> {
    x.clone().slice_axis_move(Axis(axis), (..count).into())
}

/// Compares all functions of one axis with the sums by definition.
fn agree<T: fft::Signal<Spectrum = Complex<T>>>(
    (z, x): (&Array<Complex<T>>, &Array<T>),
    axis: isize,
    error: f64,
) where
    Complex<T>: fft::Spectrum<Part = T>,
{
    let at = counted(axis, z.ndim());
    let n = z.shape()[at];
    let of = wide(z);
    let there = fft::fft(z, axis).unwrap();
    assert_close(&wide(&there), &sums(&of, at, -1.0), error);
    let back = sums(&of, at, 1.0) / C64::from(n as f64);
    assert_close(&wide(&fft::ifft(z, axis).unwrap()), &back, error);

    let lifted = complex(x, T::zero()).eval().unwrap();
    let half = first(&sums(&wide(&lifted), at, -1.0), at, n / 2 + 1);
    let spectrum = fft::rfft(x, axis).unwrap();
    assert_close(&wide(&spectrum), &half, error);
    let again = complex(fft::irfft(&spectrum, n, axis).unwrap(), T::zero());
    assert_close(&wide(&again.eval().unwrap()), &wide(&lifted), error);
    for length in [1, n, 2 * n - 1, 2 * n, 3 * n] {
        let found = fft::irfft(z, length, axis).unwrap();
        let wanted = row_of_half(&of, at, length);
        let found = wide(&complex(&found, T::zero()).eval().unwrap());
        assert_close(&found, &wanted, error);
    }
}

/// Returns the real rows whose spectra begin with the rows of `half`.
fn row_of_half(half: &ArrayD<C64>, axis: usize, length: usize) -> ArrayD<C64> {
    let mut shape = half.shape().to_vec();
    shape[axis] = length;
    let mut whole = ArrayD::<C64>::zeros(shape);
    let there = half.shape()[axis].min(length / 2 + 1);
    for k in 0..there {
        let values = half.index_axis(Axis(axis), k).to_owned();
        let is_real = k == 0 || 2 * k == length;
        let values = if is_real { real(&values) } else { values };
        let other = (length - k) % length;
        whole
            .index_axis_mut(Axis(axis), other)
            .assign(&values.mapv(|value| value.conj()));
        whole.index_axis_mut(Axis(axis), k).assign(&values);
    }
    sums(&whole, axis, 1.0) / C64::from(length as f64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_axis_of_any_view_is_transformed((place, axis) in with_axis()) {
        let dims = place.dims();
        if dims.contains(&0) {
            return Ok(());
        }
        let (z, x) = (place.build(narrow::<f32>), place.build(|at| number(at) as f32));
        agree((&z, &x), axis, 2e-6);
        let (z, x) = (place.build(narrow::<f64>), place.build(number));
        agree((&z, &x), axis, 4e-15);
    }

    #[test]
    fn matrices_are_transformed_along_both_axes(
        place in some_dims().prop_filter("matrices", |dims| dims.len() > 1 && !dims.contains(&0))
            .prop_flat_map(placement)
    ) {
        let z = place.build(narrow::<f64>);
        let (of, rank) = (wide(&z), z.ndim());
        let both = |sign| sums(&sums(&of, rank - 1, sign), rank - 2, sign);
        assert_close(&wide(&fft::fft2(&z).unwrap()), &both(-1.0), 1e-14);
        let count = (z.shape()[rank - 2] * z.shape()[rank - 1]) as f64;
        assert_close(&wide(&fft::ifft2(&z).unwrap()), &(both(1.0) / C64::from(count)), 1e-14);
    }

    #[test]
    fn the_inverse_restores_long_rows_and_keeps_their_energy(
        n in prop_oneof![2..5000usize, Just(1 << 14), Just(4999), Just(3 * 5 * 7 * 11 * 13)],
        columns in 1..4usize,
        axis in 0..2isize,
    ) {
        let shape = if axis == 0 { [n, columns] } else { [columns, n] };
        let values = (0..n * columns).map(narrow::<f64>).collect();
        let z = Array::from_vec(values, shape).unwrap();
        let spectrum = fft::fft(&z, axis).unwrap();
        let back = fft::ifft(&spectrum, axis).unwrap();
        // Elements are about 1, but a frequency may be as large as the number of elements.
        // Therefore the tolerance exceeds the rounding error of 1.
        assert_close(&wide(&back), &wide(&z), 2e-13);
        let energy = |z: &Array<C64>| wide(z).iter().map(C64::norm_sqr).sum::<f64>();
        let (one, other) = (energy(&z), energy(&spectrum) / n as f64);
        prop_assert!((one - other).abs() < 1e-12 * one, "{one} and {other}");
        // The transform is linear.
        let turned = z.flip(axis).unwrap();
        let sum = fft::fft(&(&z + &turned).eval().unwrap(), axis).unwrap();
        let of_terms = (&spectrum + fft::fft(&turned, axis).unwrap()).eval().unwrap();
        assert_close(&wide(&sum), &wide(&of_terms), 1e-13);
    }
}

#[test]
fn results_are_row_major_whatever_the_axis() -> Result<()> {
    let z = Array::from_vec((0..60).map(narrow::<f32>).collect(), [3, 4, 5])?;
    for axis in 0..3 {
        let found = fft::fft(&z, axis)?;
        let address = found.address();
        assert_eq!(found.reshape(60)?.address(), address, "a copy of {axis}");
        let address = fft::rfft(&z.re().eval()?, axis)?;
        assert_eq!(address.flatten()?.address(), address.address());
    }
    Ok(())
}

#[test]
fn what_has_no_rows_has_no_spectra() -> Result<()> {
    let none = Array::<C64>::zeros([0, 3])?;
    assert_eq!(fft::fft(&none, 1)?.shape(), [0, 3]);
    assert_eq!(fft::ifft(&none, -1)?.shape(), [0, 3]);
    assert_eq!(fft::irfft(&none, 8, 1)?.shape(), [0, 8]);
    assert_eq!(fft::rfft(&Array::<f32>::zeros([0, 3])?, 1)?.shape(), [0, 2]);
    assert_eq!(
        fft::fft2(&Array::<C64>::zeros([0, 2, 3])?)?.shape(),
        [0, 2, 3]
    );
    Ok(())
}

#[test]
fn recycled_memory_does_not_show() -> Result<()> {
    let device = dirty_device()?;
    let _guard = device.enter();
    let _scope = device.scope("transforms").enter();
    let z = Array::from_vec((0..700).map(narrow::<f64>).collect(), [7, 100])?;
    let wanted = [0, 1].map(|axis| sums(&wide(&z), axis, -1.0));
    for _ in 0..3 {
        for axis in [0, 1] {
            let found = fft::fft(&z, axis as isize)?;
            assert_close(&wide(&found), &wanted[axis], 1e-14);
        }
    }
    let before = device.cache_stats("transforms").unwrap().misses;
    fft::fft(&z, 0)?;
    fft::fft(&z, 1)?;
    let after = device.cache_stats("transforms").unwrap().misses;
    assert_eq!(before, after, "scratch memory comes of the cache");
    Ok(())
}

/// Elements that are not finite affect only their row. The scale of a transform leaves infinities
/// unchanged.
#[test]
fn rows_do_not_touch_each_other() -> Result<()> {
    let mut values: Vec<C64> = (0..24).map(narrow).collect();
    values[9].im = f64::NAN;
    let z = Array::from_vec(values, [3, 8])?;
    for (array, axis) in [(z.clone(), 1), (z.transpose()?, 0)] {
        let found = fft::ifft(&array, axis)?;
        let found = if axis == 1 { found } else { found.transpose()? }.to_ndarray()?;
        let is_nan = |row: usize| {
            found
                .index_axis(Axis(0), row)
                .iter()
                .all(|value| value.is_nan())
        };
        assert_eq!([0, 1, 2].map(is_nan), [false, true, false]);
    }
    let one = Array::from_slice(&[C64::new(f64::INFINITY, 1.0)], 1)?;
    assert_eq!(
        fft::ifft(&one, 0)?.to_vec()?,
        [C64::new(f64::INFINITY, 1.0)]
    );
    let half = fft::rfft(&Array::from_slice(&[f64::INFINITY], 1)?, 0)?;
    assert_eq!(half.to_vec()?, [C64::new(f64::INFINITY, 0.0)]);
    assert_eq!(fft::irfft(&half, 1, 0)?.to_vec()?, [f64::INFINITY]);
    Ok(())
}

#[test]
fn results_do_not_depend_on_the_threads() {
    let z = Array::from_vec((0..1 << 17).map(narrow::<f32>).collect(), [16, 256, 32]).unwrap();
    let found = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let all = [0, 1, 2].map(|axis| fft::fft(&z, axis).unwrap().to_vec().unwrap());
            (all, fft::ifft2(&z).unwrap().to_vec().unwrap())
        })
    };
    let one = found(1);
    assert!(one == found(2) && one == found(3));
}

#[test]
fn frequencies_are_shifted_there_and_back() -> Result<()> {
    for n in 1..8 {
        let frequencies = fft::fftfreq(n, 1.0_f64 / n as f64)?;
        let shifted = fft::fftshift(&frequencies, -1)?;
        let least = -((n / 2) as f64);
        let wanted: Vec<f64> = (0..n).map(|at| least + at as f64).collect();
        let close = |(one, other): (&f64, &f64)| (one - other).abs() < 1e-12;
        assert!(shifted.to_vec()?.iter().zip(&wanted).all(close));
        assert_eq!(fft::ifftshift(&shifted, 0)?, frequencies);
        let half = fft::rfftfreq(n, 1.0_f64 / n as f64)?;
        assert_eq!(half.len(), n / 2 + 1);
        assert!(
            half.to_vec()?
                .iter()
                .zip(0..)
                .all(|(one, at)| close((one, &f64::from(at))))
        );
    }
    Ok(())
}

#[test]
fn what_cannot_be_transformed_is_refused() -> Result<()> {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let z = Array::<Complex<f32>>::zeros([2, 3])?;
    fails(fft::fft(&z, 2), KIND, "fft: axis 2");
    fails(fft::ifft(&z, -3), KIND, "ifft: axis -3");
    fails(fft::irfft(&z, 4, 7), KIND, "irfft: axis 7");
    fails(fft::irfft(&z, 0, 1), KIND, "irfft: ");
    fails(
        fft::rfft(&Array::<f64>::zeros([])?, 0),
        KIND,
        "rfft: axis 0",
    );
    let none = Array::<Complex<f32>>::zeros([2, 0])?;
    fails(
        fft::fft(&none, 1),
        KIND,
        "fft: axis 1 of the shape [2, 0] has no elements",
    );
    fails(
        fft::irfft(&none, 4, 1),
        KIND,
        "irfft: axis 1 of the shape [2, 0] has no elements",
    );
    fails(
        fft::fft2(&none),
        KIND,
        "fft2: axis -1 of the shape [2, 0] has no elements",
    );
    let row = Array::<Complex<f32>>::zeros(3)?;
    fails(
        fft::ifft2(&row),
        KIND,
        "ifft2: the array of shape [3] has fewer than two axes",
    );
    fails(fft::fftfreq(0, 1.0_f32), KIND, "fftfreq: ");
    fails(fft::rfftfreq(0, 1.0_f32), KIND, "rfftfreq: ");
    fails(fft::fftshift(&row, 1), KIND, "fftshift: axis 1");
    fails(fft::ifftshift(&row, -2), KIND, "ifftshift: axis -2");
    let most = fft::irfft(&row, usize::MAX, 0);
    fails(most, ErrorKind::InvalidShape, "irfft: ");
    let much = fft::irfft(&row, isize::MAX as usize / 8, 0);
    assert_eq!(much.unwrap_err().kind(), ErrorKind::OutOfMemory);
    Ok(())
}

#[test]
fn a_program_may_be_generic_over_spectra() -> Result<()> {
    fn power<C: fft::Spectrum>(x: &Array<C>) -> Result<Array<C::Part>> {
        let spectrum = fft::fft(x, -1)?;
        spectrum.abs().eval()
    }
    fn doubled<T: AnyElement>(x: &[T]) -> Vec<T> {
        [x, x].concat()
    }
    let z = Array::from_vec(doubled(&[Complex::<f32>::ONE]), 2)?;
    assert_eq!(power(&z)?.to_vec()?, [2.0, 0.0]);
    Ok(())
}
