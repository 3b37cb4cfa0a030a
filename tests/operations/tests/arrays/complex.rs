//! Arrays of complex numbers, compared with the arithmetic of single numbers in `f64`.

use cachescope::ndarray::s;
use cachescope::{
    Array, Complex, ErrorKind, Float, Number, PadMode, Result, complex, concat, einsum, select,
};

use crate::arrays::fails;

type C64 = Complex<f64>;

/// Runs a test for both types of parts, with the maximum error of each type.
macro_rules! for_parts {
    ($test:ident) => {{
        $test::<f32>(2e-6)?;
        $test::<f64>(4e-15)
    }};
}

/// Returns a number with one of many directions and a magnitude from about 0.1 to 3.
fn value(index: usize) -> C64 {
    let angle = index as f64 * 2.4;
    C64::from_polar(0.1 + (index as f64 * 0.7).sin().abs() * 3.0, angle)
}

fn narrow<T: Float>(value: C64) -> Complex<T> {
    Complex::new(T::from_f64(value.re), T::from_f64(value.im))
}

fn wide<T: Float>(value: Complex<T>) -> C64 {
    C64::new(value.re.to_f64(), value.im.to_f64())
}

/// Returns an array of `value(first)`, `value(first + 1)`, ….
fn array<T: Float>(shape: &[usize], first: usize) -> Result<Array<Complex<T>>>
where
    Complex<T>: Number,
{
    let count: usize = shape.iter().product();
    let values = (first..first + count).map(|index| narrow(value(index)));
    Array::from_vec(values.collect(), shape)
}

/// Asserts that the elements are near the wanted values. `error` is relative to the largest wanted
/// magnitude or to 1, whichever is larger.
#[track_caller]
fn close<T: Float>(found: &Array<Complex<T>>, wanted: &[C64], error: f64) -> Result<()>
where
    Complex<T>: Number,
{
    let found = found.to_vec()?;
    assert_eq!(found.len(), wanted.len());
    let size = wanted.iter().map(|value| value.norm()).fold(1.0, f64::max);
    for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let apart = (wide(found) - wanted).norm();
        assert!(apart <= error * size, "{found} instead of {wanted} at {at}");
    }
    Ok(())
}

fn elements<T: Float>(array: &Array<Complex<T>>) -> Result<Vec<C64>>
where
    Complex<T>: Number,
{
    Ok(array.to_vec()?.into_iter().map(wide).collect())
}

#[test]
fn arithmetic_is_that_of_single_numbers() -> Result<()> {
    fn check<T: Float>(error: f64) -> Result<()>
    where
        Complex<T>: Number,
    {
        let whole = array::<T>(&[40, 30], 0)?;
        let row = array::<T>(&[30], 7)?;
        let reversed = whole.slice(s![..;-2, ..])?.transpose()?;
        for (x, y) in [
            (whole.clone(), row),
            (reversed.clone(), array(&[30, 1], 3)?),
            (whole.slice(s![5..25, ..])?.transpose()?, reversed),
        ] {
            let shape = (&x + &y).shape()?;
            let both = [&x, &y].map(|side| side.broadcast_to(shape).and_then(|all| elements(&all)));
            let [a, b] = both;
            let (a, b) = (a?, b?);
            let each = |of: fn(C64, C64) -> C64| -> Vec<C64> {
                a.iter().zip(&b).map(|(&a, &b)| of(a, b)).collect()
            };
            close(&(&x + &y).eval()?, &each(|a, b| a + b), error)?;
            close(&(&x - &y).eval()?, &each(|a, b| a - b), error)?;
            close(&(&x * &y).eval()?, &each(|a, b| a * b), error)?;
            close(&(&x / &y).eval()?, &each(|a, b| a / b), error)?;
            close(&x.mul_add(&y, &x).eval()?, &each(|a, b| a * b + a), error)?;
            let chain = (&x * y.conj() - narrow::<T>(C64::ONE)) / (&y + &x * &x);
            close(
                &chain.eval()?,
                &each(|a, b| (a * b.conj() - 1.0) / (b + a * a)),
                20.0 * error,
            )?;
            let one = narrow::<T>(C64::ONE);
            close(
                &(-(&x)).eval()?,
                &a.iter().map(|a| -a).collect::<Vec<_>>(),
                error,
            )?;
            close(
                &(&x - one).square().eval()?,
                &a.iter().map(|a| (a - 1.0).powu(2)).collect::<Vec<_>>(),
                error,
            )?;
        }
        Ok(())
    }
    for_parts!(check)
}

