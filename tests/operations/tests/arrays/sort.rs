//! Sorting, and the positions of sorted elements.

use std::cmp::Ordering;

use cachescope::{Array, Element, ErrorKind, Result};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::arrays::fails;
use crate::arrays::model::{alike, counted, dirty_scope, expected, some_dims};
use crate::strided::{Placement, placement};

/// Compares elements. NaN is last, and both zeros are equal.
fn order<T: Element>(one: &T, other: &T) -> Ordering {
    let is_nan = |value: &T| value.partial_cmp(value).is_none();
    let by_nan = is_nan(one).cmp(&is_nan(other));
    by_nan.then(one.partial_cmp(other).unwrap_or(Ordering::Equal))
}

/// Returns a value of `kind`. The value is one of a few (so that many are equal), has any
/// magnitude, or may be special.
fn sample<T: Element>(kind: u8, at: usize) -> T {
    let hash = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = hash ^ (hash >> 29);
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1.0,
        -1.0,
    ];
    let any = (hash >> 8) as f64 / (1u64 << 55) as f64 - 1.0;
    T::from_f64(match kind {
        0 => (hash % 5) as f64,
        1 => any * 10f64.powi((hash % 18) as i32),
        _ if hash.is_multiple_of(3) => any * 100.0,
        _ => special[hash as usize / 3 % 8],
    })
}

/// Returns the positions of a lane's elements in sorted order.
fn positions<T: Element>(lane: &[T], descending: bool) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..lane.len()).collect();
    positions.sort_by(|&one, &other| {
        let order = order(&lane[one], &lane[other]);
        if descending { order.reverse() } else { order }
    });
    positions
}

fn check<T: Element>(placement: &Placement, axis: isize, kind: u8, keep: usize) {
    let array = placement.build(|at| sample::<T>(kind, at));
    let at = counted(axis, array.ndim());
    let host = array.to_ndarray().unwrap();
    let lane = |index: &[usize]| {
        let with = |position| {
            let mut index = index.to_vec();
            index[at] = position;
            host[index.as_slice()]
        };
        (0..array.shape()[at]).map(with).collect::<Vec<T>>()
    };
    let ranked = |shape: &[usize], descending| {
        expected(shape, |index| {
            positions(&lane(index), descending)[index[at]]
        })
    };
    let ascending = ranked(array.shape(), false);
    alike(
        &array.argsort(axis).unwrap(),
        &ascending.mapv(|position| position as i64),
    );
    let values = expected(array.shape(), |index| lane(index)[ascending[index]]);
    alike(&array.sort(axis).unwrap(), &values);

    let k = keep.min(array.shape()[at]);
    let mut shape = array.shape().to_vec();
    shape[at] = k;
    let descending = ranked(&shape, true);
    let values = expected(&shape, |index| lane(index)[descending[index]]);
    let (top, indices) = array.topk(k, axis).unwrap();
    alike(&top, &values);
    alike(&indices, &descending.mapv(|position| position as i64));
}

/// Runs [`check`] for each type.
fn check_types(placement: &Placement, axis: isize, kind: u8, keep: usize) {
    let _scope = dirty_scope();
    check::<bool>(placement, axis, kind, keep);
    check::<u8>(placement, axis, kind, keep);
    check::<i8>(placement, axis, kind, keep);
    check::<u16>(placement, axis, kind, keep);
    check::<i16>(placement, axis, kind, keep);
    check::<f16>(placement, axis, kind, keep);
    check::<bf16>(placement, axis, kind, keep);
    check::<u32>(placement, axis, kind, keep);
    check::<i32>(placement, axis, kind, keep);
    check::<f32>(placement, axis, kind, keep);
    check::<u64>(placement, axis, kind, keep);
    check::<i64>(placement, axis, kind, keep);
    check::<f64>(placement, axis, kind, keep);
}

