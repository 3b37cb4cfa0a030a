use cachescope::{Array, Element, Result};
use half::{bf16, f16};

use crate::along::{both, numbers};

/// Returns the elements as text. As text, 0.0 and -0.0 differ, and all NaN are equal.
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

/// One block sorts each lane. The elements have few different values, so ties reveal an unstable
/// sort.
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

/// The lengths are near multiples of the two tile lengths (2048 and 4096 elements). There are one
/// or more lanes, each with its own tiles.
#[test]
fn tiles_end_anywhere() -> Result<()> {
    for length in [2049, 4095, 4096, 4097, 8191, 8193, 12_289, 16_384, 20_481] {
        check::<i32>(&[length], |number| number as i32 % 300 - 150)?;
        check::<u64>(&[length], |number| number.wrapping_mul(number << 31))?;
        check::<u8>(&[length], |number| number as u8)?;
    }
    check::<u16>(&[5, 4097], |number| number as u16)?;
    check::<f64>(&[4, 2049], |number| f64::from(special(number)))?;
    check::<i8>(&[4097, 3], |number| number as i8)
}

/// Each lane has three tiles. The number of lanes is so large that a block counts two tiles of a
/// lane. Then the last block of a lane counts one tile.
#[test]
fn many_long_lines_are_sorted() -> Result<()> {
    let shape = [700, 8193];
    let values: Vec<u8> = numbers(700 * 8193).map(|number| number as u8).collect();
    let [host, cuda] = both(&values, &shape)?;
    assert!(host.sort(1)?.to_vec()? == cuda.sort(1)?.to_vec()?);
    Ok(())
}

/// The elements are arbitrary, have few different values, or are all equal. With few values, a tile
/// contains runs of equal elements. If all elements are equal, they share each digit.
#[test]
fn long_lines_of_every_type_are_sorted_by_all_digits() -> Result<()> {
    fn of<T: Element>(from: fn(u64) -> T) -> Result<()> {
        check::<T>(&[9001], from)?;
        check::<T>(&[1, 5000], |_| T::one())
    }
    /// Spreads the 31 bits of a number over 64 bits.
    fn wide(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
    of::<bool>(|number| number % 3 > 0)?;
    of::<i8>(|number| number as i8)?;
    of::<u8>(|number| number as u8)?;
    of::<i16>(|number| number as i16)?;
    of::<u16>(|number| number as u16)?;
    of::<i32>(|number| wide(number) as i32)?;
    of::<u32>(|number| wide(number) as u32)?;
    of::<i64>(|number| wide(number) as i64)?;
    of::<u64>(wide)?;
    // Random bits include NaN of both signs. `special` adds both zeros and both infinities.
    of::<f16>(|number| f16::from_bits(number as u16))?;
    of::<bf16>(|number| bf16::from_bits(number as u16))?;
    of::<f32>(|number| f32::from_bits(wide(number) as u32))?;
    of::<f64>(|number| f64::from_bits(wide(number)))?;
    of::<f32>(special)?;
    of::<f64>(|number| f64::from(special(number)))
}

#[test]
fn lines_may_have_any_layout() -> Result<()> {
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
