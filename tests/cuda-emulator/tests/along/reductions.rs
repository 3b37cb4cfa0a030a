use cachescope::{Array, ErrorKind, Float, Result};
use half::{bf16, f16};

use crate::along::{both, floats, near, numbers, same};

/// Shapes whose reduced rows are short, long, or divided into parts, and equivalent shapes for
/// columns.
const SHAPES: [&[usize]; 12] = [
    &[1],
    &[7],
    &[300],
    &[5000],
    &[70_001],
    &[3, 20_000],
    &[1500, 5],
    &[40, 33],
    &[9000, 3],
    &[2000, 40],
    &[2, 130, 7],
    &[3, 1, 4, 5],
];

/// Sums of integers are exact, so a missing or repeated element changes the result.
#[test]
fn every_element_counts_once() -> Result<()> {
    for shape in SHAPES {
        let count = shape.iter().product();
        let values: Vec<i32> = numbers(count).map(|number| number as i32).collect();
        let [host, cuda] = both(&values, shape)?;
        same(&format!("sum of {shape:?}"), &host.sum()?, &cuda.sum()?)?;
        for axis in 0..shape.len() as isize {
            let what = format!("sum of {shape:?} along {axis}");
            same(&what, &host.sum_axis(axis)?, &cuda.sum_axis(axis)?)?;
        }
    }
    Ok(())
}

#[test]
fn positions_are_those_of_the_first() -> Result<()> {
    for shape in SHAPES {
        let count = shape.iter().product();
        // The values are few, so each part contains ties.
        let mut values: Vec<f32> = numbers(count).map(|number| (number % 5) as f32).collect();
        for iteration in 0..2 {
            let [host, cuda] = both(&values, shape)?;
            same(
                &format!("argmax of {shape:?}"),
                &host.argmax()?,
                &cuda.argmax()?,
            )?;
            for axis in 0..shape.len() as isize {
                let what = format!("argmin of {shape:?} along {axis}, {iteration}");
                same(&what, &host.argmin_axis(axis)?, &cuda.argmin_axis(axis)?)?;
            }
            // If several elements are NaN, the result is the index of the first NaN.
            for index in (count / 2..count).step_by(11) {
                values[index] = f32::NAN;
            }
        }
    }
    Ok(())
}

/// The operands are broadcast expressions, and views with positive and negative strides.
#[test]
fn operands_may_have_any_layout() -> Result<()> {
    let values: Vec<i64> = numbers(24 * 50).map(|number| number as i64).collect();
    let [host, cuda] = both(&values, &[24, 50])?;
    let columns = |array: &Array<i64>| {
        array
            .slice(cachescope::ndarray::s![1..;2, ..;-3])?
            .transpose()
    };
    let (host, cuda) = (columns(&host)?, columns(&cuda)?);
    for axis in 0..2 {
        same("views", &host.sum_axis(axis)?, &cuda.sum_axis(axis)?)?;
        same("views", &host.argmax_axis(axis)?, &cuda.argmax_axis(axis)?)?;
    }
    let row = |array: &Array<i64>| array.slice(cachescope::ndarray::s![3, ..]);
    let [one, other] = [(&host - row(&host)?), (&cuda - row(&cuda)?)];
    same("broadcast", &one.sum_axis(0)?, &other.sum_axis(0)?)?;
    same("broadcast", &one.max()?, &other.max()?)
}