#[test]
fn numbers_are_made_of_their_parts_and_return_them() -> Result<()> {
    fn check<T: Float>(error: f64) -> Result<()>
    where
        Complex<T>: Number<Part = T>,
    {
        let x = array::<T>(&[6, 50], 0)?;
        let (re, im) = (x.re().eval()?, x.im().eval()?);
        assert_eq!(complex(&re, &im).eval()?, x);
        assert_eq!(complex(&re, T::zero()).im().eval()?, Array::zeros([6, 50])?);
        assert_eq!(x.conj().im().eval()?, (-&im).eval()?);
        let (lengths, wanted) = (x.abs().eval()?.to_vec()?, elements(&x)?);
        for (length, wanted) in lengths.iter().zip(&wanted) {
            assert!((length.to_f64() - wanted.norm()).abs() <= error * wanted.norm());
        }
        let squares = (x.conj() * &x).re().eval()?;
        assert_eq!(squares.shape(), [6, 50]);
        // Real arrays also have real and imaginary parts.
        assert_eq!(re.re().eval()?, re);
        assert_eq!(re.conj().eval()?, re);
        assert_eq!(re.im().eval()?, Array::zeros([6, 50])?);
        Ok(())
    }
    for_parts!(check)
}

#[test]
fn lengths_and_quotients_do_not_overflow_on_the_way() -> Result<()> {
    fn check<T: Float>(error: f64) -> Result<()>
    where
        Complex<T>: Number<Part = T>,
    {
        // The squares of both numbers are outside of the type's range.
        let (large, small) = (T::max_value().to_f64() / 4.0, T::epsilon().to_f64().powi(4));
        for size in [large, small, 1.0] {
            let x = Array::from_vec(vec![narrow::<T>(C64::new(0.75 * size, -size))], 1)?;
            let length = x.abs().eval()?.item()?.to_f64();
            assert!((length / size - 1.25).abs() < error, "{length} of {size}");
            close(&(&x / &x).eval()?, &[C64::ONE], error)?;
        }
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        let special = [(inf, nan), (nan, -inf), (0.0, -0.0), (nan, 1.0), (0.0, nan)];
        let special = special.map(|(re, im)| narrow::<T>(C64::new(re, im)));
        let lengths = Array::from_slice(&special, 5)?
            .abs()
            .cast::<f64>()
            .eval()?
            .to_vec()?;
        assert_eq!(lengths[..3], [inf, inf, 0.0]);
        assert!(lengths[3].is_nan() && lengths[4].is_nan());
        // A division by zero divides the parts by a real zero.
        let zero = Array::from_slice(&[narrow::<T>(C64::ZERO)], 1)?;
        let one = Array::from_slice(&[narrow::<T>(C64::new(1.0, -2.0))], 1)?;
        let quotient = wide((&one / &zero).eval()?.item()?);
        assert_eq!((quotient.re, quotient.im), (inf, -inf));
        assert!(wide((&zero / &zero).eval()?.item()?).re.is_nan());
        Ok(())
    }
    for_parts!(check)
}

#[test]
fn equality_is_of_both_parts() -> Result<()> {
    let (i, nan) = (C64::I, C64::new(f64::NAN, 0.0));
    let x = Array::from_slice(&[i, C64::ONE, nan], 3)?;
    let y = Array::from_slice(&[i, i, nan], 3)?;
    assert_eq!(x.eq(&y).eval()?.to_vec()?, [true, false, false]);
    assert_eq!(x.ne(&y).eval()?.to_vec()?, [false, true, true]);
    assert!(x != y && x.slice(s![..2])? == x.slice(s![..2])?);
    let chosen = select(x.eq(i), &x, C64::new(5.0, 0.0)).eval()?;
    assert_eq!(
        chosen.to_vec()?,
        [i, C64::new(5.0, 0.0), C64::new(5.0, 0.0)]
    );
    Ok(())
}

