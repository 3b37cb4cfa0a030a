//! The code and the expected results of each rank, for groups of threads and of processes.

use cachescope::collective::{Exchanged, Group, Reduce};
use cachescope::ndarray::s;
use cachescope::{Array, Complex, Device, DeviceConfig, Element, Result};
use half::{bf16, f16};

/// A test case: a reduction, and the function that computes its expected result from all ranks'
/// values.
type Expected = (Reduce, fn(&[usize]) -> f64);

/// Returns the value of rank `rank` at index `place`. Every element type represents the value
/// exactly.
fn given(rank: usize, place: usize) -> usize {
    (3 * rank + 5 * place) % 7
}

fn array<T: Element>(rank: usize, count: usize, of: impl Fn(usize) -> T) -> Result<Array<T>> {
    Array::from_vec(
        (0..count).map(|place| of(given(rank, place))).collect(),
        count,
    )
}

/// Checks `reductions` for one element type, with lengths near the number of elements that a rank
/// reduces.
fn reduces<T: Element + PartialEq + std::fmt::Debug>(
    group: &Group,
    of: fn(usize) -> T,
    reductions: &[Expected],
    value: fn(T) -> f64,
) -> Result<()> {
    for count in [0, 1, 63, 64, 257, 5000] {
        for &(reduce, expected) in reductions {
            let mut x = array(group.rank(), count, of)?;
            let new = group.all_reduce(&x, reduce)?;
            group.all_reduce_in_place(&mut x, reduce)?;
            let own = x.to_vec()?;
            assert_eq!(own, new.to_vec()?);
            for (place, own) in own.into_iter().enumerate() {
                let given: Vec<_> = (0..group.size()).map(|rank| given(rank, place)).collect();
                assert_eq!(value(own), expected(&given), "{reduce} of {given:?}");
            }
        }
    }
    Ok(())
}

fn sum(of: &[usize]) -> f64 {
    of.iter().sum::<usize>() as f64
}

fn largest(of: &[usize]) -> f64 {
    of.iter().copied().max().unwrap() as f64
}

fn smallest(of: &[usize]) -> f64 {
    of.iter().copied().min().unwrap() as f64
}

const ORDERED: [Expected; 3] = [
    (Reduce::Sum, sum),
    (Reduce::Max, largest),
    (Reduce::Min, smallest),
];

pub(crate) fn numbers_are_reduced(group: &Group) -> Result<()> {
    reduces(group, |x| x as f32, &ORDERED, f64::from)?;
    reduces(group, |x| x as f64, &ORDERED, f64::from)?;
    reduces(group, |x| f16::from_f32(x as f32), &ORDERED, f64::from)?;
    reduces(group, |x| bf16::from_f32(x as f32), &ORDERED, f64::from)?;
    reduces(group, |x| x as i8, &ORDERED, f64::from)?;
    reduces(group, |x| x as i16, &ORDERED, f64::from)?;
    reduces(group, |x| x as i32, &ORDERED, f64::from)?;
    reduces(group, |x| x as i64, &ORDERED, |x| x as f64)?;
    reduces(group, |x| x as u8, &ORDERED, f64::from)?;
    reduces(group, |x| x as u16, &ORDERED, f64::from)?;
    reduces(group, |x| x as u32, &ORDERED, f64::from)?;
    reduces(group, |x| x as u64, &ORDERED, |x| x as f64)?;
    let any: fn(&[usize]) -> f64 = |of| f64::from(of.iter().any(|own| own % 2 == 1));
    let all: fn(&[usize]) -> f64 = |of| f64::from(of.iter().all(|own| own % 2 == 1));
    let truths = [(Reduce::Max, any), (Reduce::Min, all)];
    reduces(group, |x| x % 2 == 1, &truths, |x| f64::from(u8::from(x)))
}