fn of_floats<T: Float>(from: fn(f32) -> T, tolerance: f64) -> Result<()> {
    for (shape, large) in [(&[700, 9][..], 1.5), (&[3, 4100], 300.0), (&[90_000], 40.0)] {
        let count = shape.iter().product();
        let values: Vec<T> = floats(count).iter().map(|&x| from(x + large)).collect();
        let [host, cuda] = both(&values, shape)?;
        for axis in 0..shape.len() as isize {
            let what = |name: &str| format!("{name} of {} of {shape:?} along {axis}", T::NAME);
            near(
                &what("sum"),
                tolerance,
                &host.sum_axis(axis)?,
                &cuda.sum_axis(axis)?,
            )?;
            near(
                &what("mean"),
                tolerance,
                &host.mean_axis(axis)?,
                &cuda.mean_axis(axis)?,
            )?;
            near(
                &what("var"),
                4.0 * tolerance,
                &host.var_axis(axis)?,
                &cuda.var_axis(axis)?,
            )?;
            near(
                &what("norm"),
                tolerance,
                &host.norm_axis(axis)?,
                &cuda.norm_axis(axis)?,
            )?;
            let (one, other) = (host.logsumexp_axis(axis)?, cuda.logsumexp_axis(axis)?);
            near(&what("logsumexp"), tolerance, &one, &other)?;
            same(&what("max"), &host.max_axis(axis)?, &cuda.max_axis(axis)?)?;
        }
    }
    Ok(())
}

#[test]
fn floats_are_as_near_as_on_the_host() -> Result<()> {
    of_floats::<f32>(|x| x, 4e-7)?;
    of_floats::<f64>(f64::from, 1e-15)
}

#[test]
fn halves_are_computed_in_f32() -> Result<()> {
    of_floats::<f16>(f16::from_f32, 1e-3)?;
    of_floats::<bf16>(bf16::from_f32, 8e-3)
}

/// A sequential sum of 2^20 times 0.1 would have an error above a hundred.
#[test]
fn the_error_of_a_sum_does_not_grow() -> Result<()> {
    let values = vec![0.1_f32; 1 << 20];
    let [_, cuda] = both(&values, &[1 << 20])?;
    let exact = f64::from(0.1_f32) * f64::from(1 << 20);
    let sum = f64::from(cuda.sum()?.item()?);
    assert!((sum - exact).abs() <= exact * 4e-7, "{sum} for {exact}");
    // The sum recovers digits that a large element temporarily absorbs.
    let mut values = vec![1.0_f64; 1 << 16];
    (values[0], values[(1 << 16) - 1]) = (1e18, -1e18);
    let [_, cuda] = both(&values, &[1 << 16])?;
    assert_eq!(cuda.sum()?.item()?, 65_534.0);
    Ok(())
}

/// Large terms of opposite signs cancel at any position. The sum of the other terms loses no
/// digits.
#[test]
fn terms_that_cancel_cost_no_digits() -> Result<()> {
    for count in [3, 255, 1024, 30_000] {
        for iterations in [1, count] {
            let terms = [1.0_f32, 1e8, -1e8].map(|term| vec![term; count / iterations]);
            let values = terms.concat().repeat(iterations);
            let length = values.len();
            let [_, cuda] = both(&values, &[length])?;
            assert_eq!(cuda.sum()?.item()?, count as f32, "{count}, {iterations}");
            let columns = cuda.unsqueeze(1)?.broadcast_to([length, 3])?;
            assert_eq!(columns.sum_axis(0)?.to_vec()?, [count as f32; 3]);
        }
    }
    Ok(())
}

/// In parts with few elements, the means differ by less than the rounding unit of a billion.
#[test]
fn a_variance_far_from_zero_keeps_its_digits() -> Result<()> {
    let noise = |at: usize| ((at * 37) % 17) as f64 * 0.125;
    for shape in [[1, 100_003], [3, 9000], [9000, 3]] {
        let count = shape[0] * shape[1];
        let near: Vec<f64> = (0..count).map(noise).collect();
        let far: Vec<f64> = near.iter().map(|x| x + 1e9).collect();
        let ([host, _], [_, cuda]) = (both(&near, &shape)?, both(&far, &shape)?);
        for axis in 0..2 {
            let what = format!("of {shape:?} along {axis}");
            super::near(&what, 1e-13, &host.var_axis(axis)?, &cuda.var_axis(axis)?)?;
        }
        super::near("of all", 1e-13, &host.var()?, &cuda.var()?)?;
    }
    Ok(())
}