#[test]
fn sums_means_and_products() -> Result<()> {
    fn check<T: Float>(error: f64) -> Result<()>
    where
        Complex<T>: Number<Total = Complex<T>, Average = Complex<T>>,
    {
        let whole = array::<T>(&[7, 300], 0)?;
        for x in [whole.clone(), whole.slice(s![..;-1, 3..50])?.transpose()?] {
            let values = elements(&x)?;
            let (rows, columns) = (x.shape()[0], x.shape()[1]);
            let sum: C64 = values.iter().sum();
            close(&x.sum()?, &[sum], 10.0 * error)?;
            close(&x.mean()?, &[sum / values.len() as f64], 10.0 * error)?;
            let of_rows: Vec<C64> = values.chunks(columns).map(|row| row.iter().sum()).collect();
            close(&x.sum_axis(-1)?, &of_rows, 10.0 * error)?;
            assert_eq!(x.sum_keepdims(1)?.shape(), [rows, 1]);
            let of_columns: Vec<C64> = (0..columns)
                .map(|column| values[column..].iter().step_by(columns).sum())
                .collect();
            close(&x.lazy().sum_axis(0)?, &of_columns, 10.0 * error)?;
            let small = x.slice(s![..2, ..3])?;
            close(
                &small.prod()?,
                &[elements(&small)?.iter().product()],
                10.0 * error,
            )?;
            let mut running = Vec::new();
            for row in values.chunks(columns) {
                let mut sum = C64::ZERO;
                running.extend(row.iter().map(|value| {
                    sum += value;
                    sum
                }));
            }
            close(&x.cumsum(1)?, &running, 10.0 * error)?;
            let last = x.slice(s![.., ..5])?.cumprod(1)?.slice(s![.., -1])?;
            close(
                &last,
                &elements(&x.slice(s![.., ..5])?.prod_axis(1)?)?,
                10.0 * error,
            )?;
        }
        assert_eq!(
            Array::<Complex<T>>::zeros(0)?.sum()?.item()?,
            narrow::<T>(C64::ZERO)
        );
        // The error does not grow with the number of elements.
        let many = Array::full(1 << 20, narrow::<T>(C64::new(0.1, -0.3)))?;
        let exact = wide(narrow::<T>(C64::new(0.1, -0.3))) * f64::from(1 << 20);
        close(&many.sum()?, &[exact], error)
    }
    for_parts!(check)
}

/// Returns the product of two matrices, with a separate sum for each element.
fn naive(x: &[C64], y: &[C64], [rows, inner, columns]: [usize; 3]) -> Vec<C64> {
    let element = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        let terms = (0..inner).map(|k| x[row * inner + k] * y[k * columns + column]);
        terms.sum()
    };
    (0..rows * columns).map(element).collect()
}

