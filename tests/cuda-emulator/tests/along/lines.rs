use cachescope::{Array, Float, Result};
use half::f16;

use crate::along::{both, floats, near, numbers, same};

/// Shapes with short lanes, with long lanes, and with lanes that are divided into parts. The lanes
/// are contiguous or strided.
const SHAPES: [&[usize]; 10] = [
    &[1],
    &[5],
    &[40, 33],
    &[1100, 70],
    &[257],
    &[2049],
    &[2, 30_001],
    &[9000, 3],
    &[70, 500],
    &[2, 3, 4, 5],
];

/// Sums of integers are exact, so a missing element changes the result.
#[test]
fn running_sums_take_every_element() -> Result<()> {
    for shape in SHAPES {
        let values: Vec<i32> = numbers(shape.iter().product()).map(|n| n as i32).collect();
        let [host, cuda] = both(&values, shape)?;
        for axis in 0..shape.len() as isize {
            let what = format!("cumsum of {shape:?} along {axis}");
            same(&what, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
        }
    }
    Ok(())
}

#[test]
fn running_sums_of_floats_lose_no_more_than_on_the_host() -> Result<()> {
    for shape in [&[40, 33][..], &[2, 20_000], &[9000, 3]] {
        let singles = floats(shape.iter().product());
        let halves: Vec<f16> = singles.iter().map(|&x| f16::from_f32(x)).collect();
        let doubles: Vec<f64> = singles.iter().map(|&x| f64::from(x) / 3.0).collect();
        for axis in 0..2 {
            let [host, cuda] = both(&singles, shape)?;
            near("f32", 1e-7, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
            let [host, cuda] = both(&halves, shape)?;
            near("f16", 1e-3, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
            let [host, cuda] = both(&doubles, shape)?;
            near("f64", 3e-16, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
        }
    }
    let [host, cuda] = both(&[1.0, f64::INFINITY, 1.0, f64::NAN, 1.0], &[5])?;
    same("special values", &host.cumsum(0)?, &cuda.cumsum(0)?)
}

#[test]
fn running_sums_of_expressions() -> Result<()> {
    let values: Vec<u8> = numbers(60 * 40).map(|n| n as u8).collect();
    let [host, cuda] = both(&values, &[60, 40])?;
    let sums = |x: &Array<u8>| {
        let x = x.transpose()?.slice(cachescope::ndarray::s![..;-2, 3..])?;
        (&x * 3).cumsum(1)
    };
    same("u8", &sums(&host)?, &sums(&cuda)?)?;
    let sums = |x: &Array<u8>| x.lazy().gt(100).cumsum(0);
    same("bool", &sums(&host)?, &sums(&cuda)?)
}

fn of_floats<T: Float>(from: fn(f32) -> T, tolerance: f64) -> Result<()> {
    for shape in [&[40, 33][..], &[3, 700], &[2, 9000], &[300, 9], &[2, 5, 3]] {
        let count = shape.iter().product();
        let values: Vec<T> = floats(count).iter().map(|&x| from(x * 20.0)).collect();
        let [host, cuda] = both(&values, shape)?;
        for axis in 0..shape.len() as isize {
            let what = format!("{} of {shape:?} along {axis}", T::NAME);
            near(&what, tolerance, &host.softmax(axis)?, &cuda.softmax(axis)?)?;
            let (one, other) = (host.log_softmax(axis)?, cuda.log_softmax(axis)?);
            near(&what, 2.0 * tolerance, &one, &other)?;
        }
    }
    Ok(())
}

#[test]
fn softmax_is_as_near_as_on_the_host() -> Result<()> {
    of_floats::<f32>(|x| x, 5e-7)?;
    of_floats::<f64>(f64::from, 2e-15)?;
    of_floats::<f16>(f16::from_f32, 1e-3)
}

/// Short lanes fit into a block's shared memory, and long lanes do not.
#[test]
fn softmax_of_special_values_is_as_on_the_host() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for length in [6, 9000] {
        let mut values = floats(7 * length);
        for (line, first) in [inf, -inf, nan, 0.0, 1e4, -1e4, 3.0]
            .into_iter()
            .enumerate()
        {
            values[line * length + length / 2] = first;
        }
        values[3 * length..4 * length].fill(-inf);
        let [host, cuda] = both(&values, &[7, length])?;
        for axis in 0..2 {
            near("softmax", 5e-7, &host.softmax(axis)?, &cuda.softmax(axis)?)?;
            near(
                "log_softmax",
                1e-6,
                &host.log_softmax(axis)?,
                &cuda.log_softmax(axis)?,
            )?;
        }
    }
    Ok(())
}
