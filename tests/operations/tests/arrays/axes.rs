//! Reductions over several axes, with and without keeping the axes, compared with ndarray's
//! reductions over one axis after another.

use cachescope::ndarray::{ArrayD, Axis, IxDyn};
use cachescope::{Array, ErrorKind, Result};
use proptest::prelude::*;

/// Returns the elements of `x` in groups. The groups are in row-major order of the other axes. The
/// elements of each group are in row-major order of `axes`.
fn groups(x: &ArrayD<i32>, axes: &[usize]) -> Vec<Vec<i32>> {
    let kept = (0..x.ndim()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let moved = x.view().permuted_axes(IxDyn(&order));
    let length: usize = axes.iter().map(|&axis| x.len_of(Axis(axis))).product();
    let elements: Vec<i32> = moved.iter().copied().collect();
    elements.chunks(length).map(<[i32]>::to_vec).collect()
}

proptest! {
    #[test]
    fn any_set_of_axes_is_reduced_at_once(
        dims in prop::collection::vec(1usize..5, 1..5),
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        chosen in prop::collection::vec(any::<bool>(), 4),
        is_negative in any::<bool>(),
        is_lazy in any::<bool>(),
    ) {
        let rank = dims.len();
        let order: Vec<usize> = order.into_iter().filter(|&axis| axis < rank).collect();
        let count: usize = dims.iter().product();
        let values: Vec<i32> = (0..count as i32).map(|value| value * 7919 % 101 - 50).collect();
        let x = ArrayD::from_shape_vec(IxDyn(&dims), values.clone()).unwrap();
        let x = x.permuted_axes(IxDyn(&order));
        let ours = Array::from_vec(values, dims.as_slice())?.permute(&order)?;
        let axes: Vec<usize> = (0..rank).filter(|&axis| chosen[axis]).collect();
        let back = if is_negative { rank as isize } else { 0 };
        let named: Vec<isize> = axes.iter().rev().map(|&axis| axis as isize - back).collect();
        let groups = groups(&x, &axes);
        let sums: Vec<i64> = groups.iter().map(|group| group.iter().map(|&x| i64::from(x)).sum()).collect();
        let most: Vec<i32> = groups.iter().map(|group| *group.iter().max().unwrap()).collect();
        let first = |group: &Vec<i32>| {
            let most = group.iter().max().unwrap();
            group.iter().position(|value| value == most).unwrap() as i64
        };
        let places: Vec<i64> = groups.iter().map(first).collect();
        let shape: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).map(|axis| x.len_of(Axis(axis))).collect();
        let kept: Vec<usize> = (0..rank).map(|axis| if axes.contains(&axis) { 1 } else { x.len_of(Axis(axis)) }).collect();
        let (sum, max, place, wide) = if is_lazy {
            let lazy = &ours + 0;
            (lazy.sum_axis(named.as_slice())?, lazy.max_axis(named.as_slice())?, lazy.argmax_axis(named.as_slice())?, lazy.sum_keepdims(named.clone())?)
        } else {
            (ours.sum_axis(named.as_slice())?, ours.max_axis(named.as_slice())?, ours.argmax_axis(named.as_slice())?, ours.sum_keepdims(named.clone())?)
        };
        prop_assert_eq!(sum.shape(), shape.as_slice());
        prop_assert_eq!(sum.to_vec()?, sums.clone());
        prop_assert_eq!(max.to_vec()?, most);
        prop_assert_eq!(place.to_vec()?, places);
        prop_assert_eq!(wide.shape(), kept.as_slice());
        prop_assert_eq!(wide.to_vec()?, sums);
    }
}

#[test]
fn what_keeps_its_axes_broadcasts_against_the_operand() -> Result<()> {
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 5.0, 7.0, 12.0], [1, 2, 3])?;
    let centred = (&x - x.mean_keepdims([-1])?).eval()?;
    assert_eq!(centred.to_vec()?, [-1.0, 0.0, 1.0, -3.0, -1.0, 4.0]);
    assert_eq!(x.max_keepdims([0, 2])?.shape(), [1, 2, 1]);
    assert_eq!(x.sum_axis([0, 1, 2])?.item()?, 30.0);
    assert_eq!(x.sum_axis([] as [isize; 0])?.to_vec()?, x.to_vec()?);
    assert_eq!(x.norm_axis([1, 2])?.shape(), [1]);
    Ok(())
}

#[test]
fn axes_out_of_range_or_named_twice_are_refused() -> Result<()> {
    let x = Array::<f32>::ones([2, 3])?;
    for axes in [
        &[2][..],
        &[-3],
        &[0, 0],
        &[1, -1],
        &[0, 1, 0, 1, 0, 1, 0, 1, 0],
    ] {
        for refused in [
            x.sum_axis(axes),
            x.sum_keepdims(axes),
            (&x + 1.0).mean_axis(axes),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::InvalidArgument,
                "{axes:?}: {error}"
            );
            assert_eq!(
                error.location().map(std::panic::Location::file),
                Some(file!())
            );
        }
    }
    let nothing = Array::<f32>::zeros([2, 0, 3])?;
    assert_eq!(nothing.sum_axis([0, 1])?.to_vec()?, [0.0; 3]);
    assert_eq!(
        nothing.max_axis([0, 1]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(nothing.max_axis([0, 2])?.shape(), [0]);
    Ok(())
}
