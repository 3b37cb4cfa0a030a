//! Tests of the results of collective calls.

use cachescope::collective::{DataParallel, Group, Reduce, Sampler, Sharded};
use cachescope::grad::optim::{Adam, Sgd};
use cachescope::grad::value_and_grad;
use cachescope::ndarray::s;
use cachescope::{Array, Complex, Device, Element, ErrorKind, Generator, Result, cache_scope};
use half::f16;

use crate::collectives::{all_of, alone, on_ranks};

fn filled<T: Element>(value: T) -> Result<Array<T>> {
    Array::full([6, 50], value)
}

#[test]
fn elements_become_one() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(4, Default::default(), |group, _| {
        let rank = group.rank();
        let mut sum = filled(rank as f32 + 0.5)?;
        group.all_reduce_in_place(&mut sum, Reduce::Sum)?;
        let mean = group.all_reduce(&filled(f16::from_f32(rank as f32))?, Reduce::Mean)?;
        let mut largest = filled(rank as i64 - 2)?;
        group.reduce_in_place(&mut largest, Reduce::Max, 2)?;
        let mut every = filled(rank > 0)?;
        group.all_reduce_in_place(&mut every, Reduce::Min)?;
        let mut complex = Array::full(3, 0.0)?.cast::<Complex<f64>>().eval()?;
        complex.fill(Complex::new(rank as f64, 1.0))?;
        group.all_reduce_in_place(&mut complex, Reduce::Sum)?;
        assert_eq!(sum.to_vec()?, vec![8.0; 300]);
        assert_eq!(mean.to_vec()?, vec![f16::from_f32(1.5); 300]);
        let expected = if rank == 2 { 1 } else { rank as i64 - 2 };
        assert_eq!(largest.to_vec()?, vec![expected; 300]);
        assert_eq!(every.to_vec()?, vec![false; 300]);
        assert_eq!(complex.to_vec()?, vec![Complex::new(6.0, 4.0); 3]);
        Ok(())
    });
    all_of(all).map(drop)
}

#[test]
fn parts_are_sent_to_their_ranks() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(3, Default::default(), |group, _| {
        let (own, size) = (group.rank(), group.size());
        let x = (Array::arange(0, 12, 1)?.reshape([6, 2])? + 100 * own as i32).eval()?;
        let gathered = group.all_gather(&x)?;
        let scattered = group.reduce_scatter(&x, Reduce::Sum)?;
        let exchanged = group.all_to_all(&x)?;
        let narrow = group.all_gather(&Array::full([], own as u16)?)?;
        let mut given = Array::full(5, own as i16)?;
        group.broadcast_in_place(&mut given, 1)?;
        assert_eq!(gathered.shape(), [18, 2]);
        assert_eq!(gathered.to_vec()?[13], 101);
        let first = 4 * own as i32;
        let sums: Vec<i32> = (first..first + 4).map(|own| 3 * own + 300).collect();
        assert_eq!(scattered.to_vec()?, sums);
        let parts: Vec<i32> = (0..3)
            .flat_map(|rank| (first..first + 4).map(move |own| own + 100 * rank))
            .collect();
        assert_eq!(exchanged.to_vec()?, parts);
        assert_eq!(narrow.to_vec()?, [0, 1, 2]);
        assert_eq!(given.to_vec()?, [1; 5]);
        // The ranks form a ring. Rank 0 sends first.
        let (next, before) = ((own + 1) % size, (own + size - 1) % size);
        let mut came = Array::<i32>::zeros([6, 2])?;
        if own == 0 {
            group.send(&x, next)?;
            group.recv(&mut came, before)?;
        } else {
            group.recv(&mut came, before)?;
            group.send(&x, next)?;
        }
        assert_eq!(came.to_vec()?[0], 100 * before as i32);
        group.barrier()
    });
    all_of(all).map(drop)
}

#[test]
fn groups_divide_and_views_are_read() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(4, Default::default(), |group, _| {
        let half = group.split(group.rank() % 2, 10 - group.rank())?;
        assert_eq!((half.rank(), half.size()), (1 - group.rank() / 2, 2));
        let whole = filled(group.rank() as f32)?;
        let sum = half.all_reduce(&whole.slice(s![.., ..;2])?.transpose()?, Reduce::Sum)?;
        assert_eq!(sum.shape(), [25, 6]);
        let expected = if group.rank() % 2 == 0 { 2.0 } else { 4.0 };
        assert_eq!(sum.to_vec()?, vec![expected; 150]);
        let mut changed = whole.clone();
        half.all_reduce_in_place(&mut changed.slice_mut(s![1, ..])?, Reduce::Max)?;
        assert_eq!(
            changed.slice(s![0, ..])?.to_vec()?,
            vec![group.rank() as f32; 50]
        );
        assert_eq!(whole.to_vec()?, vec![group.rank() as f32; 300]);
        group.all_reduce_in_place(&mut changed, Reduce::Sum)
    });
    all_of(all).map(drop)
}