#[test]
fn products_of_matrices() -> Result<()> {
    fn check<T: Float>(error: f64) -> Result<()>
    where
        Complex<T>: Number,
    {
        for lengths in [
            [1, 1, 1],
            [2, 3, 2],
            [5, 7, 1],
            [1, 40, 9],
            [9, 11, 10],
            [33, 65, 17],
            [70, 3, 90],
            [3, 0, 2],
        ] {
            let [rows, inner, columns] = lengths;
            let x = array::<T>(&[rows, inner], 0)?;
            let y = array::<T>(&[inner, columns], 11)?;
            let wanted = naive(&elements(&x)?, &elements(&y)?, lengths);
            close(&x.matmul(&y)?, &wanted, 10.0 * error)?;
            // The views have the elements of `x` and `y`.
            let turned = (x.transpose()?.flip(0)? * narrow::<T>(C64::ONE))
                .eval()?
                .flip(0)?
                .transpose()?;
            let spread = y.repeat(2, 1)?.slice(s![.., ..;2])?;
            close(&turned.matmul(&spread)?, &wanted, 10.0 * error)?;
        }
        let (x, y) = (array::<T>(&[50], 0)?, array::<T>(&[50], 9)?);
        let wanted: C64 = elements(&x)?
            .iter()
            .zip(elements(&y)?)
            .map(|(a, b)| a * b)
            .sum();
        close(&x.dot(&y)?, &[wanted], 10.0 * error)?;
        assert_eq!(x.outer(&y)?, (x.unsqueeze(1)? * &y).eval()?);
        // A stack of small matrices is multiplied by one matrix.
        let (stack, one) = (array::<T>(&[20, 2, 2], 0)?, array::<T>(&[2, 2], 5)?);
        let wanted: Vec<C64> = elements(&stack)?
            .chunks(4)
            .flat_map(|matrix| naive(matrix, &elements(&one).unwrap(), [2, 2, 2]))
            .collect();
        close(&stack.matmul(&one)?, &wanted, 10.0 * error)?;
        close(
            &einsum("bij,jk->bik", (&stack, &one))?,
            &wanted,
            10.0 * error,
        )?;
        let large = array::<T>(&[4, 16, 20], 0)?;
        let product = large.matmul(&large.swap_axes(1, 2)?)?;
        let each = large.slice(s![2, .., ..])?;
        let wanted = naive(
            &elements(&each)?,
            &elements(&each.transpose()?)?,
            [16, 20, 16],
        );
        close(&product.slice(s![2, .., ..])?, &wanted, 10.0 * error)?;
        assert_eq!(one.kron(&one)?.shape(), [4, 4]);
        Ok(())
    }
    for_parts!(check)
}

#[test]
fn conversions_take_the_real_part_and_keep_both_between_complex_types() -> Result<()> {
    let x = Array::from_slice(
        &[
            C64::new(1.9, 5.0),
            C64::new(-300.5, 0.0),
            C64::new(0.0, 0.5),
        ],
        3,
    )?;
    assert_eq!(x.cast::<i8>().eval()?.to_vec()?, [1, -128, 0]);
    assert_eq!(x.cast::<f32>().eval()?.to_vec()?, [1.9, -300.5, 0.0]);
    assert_eq!(x.cast::<bool>().eval()?.to_vec()?, [true, true, true]);
    let single = x.cast::<Complex<f32>>().eval()?;
    assert_eq!(single.to_vec()?[0], Complex::new(1.9_f32, 5.0));
    assert_eq!(
        single.cast::<C64>().eval()?.to_vec()?[1],
        C64::new(-300.5, 0.0)
    );
    let whole = Array::from_slice(&[3_i64, -(1 << 60) - 1], 2)?;
    assert_eq!(
        whole.cast::<C64>().eval()?.to_vec()?[1].re,
        -(2f64.powi(60))
    );
    assert_eq!(
        Array::from_slice(&[true, false], 2)?
            .cast::<C64>()
            .eval()?
            .to_vec()?,
        [C64::ONE, C64::ZERO]
    );
    assert_eq!(Array::<C64>::eye(2)?.sum()?.item()?, C64::new(2.0, 0.0));
    Ok(())
}