fn small_dims() -> impl Strategy<Value = Vec<usize>> {
    some_dims().prop_filter("slow to sort naively", |dims| {
        dims.iter().product::<usize>() < 200
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn lanes_are_sorted_as_by_a_stable_sort(
        (array, axis) in small_dims().prop_flat_map(|dims| {
            let rank = dims.len() as isize;
            (placement(dims), -rank..rank)
        }),
        kind in 0..3u8,
        keep in 0..6usize,
    ) {
        check_types(&array, axis, kind, keep);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn long_lanes_are_too(
        array in prop_oneof![
            (257..400usize).prop_map(|length| vec![length]),
            (1..3usize, 257..300usize).prop_map(|(lanes, length)| vec![lanes, length]),
            (257..300usize, 1..3usize).prop_map(|(length, lanes)| vec![length, lanes]),
        ].prop_flat_map(placement),
        kind in 0..3u8,
        keep in 1..400usize,
    ) {
        let lengths = array.dims();
        let axis = lengths.iter().position(|&length| length > 3).unwrap();
        check_types(&array, axis as isize, kind, keep);
    }
}

fn sorted_vec<T: Element>(values: &[T]) -> Vec<T> {
    let mut sorted = values.to_vec();
    sorted.sort_by(order);
    sorted
}

#[test]
fn very_long_lanes_are_sorted_by_all_their_digits() -> Result<()> {
    fn check<T: Element>(kind: u8) -> Result<()> {
        let values: Vec<T> = (0..70_000).map(|at| sample(kind, at)).collect();
        let array = Array::from_slice(&values, values.len())?;
        let sorted = Array::from_vec(sorted_vec(&values), values.len())?;
        alike(&array.sort(0)?, &sorted.to_ndarray()?);
        let order: Vec<i64> = positions(&values, false)
            .into_iter()
            .map(|at| at as i64)
            .collect();
        assert!(
            array.argsort(0)?.to_vec()? == order,
            "{} of kind {kind}",
            T::NAME
        );
        let order = positions(&values, true);
        for kept in [20, values.len() / 3] {
            let (top, indices) = array.topk(kept, 0)?;
            let indices = indices.to_vec()?;
            let expected = order[..kept].iter().map(|&at| at as i64);
            assert!(expected.eq(indices), "{} of kind {kind}", T::NAME);
            let expected: Vec<T> = order[..kept].iter().map(|&at| values[at]).collect();
            alike(&top, &Array::from_vec(expected, kept)?.to_ndarray()?);
        }
        Ok(())
    }
    for kind in 0..3 {
        check::<u8>(kind)?;
        check::<i16>(kind)?;
        check::<f16>(kind)?;
        check::<f32>(kind)?;
        check::<i64>(kind)?;
        check::<f64>(kind)?;
    }
    Ok(())
}

#[test]
fn more_lanes_than_are_sorted_at_once() -> Result<()> {
    let (lanes, length) = (3000, 400);
    let values: Vec<f64> = (0..lanes * length).map(|at| sample(1, at)).collect();
    let array = Array::from_slice(&values, [lanes, length])?;
    let expected: Vec<f64> = values.chunks(length).flat_map(sorted_vec).collect();
    let expected = Array::from_vec(expected, [lanes, length])?;
    assert!(array.sort(1)? == expected);
    assert!(array.transpose()?.sort(0)? == expected.transpose()?);
    assert!(array.gather(&array.argsort(1)?, 1)? == expected);
    Ok(())
}

#[test]
fn zeros_and_nan_keep_their_order() -> Result<()> {
    let nan = f32::from_bits(0x7fc0_0001);
    let values = [0.0, nan, -0.0, 1.0, 0.0, -f32::NAN, -0.0, f32::INFINITY];
    let array = Array::from_slice(&values, 8)?;
    assert_eq!(array.argsort(0)?.to_vec()?, [0, 2, 4, 6, 3, 7, 1, 5]);
    let bits = |array: Array<f32>| {
        Ok(array
            .to_vec()?
            .into_iter()
            .map(f32::to_bits)
            .collect::<Vec<_>>())
    };
    let sorted = [0, 2, 4, 6, 3, 7, 1, 5].map(|at: usize| values[at].to_bits());
    assert_eq!(bits(array.sort(0)?)?, sorted);
    let (top, indices) = array.topk(7, -1)?;
    assert_eq!(indices.to_vec()?, [1, 5, 7, 3, 0, 2, 4]);
    assert_eq!(
        bits(top)?,
        [1, 5, 7, 3, 0, 2, 4].map(|at: usize| values[at].to_bits())
    );
    Ok(())
}

#[test]
fn bad_input_is_named() -> Result<()> {
    let kind = ErrorKind::InvalidArgument;
    let array = Array::<f32>::ones([3, 4])?;
    fails(
        array.sort(2),
        kind,
        "sort: axis 2 is out of range for the shape [3, 4]",
    );
    fails(
        array.argsort(-3),
        kind,
        "argsort: axis -3 is out of range for the shape [3, 4]",
    );
    fails(array.topk(1, 5), kind, "topk: axis 5");
    fails(
        array.topk(5, 1),
        kind,
        "topk: k is 5, expected at most 4, the length of axis 1 of the shape [3, 4]",
    );
    fails(array.topk(usize::MAX, 0), kind, "expected at most 3");
    let scalar = Array::full([], 1.0f32)?;
    fails(scalar.sort(0), kind, "rank 0");
    fails(scalar.argsort(0), kind, "rank 0");
    let wide = Array::<u8>::zeros(1)?.broadcast_to([1 << 61])?;
    fails(wide.argsort(0), ErrorKind::InvalidShape, "overflows");
    Ok(())
}

#[test]
fn nothing_is_sorted_into_nothing() -> Result<()> {
    let none = Array::<f32>::zeros([2, 0, 3])?;
    assert_eq!(none.sort(0)?.shape(), [2, 0, 3]);
    assert_eq!(none.argsort(1)?.shape(), [2, 0, 3]);
    let (values, indices) = none.topk(0, 1)?;
    assert_eq!(
        (values.shape(), indices.shape()),
        (&[2, 0, 3][..], &[2, 0, 3][..])
    );
    let (values, indices) = Array::<f32>::ones([2, 3])?.topk(0, 1)?;
    assert!(values.is_empty() && indices.is_empty());
    Ok(())
}
