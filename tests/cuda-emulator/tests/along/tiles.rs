//! Tests of cumulative sums and products of lanes that are divided into tiles, near tile
//! boundaries.

use cachescope::{Array, Complex, Device, DeviceConfig, Element, Number, Result, graph};
use half::{bf16, f16};

use crate::along::{both, floats, numbers, same};

/// The number of elements of a tile of a single lane. Only lanes of at least four times this length
/// are divided into tiles.
const TILE: usize = 2048;

/// Returns lengths near one tile, and near the number of tiles that a warp examines at once.
fn lengths() -> impl Iterator<Item = usize> {
    let tiles = [4, 5, 32, 33, 34, 65].into_iter();
    tiles.flat_map(|tiles| [tiles * TILE - 1, tiles * TILE, tiles * TILE + 1])
}

#[test]
fn sums_continue_from_tile_to_tile() -> Result<()> {
    for length in lengths() {
        let values: Vec<i32> = numbers(length).map(|n| n as i32).collect();
        let [host, cuda] = both(&values, &[length])?;
        same(&format!("{length}"), &host.cumsum(0)?, &cuda.cumsum(0)?)?;
    }
    Ok(())
}

#[test]
fn each_lane_has_tiles_of_its_own() -> Result<()> {
    for (lanes, length) in [(2, 8193), (3, 8192), (7, 10_239), (33, 9000)] {
        let values: Vec<i64> = numbers(lanes * length).map(|n| n as i64).collect();
        let [host, cuda] = both(&values, &[lanes, length])?;
        let what = format!("{lanes} of {length}");
        same(&what, &host.cumsum(1)?, &cuda.cumsum(1)?)?;
        same(&what, &host.cumprod(1)?, &cuda.cumprod(1)?)?;
    }
    Ok(())
}