#[test]
fn elements_are_moved_whole() -> Result<()> {
    let x = array::<f64>(&[3, 4], 0)?;
    let values = elements(&x)?;
    let at = |indices: &[usize]| -> Vec<C64> { indices.iter().map(|&at| values[at]).collect() };
    let indices = Array::from_slice(&[2_i64, 0], 2)?;
    assert_eq!(
        x.take(&indices, 0)?.to_vec()?,
        at(&[8, 9, 10, 11, 0, 1, 2, 3])
    );
    assert_eq!(x.roll(1, 1)?.slice(s![0, ..])?.to_vec()?, at(&[3, 0, 1, 2]));
    assert_eq!(
        concat(&[&x, &x], 1)?.slice(s![1, ..])?.to_vec()?,
        at(&[4, 5, 6, 7, 4, 5, 6, 7])
    );
    let padded = x.pad_with(&[(0, 0), (1, 0)], PadMode::Constant(C64::I))?;
    assert_eq!(padded.slice(s![.., 0])?.to_vec()?, [C64::I; 3]);
    let mask = x.re().gt(0.0).eval()?;
    let kept: Vec<C64> = values
        .iter()
        .copied()
        .filter(|value| value.re > 0.0)
        .collect();
    assert_eq!(x.select_by(&mask)?.to_vec()?, kept);
    let mut y = x.clone();
    y.masked_assign(&mask, C64::ZERO)?;
    assert_eq!(
        y.sum()?.item()?.re,
        values
            .iter()
            .filter(|value| value.re <= 0.0)
            .map(|value| value.re)
            .sum::<f64>()
    );
    y.slice_mut(s![.., 1..3])?.assign(x.slice(s![.., ..2])?)?;
    assert_eq!(y.slice(s![2, 1..3])?.to_vec()?, at(&[8, 9]));
    y.add_assign(C64::I)?;
    assert_eq!(y.slice(s![2, 1])?.item()?, values[8] + C64::I);
    let mut sums = Array::<C64>::zeros(2)?;
    let (into, ones) = (
        Array::from_slice(&[1_i64, 1, 0], 3)?,
        Array::full(3, C64::I)?,
    );
    sums.scatter_add(&into, &ones, 0)?;
    assert_eq!(sums.to_vec()?, [C64::I, C64::I * 2.0]);
    sums.scatter(&into, &array(&[3], 0)?, 0)?;
    assert_eq!(sums.to_vec()?, at(&[2, 1]));
    assert_eq!(x.tril(0)?.slice(s![0, 1..])?.to_vec()?, [C64::ZERO; 3]);
    assert_eq!(x.diff(1)?.slice(s![0, 0])?.item()?, values[1] - values[0]);
    assert_eq!(Array::from_ndarray(&x.to_ndarray()?)?, x);
    Ok(())
}

#[test]
fn they_are_printed_as_numpy_prints_them() -> Result<()> {
    let text = |values: &[C64]| -> Result<String> {
        Ok(Array::from_slice(values, values.len())?.to_string())
    };
    let i = C64::I;
    assert_eq!(
        text(&[1.0 + 2.0 * i, -0.5 - 10.25 * i])?,
        "[ 1.  +2.j   -0.5-10.25j]"
    );
    assert_eq!(
        text(&[i, C64::new(f64::NAN, f64::INFINITY)])?,
        "[ 0. +1.j nan+infj]"
    );
    assert_eq!(text(&[C64::new(1e-10, 3.0)])?, "[1.e-10+3.j]");
    let one = Array::full([], C64::new(1.5, -2.0))?;
    assert_eq!(one.to_string(), "(1.5-2j)");
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_errors() -> Result<()> {
    let (x, y) = (Array::<C64>::zeros([2, 3])?, Array::<C64>::zeros([2, 4])?);
    fails((&x + &y).eval(), ErrorKind::ShapeMismatch, "add");
    fails(x.matmul(&y), ErrorKind::ShapeMismatch, "matmul");
    fails(x.sum_axis(2), ErrorKind::InvalidArgument, "axis");
    Ok(())
}

#[test]
fn a_part_with_gaps_is_written_whole() -> Result<()> {
    fn check<T: Float>() -> Result<()>
    where
        Complex<T>: Number<Part = T>,
    {
        let whole = array::<T>(&[7, 9], 0)?;
        let part = array::<T>(&[3, 3], 5)?;
        let twice = (&part + &part).eval()?;
        let mut written = whole.clone();
        written.slice_mut(s![1..;2, ..;-3])?.assign(&part + &part)?;
        for (row, column) in (0..7).flat_map(|row| (0..9).map(move |column| (row, column))) {
            // The columns 8, 5 and 2 are written.
            let is_written = row % 2 == 1 && column % 3 == 2;
            let expected = match is_written {
                true => twice.slice(s![row / 2, 2 - column / 3])?,
                false => whole.slice(s![row, column])?,
            };
            let own = written.slice(s![row, column])?;
            assert_eq!(own.item()?, expected.item()?, "at {row}, {column}");
        }
        Ok(())
    }
    check::<f32>()?;
    check::<f64>()
}