pub(crate) fn means_and_complex_numbers(group: &Group) -> Result<()> {
    let rank = group.rank() as f32;
    let middle = (group.size() as f32 - 1.0) / 2.0;
    let mut mean = Array::full(3, rank)?;
    group.all_reduce_in_place(&mut mean, Reduce::Mean)?;
    let mut complex = Array::full(3, 0.0)?.cast::<Complex<f32>>().eval()?;
    complex.fill(Complex::new(rank, -rank))?;
    group.all_reduce_in_place(&mut complex, Reduce::Mean)?;
    assert_eq!(mean.to_vec()?, [middle; 3]);
    assert_eq!(complex.to_vec()?, [Complex::new(middle, -middle); 3]);
    Ok(())
}

/// Returns the values of rank `rank` for sums that round. The values of each rank have a different
/// magnitude.
fn rounded(rank: usize, count: usize) -> Vec<f32> {
    let scale = 1e3_f32.powi(rank as i32);
    let own = |place: usize| (place as f32 * 0.37 + rank as f32).sin() * scale;
    (0..count).map(own).collect()
}

/// Checks that sums add the ranks' values in rank order, whichever rank computes them. Therefore
/// rounded sums are reproducible bit by bit.
pub(crate) fn sums_are_in_the_order_of_the_ranks(group: &Group) -> Result<()> {
    let size = group.size();
    for count in [10_000, 300_000] {
        let rows: Vec<Vec<f32>> = (0..size).map(|rank| rounded(rank, count)).collect();
        let sum = |place: usize| rows.iter().fold(0.0, |sum, row| sum + row[place]);
        let expected: Vec<f32> = (0..count).map(sum).collect();
        for root in 0..3 {
            let mut x = Array::from_slice(&rows[group.rank()], count)?;
            let mut to_one = Array::from_slice(&rows[group.rank()], count)?;
            group.all_reduce_in_place(&mut x, Reduce::Sum)?;
            assert!(x.to_vec()? == expected, "all_reduce of {count}");
            let root = root % size;
            group.reduce_in_place(&mut to_one, Reduce::Sum, root)?;
            let expected = match group.rank() == root {
                true => &expected,
                false => &rows[group.rank()],
            };
            assert!(to_one.to_vec()? == *expected, "reduce of {count}");
        }
        let mut half = Array::from_slice(&rows[group.rank()], count)?
            .cast::<f16>()
            .eval()?;
        group.all_reduce_in_place(&mut half, Reduce::Sum)?;
        let narrow = |row: &Vec<f32>, place: usize| f32::from(f16::from_f32(row[place]));
        let sum = |place| rows.iter().fold(0.0, |sum, row| sum + narrow(row, place));
        for (place, own) in half.to_vec()?.into_iter().enumerate() {
            let expected = f16::from_f32(sum(place));
            assert_eq!(own.to_bits(), expected.to_bits(), "of half precision");
        }
    }
    Ok(())
}

pub(crate) fn one_rank_gives_and_one_gets(group: &Group) -> Result<()> {
    let (own, size) = (group.rank(), group.size());
    for count in [2, 70, 100_000, 700_000] {
        for root in [0, size / 2, size - 1] {
            let mut reduced = Array::full([2, count], own as i32 + 1)?;
            group.reduce_in_place(&mut reduced, Reduce::Sum, root)?;
            let mut given = Array::full([2, count], own as i32)?;
            group.broadcast_in_place(&mut given, root)?;
            let expected = match own == root {
                true => (1..=size).sum::<usize>(),
                false => own + 1,
            };
            assert!(reduced.to_vec()? == vec![expected as i32; 2 * count]);
            assert!(given.to_vec()? == vec![root as i32; 2 * count]);
        }
    }
    Ok(())
}