#[test]
fn all_reductions_have_every_kind_of_element() -> Result<()> {
    fn check<T: cachescope::Element>(from: fn(u64) -> T) -> Result<()> {
        let values: Vec<T> = numbers(600).map(from).collect();
        let [host, cuda] = both(&values, &[20, 30])?;
        near("sum", 1e-6, &host.sum_axis(1)?, &cuda.sum_axis(1)?)?;
        near("prod", 1e-5, &host.prod_axis(0)?, &cuda.prod_axis(0)?)?;
        near("mean", 1e-6, &host.mean()?, &cuda.mean()?)?;
        near("std", 1e-6, &host.std()?, &cuda.std()?)?;
        near("norm", 1e-6, &host.norm()?, &cuda.norm()?)?;
        same("max", &host.max_axis(0)?, &cuda.max_axis(0)?)?;
        same("min", &host.min_axis(1)?, &cuda.min_axis(1)?)?;
        same("argmax", &host.argmax_axis(1)?, &cuda.argmax_axis(1)?)?;
        same("argmin", &host.argmin()?, &cuda.argmin()?)?;
        same("all", &host.all_axis(0)?, &cuda.all_axis(0)?)?;
        same("any", &host.any_axis(1)?, &cuda.any_axis(1)?)
    }
    check::<u8>(|number| number as u8)?;
    check::<i64>(|number| number as i64 - (1 << 30))?;
    check::<bool>(|number| number % 3 > 0)
}

#[test]
fn special_values_propagate() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows: [[f32; 4]; 7] = [
        [inf, 1.0, 2.0, 3.0],
        [inf, -inf, 2.0, 3.0],
        [-inf, -inf, -inf, -inf],
        [nan, inf, 2.0, 3.0],
        [1.0, 2.0, nan, nan],
        [-0.0, 0.0, -0.0, 0.0],
        [f32::MAX, f32::MAX, 1.0, -1.0],
    ];
    let [host, cuda] = both(rows.as_flattened(), &[7, 4])?;
    same("sum", &host.sum_axis(1)?, &cuda.sum_axis(1)?)?;
    same("var", &host.var_axis(1)?, &cuda.var_axis(1)?)?;
    same("norm", &host.norm_axis(1)?, &cuda.norm_axis(1)?)?;
    near(
        "logsumexp",
        4e-7,
        &host.logsumexp_axis(1)?,
        &cuda.logsumexp_axis(1)?,
    )?;
    same("max", &host.max_axis(1)?, &cuda.max_axis(1)?)?;
    same("argmin", &host.argmin_axis(1)?, &cuda.argmin_axis(1)?)?;
    same("all", &host.all_axis(1)?, &cuda.all_axis(1)?)?;
    // The squares exceed the range of `f64`.
    for scale in [1e200, 1e-200] {
        let values: Vec<f64> = floats(3000).iter().map(|&x| f64::from(x) * scale).collect();
        let [host, cuda] = both(&values, &[3000])?;
        let (one, other) = (host.norm()?.item()?, cuda.norm()?.item()?);
        assert!(
            one > 0.0 && (one - other).abs() <= 1e-14 * one,
            "{one} and {other}"
        );
    }
    Ok(())
}

#[test]
fn empty_reductions_are_as_on_the_host() -> Result<()> {
    let [_, cuda] = both::<f32>(&[], &[0, 3])?;
    assert_eq!(cuda.sum()?.item()?, 0.0);
    assert_eq!(cuda.prod_axis(0)?.to_vec()?, [1.0; 3]);
    assert!(
        cuda.mean_axis(0)?
            .to_vec()?
            .iter()
            .all(|mean| mean.is_nan())
    );
    assert_eq!(cuda.sum_axis(1)?.shape(), [0]);
    assert_eq!(cuda.max().unwrap_err().kind(), ErrorKind::InvalidArgument);
    Ok(())
}
