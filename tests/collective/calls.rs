//! What the calls compute, beside the same computed by one rank alone.

use cachescope::collective::{Exchanged, Group, Reduce};
use cachescope::ndarray::s;
use cachescope::{Array, Complex, Device, DeviceConfig, Element, Result};
use half::{bf16, f16};

/// A reduction, and what it makes of what the ranks give.
type Expected = (Reduce, fn(&[usize]) -> f64);

/// What rank `rank` gives at place `place`: small whole numbers, which every type holds.
fn given(rank: usize, place: usize) -> usize {
    (3 * rank + 5 * place) % 7
}

fn array<T: Element>(rank: usize, count: usize, of: impl Fn(usize) -> T) -> Result<Array<T>> {
    Array::from_vec(
        (0..count).map(|place| of(given(rank, place))).collect(),
        count,
    )
}

/// Every reduction of a type, for sizes around the units in which ranks divide the work.
fn reduces<T: Element + PartialEq + std::fmt::Debug>(
    of: fn(usize) -> T,
    reductions: &[Expected],
    value: fn(T) -> f64,
) -> Result<()> {
    for size in [1, 2, 3, 4] {
        for count in [0, 1, 63, 64, 257, 5000] {
            for &(reduce, expected) in reductions {
                let all = Group::threads(size, |group| {
                    let mut x = array(group.rank(), count, of)?;
                    let new = group.all_reduced(&x, reduce)?;
                    group.all_reduce(&mut x, reduce)?;
                    assert_eq!(x.to_vec()?, new.to_vec()?);
                    x.to_vec()
                })?;
                for own in all {
                    for (place, own) in own.into_iter().enumerate() {
                        let given: Vec<_> = (0..size).map(|rank| given(rank, place)).collect();
                        assert_eq!(value(own), expected(&given), "{reduce} of {given:?}");
                    }
                }
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

#[test]
fn numbers_are_reduced() -> Result<()> {
    reduces(|x| x as f32, &ORDERED, f64::from)?;
    reduces(|x| x as f64, &ORDERED, f64::from)?;
    reduces(|x| f16::from_f32(x as f32), &ORDERED, f64::from)?;
    reduces(|x| bf16::from_f32(x as f32), &ORDERED, f64::from)?;
    reduces(|x| x as i8, &ORDERED, f64::from)?;
    reduces(|x| x as i16, &ORDERED, f64::from)?;
    reduces(|x| x as i32, &ORDERED, f64::from)?;
    reduces(|x| x as i64, &ORDERED, |x| x as f64)?;
    reduces(|x| x as u8, &ORDERED, f64::from)?;
    reduces(|x| x as u16, &ORDERED, f64::from)?;
    reduces(|x| x as u32, &ORDERED, f64::from)?;
    reduces(|x| x as u64, &ORDERED, |x| x as f64)?;
    let any: fn(&[usize]) -> f64 = |of| f64::from(of.iter().any(|own| own % 2 == 1));
    let all: fn(&[usize]) -> f64 = |of| f64::from(of.iter().all(|own| own % 2 == 1));
    let truths = [(Reduce::Max, any), (Reduce::Min, all)];
    reduces(|x| x % 2 == 1, &truths, |x| f64::from(u8::from(x)))
}

#[test]
fn means_and_complex_numbers() -> Result<()> {
    let all = Group::threads(4, |group| {
        let rank = group.rank() as f32;
        let mut mean = Array::full(3, rank)?;
        group.all_reduce(&mut mean, Reduce::Mean)?;
        let mut complex = Array::full(3, 0.0)?.cast::<Complex<f32>>().eval()?;
        complex.fill(Complex::new(rank, -rank))?;
        group.all_reduce(&mut complex, Reduce::Mean)?;
        Ok((mean.to_vec()?, complex.to_vec()?))
    })?;
    for (mean, complex) in all {
        assert_eq!(mean, [1.5; 3]);
        assert_eq!(complex, [Complex::new(1.5, -1.5); 3]);
    }
    Ok(())
}

/// Rounded sums are those from rank 0 on, whatever rank computes them: they repeat bit by bit.
#[test]
fn sums_are_in_the_order_of_the_ranks() -> Result<()> {
    let count = 10_000;
    let rows: Vec<Vec<f32>> = (0..4)
        .map(|rank| {
            let own = |place: usize| (place as f32 * 0.37 + rank as f32).sin() * 1e3_f32.powi(rank);
            (0..count).map(own).collect()
        })
        .collect();
    let expected: Vec<f32> = (0..count)
        .map(|place| rows.iter().fold(0.0, |sum, row| sum + row[place]))
        .collect();
    for _ in 0..3 {
        let all = Group::threads(4, |group| {
            let mut x = Array::from_slice(&rows[group.rank()], count)?;
            group.all_reduce(&mut x, Reduce::Sum)?;
            x.to_vec()
        })?;
        assert!(all.iter().all(|own| *own == expected));
    }
    Ok(())
}

#[test]
fn one_rank_gives_and_one_gets() -> Result<()> {
    let all = Group::threads(3, |group| {
        let mut reduced = Array::full([2, 70], group.rank() as i32 + 1)?;
        group.reduce(&mut reduced, Reduce::Sum, 1)?;
        let mut given = Array::full([2, 70], group.rank() as i32)?;
        group.broadcast(&mut given, 2)?;
        Ok((reduced.to_vec()?, given.to_vec()?))
    })?;
    for (rank, (reduced, given)) in all.into_iter().enumerate() {
        let expected = if rank == 1 { 6 } else { rank as i32 + 1 };
        assert_eq!(reduced, [expected; 140]);
        assert_eq!(given, [2; 140]);
    }
    Ok(())
}

#[test]
fn parts_go_where_they_belong() -> Result<()> {
    let size = 3;
    Group::threads(size, |group| {
        let own = group.rank();
        let x = array(own, 4 * size, |x| x as f64)?.reshape([2 * size, 2])?;
        let gathered = group.all_gather(&x)?;
        assert_eq!(gathered.shape(), [2 * size * size, 2]);
        let scattered = group.reduce_scatter(&x, Reduce::Sum)?;
        assert_eq!(scattered.shape(), [2, 2]);
        let exchanged = group.all_to_all(&x)?;
        assert_eq!(exchanged.shape(), [2 * size, 2]);
        let (gathered, scattered) = (gathered.to_vec()?, scattered.to_vec()?);
        let exchanged = exchanged.to_vec()?;
        for place in 0..4 * size {
            for rank in 0..size {
                let expected = given(rank, place) as f64;
                assert_eq!(gathered[4 * size * rank + place], expected);
            }
            let expected = given(place / 4, 4 * own + place % 4) as f64;
            assert_eq!(exchanged[place], expected);
        }
        for (place, own_part) in scattered.into_iter().enumerate() {
            let given: Vec<_> = (0..size).map(|rank| given(rank, 4 * own + place)).collect();
            assert_eq!(own_part, sum(&given));
        }
        let single = Array::full([], own as u16)?;
        assert_eq!(group.all_gather(&single)?.to_vec()?, [0, 1, 2]);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn arrays_are_sent_and_received_in_order() -> Result<()> {
    Group::threads(3, |group| {
        let (own, size) = (group.rank(), group.size());
        let (next, before) = ((own + 1) % size, (own + size - 1) % size);
        for turn in 0..20 {
            group.send(&Array::full([turn, 2], (10 * own + turn) as i64)?, next)?;
        }
        for turn in 0..20 {
            let mut x = Array::<i64>::zeros([turn, 2])?;
            group.recv(&mut x, before)?;
            assert_eq!(x.to_vec()?, vec![(10 * before + turn) as i64; 2 * turn]);
        }
        Ok(())
    })?;
    Ok(())
}

fn exchange<X: Exchanged<Item = f32>>(group: &Group, x: &mut X) -> Result<()> {
    group.all_reduce(x, Reduce::Sum)
}

#[test]
fn views_are_read_and_written() -> Result<()> {
    Group::threads(2, |group| {
        let rank = group.rank() as f32;
        let whole = (Array::arange(0.0, 12.0, 1.0)?.reshape([3, 4])? + rank).eval()?;
        let columns = group.all_reduced(&whole.slice(s![.., 1..;2])?.transpose()?, Reduce::Sum)?;
        assert_eq!(columns.shape(), [2, 3]);
        assert_eq!(columns.to_vec()?, [3.0, 11.0, 19.0, 7.0, 15.0, 23.0]);
        // A part that can be written to: the rest stays, and so does what shares the memory.
        let mut changed = whole.clone();
        exchange(&group, &mut changed.slice_mut(s![0, ..])?)?;
        assert_eq!(changed.to_vec()?[..4], [1.0, 3.0, 5.0, 7.0]);
        assert_eq!(changed.to_vec()?[4..], whole.to_vec()?[4..]);
        assert_eq!(whole.to_vec()?[0], rank);
        // An array that shares its memory gets its own.
        let mut shared = whole.clone();
        exchange(&group, &mut shared)?;
        assert_eq!(whole.to_vec()?[3], 3.0 + rank);
        assert_eq!(shared.to_vec()?[3], 7.0);
        Ok(())
    })?;
    Ok(())
}

#[test]
fn groups_divide() -> Result<()> {
    let all = Group::threads(5, |group| {
        // Backwards, by their keys.
        let half = group.split(group.rank() % 2, 10 - group.rank())?;
        let mut x = Array::full(4, group.rank() as i32)?;
        half.all_reduce(&mut x, Reduce::Sum)?;
        let ranks = half.all_gather(&Array::full([], group.rank() as i32)?)?;
        // The whole group goes on, and a part of the part.
        group.all_reduce(&mut x, Reduce::Max)?;
        let alone = half.split(half.rank(), 0)?;
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        alone.all_reduce(&mut x, Reduce::Sum)?;
        Ok((half.rank(), ranks.to_vec()?, x.to_vec()?[0]))
    })?;
    assert_eq!(all[0], (2, vec![4, 2, 0], 6));
    assert_eq!(all[1], (1, vec![3, 1], 6));
    assert_eq!(all[4], (0, vec![4, 2, 0], 6));
    Ok(())
}

#[test]
fn a_world_of_one() -> Result<()> {
    let all = Group::threads(1, |group| {
        let mut x = Array::arange(0, 6, 1)?;
        group.all_reduce(&mut x, Reduce::Sum)?;
        group.broadcast(&mut x, 0)?;
        group.barrier()?;
        let x = group.all_gather(&group.all_to_all(&group.reduce_scatter(&x, Reduce::Min)?)?)?;
        group.send(&x, 0)?;
        let mut back = Array::<i32>::zeros(6)?;
        group.recv(&mut back, 0)?;
        back.to_vec()
    })?;
    assert_eq!(all, [vec![0, 1, 2, 3, 4, 5]]);
    Ok(())
}

/// With streams that run as late as they may, and memory that is overwritten as it is reused: what was not waited for shows.
#[test]
fn calls_are_ordered_like_any_operation() -> Result<()> {
    let config = DeviceConfig {
        delay_streams: true,
        fill_recycled: Some(0xAA),
        ..DeviceConfig::default()
    };
    for checks in [true, false] {
        Group::threads(3, |group| {
            let group = group.with_checks(checks);
            let device = Device::host_with(config.clone())?;
            let _current = device.enter();
            let stream = device.new_stream()?;
            for turn in 0..20 {
                cachescope::cache_scope!("turn", {
                    let x = Array::full(3000, (group.rank() + turn) as f32)?;
                    let mut doubled = (&x * 2.0).eval()?;
                    group.all_reduce(&mut doubled, Reduce::Sum)?;
                    drop(x);
                    let half = {
                        let _other = stream.enter();
                        (&doubled * 0.5).eval()?
                    };
                    drop(doubled);
                    let noise = Array::full(3000, -1.0f32)?;
                    let gathered = group.all_gather(&half)?;
                    drop((half, noise));
                    let expected = (3 * turn + 3) as f32;
                    assert_eq!(gathered.to_vec()?, vec![expected; 9000]);
                });
            }
            Ok(())
        })?;
    }
    Ok(())
}
