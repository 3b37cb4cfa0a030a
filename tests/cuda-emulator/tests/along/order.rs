use cachescope::{Array, Element, Result};
use half::f16;

use crate::{both, numbers};

/// The bits of elements: of both zeros, and of each NaN, the one that the host takes.
fn bits<T: Element>(array: &Array<T>) -> Result<Vec<String>> {
    Ok(array
        .to_vec()?
        .iter()
        .map(|value| format!("{value:?}"))
        .collect())
}

fn check<T: Element>(shape: &[usize], from: fn(u64) -> T) -> Result<()> {
    let values: Vec<T> = numbers(shape.iter().product()).map(from).collect();
    let [host, cuda] = both(&values, shape)?;
    for axis in 0..shape.len() as isize {
        let what = format!("{} of {shape:?} along {axis}", T::NAME);
        assert_eq!(bits(&host.sort(axis)?)?, bits(&cuda.sort(axis)?)?, "{what}");
        assert_eq!(
            host.argsort(axis)?.to_vec()?,
            cuda.argsort(axis)?.to_vec()?,
            "{what}"
        );
        let length = shape[axis as usize];
        for k in [0, 1, length / 2, length] {
            let ((one, ranks), (other, others)) = (host.topk(k, axis)?, cuda.topk(k, axis)?);
            assert_eq!(bits(&one)?, bits(&other)?, "{what}");
            assert_eq!(ranks.to_vec()?, others.to_vec()?, "{what}");
        }
    }
    Ok(())
}

fn special(number: u64) -> f32 {
    match number % 16 {
        0 => -0.0,
        1 => 0.0,
        2 => f32::NAN,
        3 => -f32::INFINITY,
        4 => f32::INFINITY,
        5 => f32::from_bits(1),
        _ => (number % 31) as f32 - 15.0,
    }
}

/// Lines that a block sorts at once: with few different values, so that ties show whether it is stable.
#[test]
fn short_lines_are_sorted_as_on_the_host() -> Result<()> {
    for shape in [&[1][..], &[2], &[100], &[2048], &[30, 7], &[3, 4, 5]] {
        check::<f32>(shape, special)?;
        check::<i64>(shape, |number| number as i64 % 9 - 4)?;
    }
    check::<u8>(&[9, 40], |number| number as u8)?;
    check::<bool>(&[9, 40], |number| number % 2 > 0)?;
    check::<f16>(&[9, 40], |number| f16::from_f32(special(number)))
}

#[test]
fn long_lines_are_sorted_as_on_the_host() -> Result<()> {
    check::<f32>(&[2, 9001], special)?;
    check::<f32>(&[2500, 2], |number| (number as f32).sin())?;
    check::<i64>(&[5000], |number| (number as i64 - (1 << 30)) * 12_345_678)?;
    check::<u8>(&[5000], |number| number as u8)?;
    check::<i16>(&[3, 2100], |number| number as i16)
}

#[test]
fn lines_may_stand_anyhow() -> Result<()> {
    let values: Vec<i32> = numbers(6 * 2500 * 3).map(|number| number as i32).collect();
    let [host, cuda] = both(&values, &[6, 2500, 3])?;
    let view = |array: &Array<i32>| {
        array
            .slice(cachescope::ndarray::s![..;-2, 10.., 1..])?
            .transpose()
    };
    let (host, cuda) = (view(&host)?, view(&cuda)?);
    for axis in 0..3 {
        assert_eq!(host.sort(axis)?.to_vec()?, cuda.sort(axis)?.to_vec()?);
        assert_eq!(host.argsort(axis)?.to_vec()?, cuda.argsort(axis)?.to_vec()?);
    }
    Ok(())
}