pub(crate) fn parts_are_sent_to_their_ranks(group: &Group) -> Result<()> {
    let (own, size) = (group.rank(), group.size());
    for width in [0, 1, 2, 1000, 60_000] {
        let part = 2 * width;
        let x = array(own, part * size, |x| x as f64)?.reshape([2 * size, width])?;
        let gathered = group.all_gather(&x)?;
        assert_eq!(gathered.shape(), [2 * size * size, width]);
        let scattered = group.reduce_scatter(&x, Reduce::Sum)?;
        assert_eq!(scattered.shape(), [2, width]);
        let exchanged = group.all_to_all(&x)?;
        assert_eq!(exchanged.shape(), [2 * size, width]);
        let (gathered, scattered) = (gathered.to_vec()?, scattered.to_vec()?);
        let exchanged = exchanged.to_vec()?;
        for place in 0..part * size {
            for rank in 0..size {
                let expected = given(rank, place) as f64;
                assert_eq!(gathered[part * size * rank + place], expected);
            }
            let expected = given(place / part, part * own + place % part) as f64;
            assert_eq!(exchanged[place], expected);
        }
        for (place, own_part) in scattered.into_iter().enumerate() {
            let of = |rank| given(rank, part * own + place);
            let given: Vec<_> = (0..size).map(of).collect();
            assert_eq!(own_part, sum(&given));
        }
    }
    let single = Array::full([], own as u16)?;
    let ranks: Vec<u16> = (0..size as u16).collect();
    assert_eq!(group.all_gather(&single)?.to_vec()?, ranks);
    Ok(())
}

pub(crate) fn arrays_are_sent_and_received_in_order(group: &Group) -> Result<()> {
    let (own, size) = (group.rank(), group.size());
    let (next, before) = ((own + 1) % size, (own + size - 1) % size);
    let lengths = (0..20).map(|turn| if turn % 5 == 4 { 300_000 } else { turn });
    let lengths: Vec<usize> = lengths.collect();
    for (turn, length) in lengths.iter().enumerate() {
        group.send(&Array::full([*length, 2], (10 * own + turn) as i64)?, next)?;
    }
    for (turn, length) in lengths.iter().enumerate() {
        let mut x = Array::<i64>::zeros([*length, 2])?;
        group.recv(&mut x, before)?;
        assert!(x.to_vec()? == vec![(10 * before + turn) as i64; 2 * length]);
    }
    Ok(())
}

/// Checks that groups with common ranks do not receive each other's messages.
pub(crate) fn messages_of_groups_are_separate(group: &Group) -> Result<()> {
    let (own, size) = (group.rank(), group.size());
    let other = group.split(0, 0)?;
    let (next, before) = ((own + 1) % size, (own + size - 1) % size);
    for count in [3, 100_000] {
        group.send(&Array::full(count, own as i32)?, next)?;
        other.send(&Array::full(count, 100 + own as i32)?, next)?;
        let mut x = Array::<i32>::zeros(count)?;
        other.recv(&mut x, before)?;
        assert!(x.to_vec()? == vec![100 + before as i32; count]);
        group.recv(&mut x, before)?;
        assert!(x.to_vec()? == vec![before as i32; count]);
    }
    Ok(())
}

fn exchange<X: Exchanged<Item = f32>>(group: &Group, x: &mut X) -> Result<()> {
    group.all_reduce_in_place(x, Reduce::Sum)
}

pub(crate) fn views_are_read_and_written(group: &Group) -> Result<()> {
    let (rank, size) = (group.rank() as f32, group.size() as f32);
    let ranks = size * (size - 1.0) / 2.0;
    let summed = |own: f32| size * own + ranks;
    let whole = (Array::arange(0.0, 12.0, 1.0)?.reshape([3, 4])? + rank).eval()?;
    let columns = group.all_reduce(&whole.slice(s![.., 1..;2])?.transpose()?, Reduce::Sum)?;
    assert_eq!(columns.shape(), [2, 3]);
    let expected = [1.0, 5.0, 9.0, 3.0, 7.0, 11.0].map(summed);
    assert_eq!(columns.to_vec()?, expected);
    // A write to a view changes neither the other elements nor the array that shares the memory.
    let mut changed = whole.clone();
    exchange(group, &mut changed.slice_mut(s![0, ..])?)?;
    let expected = [0.0, 1.0, 2.0, 3.0].map(summed);
    assert_eq!(changed.to_vec()?[..4], expected);
    assert_eq!(changed.to_vec()?[4..], whole.to_vec()?[4..]);
    assert_eq!(whole.to_vec()?[0], rank);
    // An array that shares its memory is copied before the write.
    let mut shared = whole.clone();
    exchange(group, &mut shared)?;
    assert_eq!(whole.to_vec()?[3], 3.0 + rank);
    assert_eq!(shared.to_vec()?[3], summed(3.0));
    Ok(())
}

