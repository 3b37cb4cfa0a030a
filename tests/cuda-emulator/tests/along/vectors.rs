use cachescope::ndarray::s;
use cachescope::{Array, Element, Float, Result};
use half::{bf16, f16};

use crate::along::{both, floats, same};

/// Lengths near the lengths at which the kernel changes: a pack, a warp of packs, a block and a
/// chunk.
const LENGTHS: [usize; 12] = [8, 15, 16, 17, 24, 257, 512, 1024, 1032, 2048, 2055, 16_400];

const ROWS: [usize; 5] = [1, 7, 8, 9, 24];

/// Returns small whole numbers, whose sum is exact in any order.
fn whole<T: Element>(count: usize, offset: usize) -> Vec<T> {
    let number = |at: usize| (at * 7 + offset) % 5;
    (0..count)
        .map(|at| T::from_f64(number(at) as f64 - 2.0))
        .collect()
}

/// Returns a part of a larger matrix, with `rows` rows and `columns` columns. The first element is
/// `shift` elements after a pack boundary. The distance between rows is their length, rounded up to
/// a multiple of 8, plus `gap`. If `turned` is true, the distance applies to columns.
fn part<T: Element>(
    host_and_cuda: &[Array<T>; 2],
    [rows, columns]: [usize; 2],
    (shift, gap, turned): (usize, usize, bool),
) -> Result<[Array<T>; 2]> {
    let (down, along) = if turned {
        (columns, rows)
    } else {
        (rows, columns)
    };
    let step = along.next_multiple_of(8) + gap;
    let part = |array: &Array<T>| {
        let lines = array.slice(s![..down * step])?.reshape([down, step])?;
        let part = lines.slice(s![.., shift..shift + along])?;
        if turned { part.transpose() } else { Ok(part) }
    };
    Ok([part(&host_and_cuda[0])?, part(&host_and_cuda[1])?])
}

fn products<T: Float>() -> Result<()> {
    let longest = LENGTHS[LENGTHS.len() - 1].next_multiple_of(8);
    // If the matrix is transposed, it has many short lines with gaps between them.
    let count = longest * (ROWS[ROWS.len() - 1] + 16);
    let elements = both(&whole::<T>(count, 0), &[count])?;
    let factors = both(&whole::<T>(2 * longest, 3), &[2 * longest])?;
    // Some operands are read in packs. Others are not, because their first element or their rows
    // are not at a pack boundary.
    for (shift, gap, turned) in [
        (0, 0, false),
        (8, 16, false),
        (3, 8, false),
        (0, 12, false),
        (0, 0, true),
        (8, 16, true),
        (3, 8, true),
        (0, 12, true),
    ] {
        for columns in LENGTHS {
            for rows in ROWS {
                let [host, cuda] = part(&elements, [rows, columns], (shift, gap, turned))?;
                for of_vector in [s![..columns;1], s![1..=columns;1], s![..2 * columns;2]] {
                    let [one, other] = [factors[0].slice(of_vector)?, factors[1].slice(of_vector)?];
                    let what = format!("{} {rows} by {columns}, {shift} {gap} {turned}", T::NAME);
                    same(&what, &host.matmul(&one)?, &cuda.matmul(&other)?)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn short_floats_are_multiplied_at_any_alignment() -> Result<()> {
    products::<f16>()?;
    products::<bf16>()
}

#[test]
fn stacks_of_matrices_are_multiplied_each_by_its_vector() -> Result<()> {
    let [host, cuda] = both(&whole::<f16>(6 * 20 * 72, 1), &[6, 20, 72])?;
    let [one, other] = both(&whole::<f16>(6 * 72, 2), &[6, 72, 1])?;
    same("each", &host.matmul(&one)?, &cuda.matmul(&other)?)?;
    let repeated = |x: &Array<f16>| x.slice(s![2..3, .., ..]);
    let (one, other) = (repeated(&one)?, repeated(&other)?);
    same("one for all", &host.matmul(&one)?, &cuda.matmul(&other)?)?;
    let turned = |x: &Array<f16>| x.slice(s![..;-2, ..16, ..])?.swap_axes(1, 2);
    let vectors = |x: &Array<f16>| x.slice(s![.., ..16, ..]);
    same(
        "backwards, in columns",
        &turned(&host)?.matmul(&vectors(&one)?)?,
        &turned(&cuda)?.matmul(&vectors(&other)?)?,
    )
}

/// The elements of each column are summed in one order, with or without packs. Each term occurs
/// with both signs, so only rounding errors remain. These errors depend on the order.
#[test]
fn columns_have_the_same_bits_in_packs() -> Result<()> {
    let (rows, columns) = (37, 2 * 350);
    let twice = |sign: f32, count: usize| -> Vec<f16> {
        let values = floats(count);
        let again = values.iter().map(|value| value * sign);
        let all = values.iter().copied().chain(again);
        all.map(f16::from_f32).collect()
    };
    let [_, dense] = both(&twice(1.0, columns / 2 * rows), &[columns, rows])?;
    let [_, vector] = both(&twice(-1.0, columns / 2), &[columns])?;
    let bits = |step: usize| -> Result<Vec<u16>> {
        let mut apart = Array::<f16>::zeros([columns, step])?;
        apart.slice_mut(s![.., ..rows])?.assign(&dense)?;
        let product = apart.slice(s![.., ..rows])?.transpose()?.matmul(&vector)?;
        Ok(product.to_vec()?.into_iter().map(f16::to_bits).collect())
    };
    let in_packs = bits(40)?;
    assert!(in_packs.iter().any(|&bits| bits != in_packs[0]));
    assert_eq!(in_packs, bits(41)?);
    Ok(())
}

/// Sums of `f16` are accumulated in `f32`. In `f16`, a sum of ones would not exceed 2048.
#[test]
fn packs_are_summed_in_f32() -> Result<()> {
    let [host, cuda] = both(&vec![f16::ONE; 3 * 40_000], &[3, 40_000])?;
    let [one, other] = both(&vec![f16::from_f32(0.25); 40_000], &[40_000])?;
    same("ones", &host.matmul(&one)?, &cuda.matmul(&other)?)?;
    assert_eq!(cuda.matmul(&other)?.to_vec()?, [f16::from_f32(10_000.0); 3]);
    Ok(())
}