/// A tile of 32-bit elements has 32 elements per thread. A lane is processed by 1 to 128 threads.
#[test]
fn sums_of_strided_tiles_continue_too() -> Result<()> {
    let shapes: [&[usize]; 17] = [
        &[64, 2],
        &[65, 2],
        &[4095, 2],
        &[4096, 2],
        &[4097, 2],
        &[12_289, 2],
        &[8193, 3],
        &[1025, 9],
        &[2049, 31],
        &[2048, 33],
        &[127, 255],
        &[128, 256],
        &[129, 257],
        &[1500, 260],
        &[3, 200, 5],
        &[150, 65, 2],
        &[2, 3300, 40],
    ];
    for shape in shapes {
        let values: Vec<u32> = numbers(shape.iter().product()).map(|n| n as u32).collect();
        let [host, cuda] = both(&values, shape)?;
        let axis = shape.len() as isize - 2;
        let what = format!("{shape:?}");
        same(&what, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
        same(&what, &host.cumprod(axis)?, &cuda.cumprod(axis)?)?;
    }
    Ok(())
}

/// Checks sums and products that are exact in the type, so any order has identical bits.
fn exact<T: Element + Number>(of: fn(u64) -> T) -> Result<()>
where
    T::Total: Element,
{
    for shape in [&[3 * 8193][..], &[2, 8193], &[1000, 5], &[70, 300]] {
        let count = shape.iter().product();
        let values: Vec<T> = numbers(count).map(|n| of(n % 3)).collect();
        let [host, cuda] = both(&values, shape)?;
        let what = format!("{} of {shape:?}", T::NAME);
        for axis in 0..shape.len() as isize {
            same(&what, &host.cumsum(axis)?, &cuda.cumsum(axis)?)?;
        }
        // The factors are ones, with so few twos that the product does not overflow.
        let factors: Vec<T> = (0..count as u64)
            .map(|n| of(1 + u64::from(n % 4000 == 77)))
            .collect();
        let [host, cuda] = both(&factors, shape)?;
        for axis in 0..shape.len() as isize {
            same(&what, &host.cumprod(axis)?, &cuda.cumprod(axis)?)?;
        }
    }
    Ok(())
}

#[test]
fn tiles_of_every_element() -> Result<()> {
    exact(|n| n as i8)?;
    exact(|n| n as i16)?;
    exact(|n| n as i32)?;
    exact(|n| n as i64)?;
    exact(|n| n as u8)?;
    exact(|n| n as u16)?;
    exact(|n| n as u32)?;
    exact(|n| n)?;
    exact(|n| f16::from_f32(n as f32))?;
    exact(|n| bf16::from_f32(n as f32))?;
    exact(|n| n as f32)?;
    exact(|n| n as f64)?;
    let truths: Vec<bool> = numbers(8193).map(|n| n % 3 == 0).collect();
    let [host, cuda] = both(&truths, &[8193])?;
    same("bool", &host.cumsum(0)?, &cuda.cumsum(0)?)
}

#[test]
fn tiles_of_complex_numbers() -> Result<()> {
    let gpu = Device::cuda(0)?;
    for shape in [&[8193][..], &[2, 8200], &[1000, 5]] {
        let count: usize = shape.iter().product();
        let values = || {
            numbers(count)
                .map(|n| (n % 5) as f64 - 2.0)
                .zip(numbers(count))
        };
        let values = values().map(|(re, n)| Complex::new(re, (n % 7) as f64 - 3.0));
        let values: Vec<Complex<f64>> = values.collect();
        let narrow: Vec<Complex<f32>> = (values.iter())
            .map(|z| Complex::new(z.re as f32, z.im as f32))
            .collect();
        // The factors are powers of the imaginary unit.
        let turns = |n: u64| [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][n as usize % 4];
        let turns: Vec<Complex<f64>> = (numbers(count).map(turns))
            .map(|(re, im)| Complex::new(re, im))
            .collect();
        let (values, narrow, turns) = {
            let _guard = Device::host().enter();
            (
                Array::from_slice(&values, shape)?,
                Array::from_slice(&narrow, shape)?,
                Array::from_slice(&turns, shape)?,
            )
        };
        for axis in 0..shape.len() as isize {
            let sums = values.to_device(&gpu)?.cumsum(axis)?;
            assert_eq!(sums.to_vec()?, values.cumsum(axis)?.to_vec()?);
            let sums = narrow.to_device(&gpu)?.cumsum(axis)?;
            assert_eq!(sums.to_vec()?, narrow.cumsum(axis)?.to_vec()?);
            let products = turns.to_device(&gpu)?.cumprod(axis)?;
            assert_eq!(products.to_vec()?, turns.cumprod(axis)?.to_vec()?);
        }
    }
    Ok(())
}

/// The sums of a tile are merged with the sum of all earlier tiles, in order. So the bits of a sum
/// are independent of the lane's length.
#[test]
fn the_grouping_is_that_of_the_shape() -> Result<()> {
    let length = 40 * TILE + 3;
    let values: Vec<f64> = floats(length).iter().map(|&x| f64::from(x) / 3.0).collect();
    let [_, cuda] = both(&values, &[length])?;
    let whole = cuda.cumsum(0)?.to_vec()?;
    for tiles in [4, 5, 33, 39] {
        let part = cuda.slice(cachescope::ndarray::s![..tiles * TILE + 1])?;
        let sums = part.cumsum(0)?.to_vec()?;
        assert!(
            sums.iter()
                .zip(&whole)
                .all(|(a, b)| a.to_bits() == b.to_bits())
        );
    }
    let again = cuda.cumsum(0)?.to_vec()?;
    assert!(
        again
            .iter()
            .zip(&whole)
            .all(|(a, b)| a.to_bits() == b.to_bits())
    );
    Ok(())
}

/// The sums that tiles publish are separate for each launch, on any stream, and for each launch of
/// a graph.
#[test]
fn launches_share_nothing() -> Result<()> {
    // The device is new, because a capture on a shared device would make calls of other tests fail.
    let device = Device::cuda_with(0, DeviceConfig::default())?;
    let _guard = device.enter();
    let streams = [device.new_stream()?, device.new_stream()?];
    let lengths = [9000, 30_000];
    let mut sums = Vec::new();
    for turn in 0..6 {
        let _inside = streams[turn % 2].enter();
        for length in lengths {
            let x = Array::full(length, turn as i64)?;
            sums.push((turn, length, x.cumsum(0)?));
        }
    }
    for (turn, length, sums) in &sums {
        let expected: Vec<i64> = (1..=*length as i64).map(|n| n * *turn as i64).collect();
        assert_eq!(sums.to_vec()?, expected);
    }
    let mut x = Array::<i64>::ones(lengths[1])?;
    let mut y = x.cumsum(0)?;
    let graph = graph::capture(&device, || y.assign(x.cumsum(0)?))?;
    for turn in 1..4 {
        x.assign(turn)?;
        graph.launch()?;
        let expected: Vec<i64> = (1..=lengths[1] as i64).map(|n| n * turn).collect();
        assert_eq!(y.to_vec()?, expected);
    }
    Ok(())
}