pub(crate) fn groups_divide(group: &Group) -> Result<()> {
    let (own, size) = (group.rank(), group.size());
    // The keys reverse the order of the ranks.
    let half = group.split(own % 2, 10 - own)?;
    let mut same: Vec<i32> = (0..size)
        .filter(|rank| rank % 2 == own % 2)
        .map(|rank| rank as i32)
        .collect();
    same.reverse();
    let mut x = Array::full(4, own as i32)?;
    half.all_reduce_in_place(&mut x, Reduce::Sum)?;
    let ranks = half.all_gather(&Array::full([], own as i32)?)?;
    assert_eq!(ranks.to_vec()?, same);
    assert_eq!(same[half.rank()], own as i32);
    assert_eq!(x.to_vec()?, [same.iter().sum::<i32>(); 4]);
    // The whole group remains usable, and a split group can be split again.
    group.all_reduce_in_place(&mut x, Reduce::Max)?;
    let alone = half.split(half.rank(), 0)?;
    assert_eq!((alone.rank(), alone.size()), (0, 1));
    alone.all_reduce_in_place(&mut x, Reduce::Sum)?;
    let halves = [0, 1].map(|half| (half..size).step_by(2).sum::<usize>() as i32);
    assert_eq!(x.to_vec()?, [halves[0].max(halves[1]); 4]);
    Ok(())
}

/// Checks the order of calls on streams that run work as late as possible. Reused memory is
/// overwritten, so that a missing wait changes a result.
pub(crate) fn calls_are_ordered_like_any_operation(group: &Group) -> Result<()> {
    let config = DeviceConfig {
        delay_streams: true,
        fill_recycled: Some(0xAA),
        ..DeviceConfig::default()
    };
    let size = group.size();
    for checks in [true, false] {
        let group = group.clone().checks(checks);
        let device = Device::host_with(config.clone())?;
        let _current = device.enter();
        let stream = device.new_stream()?;
        for turn in 0..20 {
            cachescope::cache_scope!("turn", {
                let x = Array::full(3000, (group.rank() + turn) as f32)?;
                let mut doubled = (&x * 2.0).eval()?;
                group.all_reduce_in_place(&mut doubled, Reduce::Sum)?;
                drop(x);
                let half = {
                    let _other = stream.enter();
                    (&doubled * 0.5).eval()?
                };
                drop(doubled);
                let noise = Array::full(3000, -1.0f32)?;
                let gathered = group.all_gather(&half)?;
                drop((half, noise));
                let expected = (size * turn + size * (size - 1) / 2) as f32;
                assert!(gathered.to_vec()? == vec![expected; 3000 * size]);
            });
        }
    }
    Ok(())
}

pub(crate) fn a_world_of_one(group: &Group) -> Result<()> {
    let mut x = Array::arange(0, 6, 1)?;
    group.all_reduce_in_place(&mut x, Reduce::Sum)?;
    group.broadcast_in_place(&mut x, 0)?;
    group.barrier()?;
    let x = group.all_gather(&group.all_to_all(&group.reduce_scatter(&x, Reduce::Min)?)?)?;
    group.send(&x, 0)?;
    let mut back = Array::<i32>::zeros(6)?;
    group.recv(&mut back, 0)?;
    assert_eq!(back.to_vec()?, [0, 1, 2, 3, 4, 5]);
    Ok(())
}