#[test]
fn calls_are_ordered_like_any_operation() -> Result<()> {
    let _alone = alone();
    for checks in [false, true] {
        let all = on_ranks(2, Default::default(), |group, device| {
            let group = group.clone().checks(checks);
            let other = device.new_stream()?;
            for iteration in 0..6 {
                cache_scope!("turn", {
                    let x = Array::full(3000, (group.rank() + iteration) as f32)?;
                    let mut doubled = (&x * 2.0).eval()?;
                    group.all_reduce_in_place(&mut doubled, Reduce::Sum)?;
                    drop(x);
                    let half = {
                        let _other = other.enter();
                        (&doubled * 0.5).eval()?
                    };
                    drop(doubled);
                    let noise = Array::full(3000, -1.0f32)?;
                    let gathered = group.all_gather(&half)?;
                    drop((half, noise));
                    assert_eq!(gathered.to_vec()?, vec![(2 * iteration + 1) as f32; 6000]);
                });
            }
            Ok(())
        });
        all_of(all)?;
    }
    Ok(())
}

/// Returns inputs and weights that are whole numbers, so that sums are exact.
fn data() -> Result<(Array<f32>, Array<f32>)> {
    let generator = &mut Generator::new(3);
    let whole = |generator: &mut Generator, shape: [usize; 2]| {
        let drawn = Array::<i64>::randint_with(generator, -3, 4, shape)?;
        drawn.cast::<f32>().eval()
    };
    Ok((whole(generator, [16, 6])?, whole(generator, [6, 4])?))
}

fn loss(weights: &Array<f32>, x: &Array<f32>) -> Result<Array<f32>> {
    x.matmul(weights)?.square().mean()
}

/// Trains two steps with rates and batch sizes that are powers of two, so that all numbers are
/// exact.
fn learn(
    group: Option<&Group>,
    mut step: impl FnMut(&mut Array<f32>, &Array<f32>) -> Result<()>,
) -> Result<Vec<f32>> {
    let (x, mut weights) = data()?;
    let sampler = Sampler::new(16, 8);
    let sampler = match group {
        Some(group) => sampler.group(group),
        None => sampler,
    };
    for batch in sampler.epoch(0)? {
        cache_scope!("step", {
            step(&mut weights, &x.take(&batch, 0)?)?;
        });
    }
    weights.to_vec()
}

#[test]
fn devices_learn_what_one_does() -> Result<()> {
    let _alone = alone();
    let expected = {
        let _host = Device::host().enter();
        let mut optimizer = Sgd::new(0.25);
        learn(None, |weights, x| {
            let (_, gradient) = value_and_grad(weights, |weights| loss(weights, x))?;
            optimizer.step(weights, &gradient)
        })?
    };
    for size in [1, 2, 4] {
        let all = on_ranks(size, Default::default(), |group, _| {
            let group = group.clone().checks(false);
            let mut parallel = DataParallel::new(&group);
            let mut optimizer = Sgd::new(0.25);
            let whole = learn(Some(&group), |weights, x| {
                let (_, gradient) = parallel.value_and_grad(weights, |weights| loss(weights, x))?;
                optimizer.step(weights, &gradient)
            })?;
            let mut parallel = DataParallel::new(&group);
            let mut divided = Sharded::new(&group, Sgd::new(0.25))?;
            let divided = learn(Some(&group), |weights, x| {
                let loss = |weights: &Array<f32>| loss(weights, x);
                parallel
                    .value_and_step(weights, &mut divided, loss)
                    .map(drop)
            })?;
            let mut adam = Sharded::new(&group, Adam::new(0.1))?;
            let (x, mut weights) = data()?;
            parallel.value_and_step(&mut weights, &mut adam, |weights| loss(weights, &x))?;
            assert_eq!(adam.state(&weights)?.arrays[0].shape(), weights.shape());
            Ok((whole, divided))
        });
        for (whole, divided) in all_of(all)? {
            assert_eq!(whole, expected, "{size} devices");
            assert_eq!(divided, expected, "{size} devices, states divided");
        }
    }
    Ok(())
}

/// A group of threads transfers arrays of a device through the host.
#[test]
fn threads_carry_arrays_of_a_device() -> Result<()> {
    let _alone = alone();
    let device = Device::cuda_with(0, Default::default())?;
    let _current = device.enter();
    for checks in [false, true] {
        Group::threads(3, |group| {
            let group = group.checks(checks);
            for iteration in 0..4 {
                cache_scope!("turn", {
                    let x = Array::full(700, (group.rank() + iteration) as f32)?;
                    let mut doubled = (&x * 2.0).eval()?;
                    drop(x);
                    group.all_reduce_in_place(&mut doubled, Reduce::Mean)?;
                    let half = (&doubled * 0.5).eval()?;
                    drop(doubled);
                    let gathered = group.all_gather(&half)?;
                    drop(half);
                    let mut part = group.reduce_scatter(&gathered, Reduce::Sum)?;
                    group.broadcast_in_place(&mut part, 1)?;
                    group.send(&part, (group.rank() + 1) % 3)?;
                    group.recv(&mut part, (group.rank() + 2) % 3)?;
                    assert_eq!(part.to_vec()?, vec![3.0 * (iteration + 1) as f32; 700]);
                });
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn sixteen_bits_are_moved_and_not_reduced() -> Result<()> {
    let _alone = alone();
    let all = on_ranks(2, Default::default(), |group, _| {
        let mut x = Array::full(3, group.rank() as u16)?;
        let error = group.all_reduce_in_place(&mut x, Reduce::Sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error
                .location()
                .is_some_and(|place| place.file() == file!())
        );
        group.broadcast_in_place(&mut x, 1)?;
        assert_eq!(x.to_vec()?, [1; 3]);
        Ok(())
    });
    all_of(all).map(drop)
}
