//! Reads and additions at indices.

use cachescope::ndarray::{ArrayD, s};
use cachescope::{Array, Element, ErrorKind, Integer, Numeric, Result};
use half::f16;
use proptest::prelude::*;

use crate::arrays::model::{alike, counted, dirty_scope, expected, for_types, value, with_axis};
use crate::arrays::{dirty_device, fails};
use crate::strided::{Placement, placement};

/// Returns indices of an axis of `length`, some of them negative.
fn indices(placement: &Placement, length: usize) -> Array<i64> {
    let length = length as i64;
    placement.build(|at| {
        if length == 0 {
            0
        } else {
            (at as i64 * 5 + 3) % (2 * length) - length
        }
    })
}

/// Returns the non-negative form of an index.
fn resolved(index: i64, length: usize) -> usize {
    index.rem_euclid(length as i64) as usize
}

/// Generates an array, an axis and indices. On the other axes, array and indices broadcast
/// together.
fn with_indices() -> impl Strategy<Value = (Placement, Placement, isize)> {
    let both = |(like, axis): (Placement, isize)| {
        let dims = like.dims();
        let at = counted(axis, dims.len());
        let single = prop::collection::vec(0..4u8, dims.len());
        (single, 0..6usize).prop_flat_map(move |(single, count)| {
            let side = |which: u8| {
                let lengths = dims.iter().zip(&single);
                let lengths =
                    lengths.map(|(&length, &single)| if single == which { 1 } else { length });
                lengths.collect::<Vec<_>>()
            };
            let (mut array, mut indices) = (side(1), side(2));
            (array[at], indices[at]) = (dims[at], if dims[at] == 0 { 0 } else { count });
            (placement(array), placement(indices), Just(axis))
        })
    };
    with_axis().prop_flat_map(both)
}

/// Returns the shape that array and indices broadcast to, with the length of `indices` on axis
/// `at`.
fn common(array: &[usize], indices: &[usize], at: usize) -> Vec<usize> {
    let axes = array.iter().zip(indices).enumerate();
    axes.map(|(axis, (&one, &other))| if axis == at || one == 1 { other } else { one })
        .collect()
}

/// Returns the coordinates, in an array of shape `dims`, that broadcasting maps `index` to.
fn within(index: &[usize], dims: &[usize]) -> Vec<usize> {
    let axes = index.iter().zip(dims);
    axes.map(|(&index, &length)| if length == 1 { 0 } else { index })
        .collect()
}

fn check_take<T: Element>(array: &Placement, picks: &Placement, axis: isize) {
    let array = array.build(value::<T>);
    let at = counted(axis, array.ndim());
    let picks = indices(picks, array.shape()[at]);
    let taken = array.take(&picks, axis).unwrap();
    let (host, picked) = (array.to_ndarray().unwrap(), picks.to_ndarray().unwrap());
    let shape = [
        &array.shape()[..at],
        picks.shape(),
        &array.shape()[at + 1..],
    ]
    .concat();
    let end = at + picks.ndim();
    let expected = expected(&shape, |index| {
        let pick = resolved(picked[&index[at..end]], array.shape()[at]);
        host[[&index[..at], &[pick], &index[end..]].concat().as_slice()]
    });
    alike(&taken, &expected);
}

fn check_gather<T: Element>(array: &Placement, picks: &Placement, axis: isize) {
    let array = array.build(value::<T>);
    let at = counted(axis, array.ndim());
    let picks = indices(picks, array.shape()[at]);
    let gathered = array.gather(&picks, axis).unwrap();
    let (host, picked) = (array.to_ndarray().unwrap(), picks.to_ndarray().unwrap());
    let expected = expected(&common(array.shape(), picks.shape(), at), |index| {
        let mut from = within(index, array.shape());
        let mut pick = within(index, picks.shape());
        pick[at] = index[at];
        from[at] = resolved(picked[pick.as_slice()], array.shape()[at]);
        host[from.as_slice()]
    });
    alike(&gathered, &expected);
}

/// Compares `scatter_add` with a model that adds by `plus` in the type `W`, and rounds each sum
/// once.
fn check_scatter_add<T: Numeric, W: Numeric>(
    target: &Placement,
    picks: &Placement,
    axis: isize,
    plus: fn(W, W) -> W,
) {
    let mut target = target.build(value::<T>);
    let at = counted(axis, target.ndim());
    let picks = indices(picks, target.shape()[at]);
    let shape = common(target.shape(), picks.shape(), at);
    let source = Array::from_vec(
        (0..shape.iter().product())
            .map(|at| value(at + 3))
            .collect(),
        &shape,
    );
    let source = source.unwrap();
    let picked = picks.to_ndarray().unwrap();
    let mut sums = target.cast::<W>().eval().unwrap().to_ndarray().unwrap();
    let addends = source.cast::<W>().eval().unwrap().to_ndarray().unwrap();
    for (index, &addend) in addends.indexed_iter() {
        let index: Vec<usize> = (0..shape.len()).map(|axis| index[axis]).collect();
        let mut to = within(&index, target.shape());
        let mut pick = within(&index, picks.shape());
        pick[at] = index[at];
        to[at] = resolved(picked[pick.as_slice()], target.shape()[at]);
        let sum = &mut sums[to.as_slice()];
        *sum = plus(*sum, addend);
    }
    let host = Array::from_ndarray(&sums)
        .unwrap()
        .cast::<T>()
        .eval()
        .unwrap();
    let host = host.to_ndarray().unwrap();
    let kept = (target.clone(), target.to_ndarray().unwrap());
    let mut shared = target.clone();
    shared.scatter_add(&picks, &source, axis).unwrap();
    alike(&shared, &host);
    alike(&kept.0, &kept.1);
    drop((kept, shared));
    target.scatter_add(&picks, &source, axis).unwrap();
    alike(&target, &host);
}

fn check_one_hot<T: Integer>(array: &Placement, classes: usize) {
    let array = array.build(|at| T::from_f64((at * 5 % classes) as f64));
    let host = array.to_ndarray().unwrap();
    let shape = [array.shape(), &[classes]].concat();
    let is_class = |index: &[usize]| {
        let (class, index) = index.split_last().unwrap();
        host[index].to_f64() == *class as f64
    };
    alike(
        &array.one_hot::<bool>(classes).unwrap(),
        &expected(&shape, is_class),
    );
    let ones = expected(&shape, |index| {
        f16::from_f32(f32::from(u8::from(is_class(index))))
    });
    alike(&array.one_hot::<f16>(classes).unwrap(), &ones);
}

proptest! {
    #[test]
    fn take_equals_its_definition_by_coordinates(
        (array, axis) in with_axis(),
        picks in prop::collection::vec(0..5usize, 0..=2).prop_flat_map(placement),
    ) {
        let empty = array.dims()[counted(axis, array.dims().len())] == 0;
        prop_assume!(!empty || picks.dims().contains(&0));
        let _scope = dirty_scope();
        for_types!(check_take(&array, &picks, axis));
    }

    #[test]
    fn gather_equals_its_definition_by_coordinates((array, picks, axis) in with_indices()) {
        let _scope = dirty_scope();
        for_types!(check_gather(&array, &picks, axis));
    }

    #[test]
    fn scatter_add_adds_in_order_and_rounds_once((array, picks, axis) in with_indices()) {
        let _scope = dirty_scope();
        check_scatter_add::<i8, i8>(&array, &picks, axis, i8::wrapping_add);
        check_scatter_add::<f16, f32>(&array, &picks, axis, |sum, addend| sum + addend);
        check_scatter_add::<f32, f32>(&array, &picks, axis, |sum, addend| sum + addend);
        check_scatter_add::<i64, i64>(&array, &picks, axis, i64::wrapping_add);
    }

    #[test]
    fn one_hot_marks_each_class(
        array in prop::collection::vec(0..5usize, 0..=4).prop_flat_map(placement),
        classes in 1..9usize,
    ) {
        let _scope = dirty_scope();
        check_one_hot::<u8>(&array, classes);
        check_one_hot::<i8>(&array, classes);
        check_one_hot::<i32>(&array, classes);
        check_one_hot::<u64>(&array, classes);
    }
}

#[test]
fn rows_of_embeddings_add_up() -> Result<()> {
    // The test reads and adds many rows of many elements. Each of the two operations is the
    // gradient of the other.
    let table = Array::arange(0, 5000, 1)?.reshape([50, 100])?;
    let words = Array::from_vec((0..300).map(|at| at * 17 % 50).collect::<Vec<i64>>(), 300)?;
    let rows = table.take(&words, 0)?;
    let same = table.gather(&words.unsqueeze(1)?, 0)?;
    assert_eq!(rows, same);
    let mut counts = Array::<i32>::zeros([50, 100])?;
    counts.scatter_add(&words.unsqueeze(1)?, &Array::ones([300, 100])?, 0)?;
    assert_eq!(counts.to_vec()?, [6; 5000]);
    let mut sums = Array::<i32>::zeros([50, 100])?;
    sums.scatter_add(&words.unsqueeze(1)?, &rows, 0)?;
    assert_eq!(sums.to_vec()?, (&table * 6).eval()?.to_vec()?);
    Ok(())
}

#[test]
fn integers_wrap_and_floats_round_as_they_are_added() -> Result<()> {
    let twice = Array::from_slice(&[0, 0], 2)?;
    let mut small = Array::full(1, 100i8)?;
    small.scatter_add(&twice, &Array::full(2, 100i8)?, 0)?;
    assert_eq!(small.to_vec()?, [44]);
    let mut large = Array::full(1, 1.0f32)?;
    large.scatter_add(&twice, &Array::from_slice(&[1e10, -1e10], 2)?, 0)?;
    assert_eq!(large.to_vec()?, [0.0], "in order");
    Ok(())
}

#[test]
fn adding_to_an_array_reads_its_own_views_as_they_were() -> Result<()> {
    let mut array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    let rows = Array::from_slice(&[1, 0], [2, 1])?;
    let own = array.clone();
    array.scatter_add(&rows, &own, 0)?;
    assert_eq!(array.to_vec()?, [3, 5, 7, 3, 5, 7]);
    assert_eq!(own.to_vec()?, [0, 1, 2, 3, 4, 5]);
    let mut counts = Array::arange(0i64, 3, 1)?;
    let indices = counts.clone();
    counts.scatter_add(&indices, &indices, 0)?;
    assert_eq!(counts.to_vec()?, [0, 2, 4]);
    let mut view = array.slice(s![.., ..;2])?;
    drop((array, own));
    let address = view.address();
    view.scatter_add(&rows, &Array::ones([2, 2])?, 0)?;
    assert_eq!(view.to_vec()?, [4, 8, 4, 8]);
    assert_eq!(view.address(), address, "in place");
    Ok(())
}

#[test]
fn a_bad_index_is_named_and_nothing_is_written() -> Result<()> {
    let device = dirty_device()?;
    let _guard = device.enter();
    let original = Array::arange(0, 12, 1)?.reshape([3, 4])?;
    let mut target = original.to_uncached()?;
    let source = Array::<i32>::ones([2, 4])?;
    let _scope = device.scope("bad index").enter();
    for bad in [3, -4, i64::MIN, i64::MAX] {
        let named =
            format!("index {bad} is out of range for axis 0 of length 3 of the shape [3, 4]");
        let indices = Array::from_slice(&[0, 0, 1, 1, 2, bad, -3, 0], [2, 4])?.to_uncached()?;
        let before = device
            .cache_stats("bad index")
            .map(|stats| stats.hits + stats.misses);
        let kind = ErrorKind::InvalidArgument;
        fails(
            target.take(&indices, -2),
            kind,
            &format!("take: the {named}"),
        );
        fails(
            target.gather(&indices, 0),
            kind,
            &format!("gather: the {named}"),
        );
        let outcome = target.scatter_add(&indices, &source, 0);
        fails(outcome, kind, &format!("scatter_add: the {named}"));
        let after = device
            .cache_stats("bad index")
            .map(|stats| stats.hits + stats.misses);
        assert_eq!(before, after, "allocated");
    }
    assert_eq!(target, original);
    Ok(())
}

#[test]
fn mismatched_shapes_are_named() -> Result<()> {
    let (argument, mismatch) = (ErrorKind::InvalidArgument, ErrorKind::ShapeMismatch);
    let mut array = Array::<f32>::ones([3, 4])?;
    let flat = Array::<i64>::zeros(4)?;
    let (wide, tall) = (Array::<i64>::zeros([2, 5])?, Array::<i64>::zeros([2, 4])?);
    let source = Array::<f32>::ones([2, 4])?;
    fails(
        array.gather(&tall, 2),
        argument,
        "gather: axis 2 is out of range for the shape [3, 4]",
    );
    fails(
        array.gather(&flat, 0),
        mismatch,
        "gather: the indices [4] do not fit the array [3, 4]: expected the same rank",
    );
    fails(
        array.gather(&wide, 0),
        mismatch,
        "indices [2, 5] do not fit the array [3, 4]: expected the same rank, and lengths that broadcast along all axes except 0",
    );
    fails(
        array.gather(&tall, 1),
        mismatch,
        "indices [2, 4] do not fit the array [3, 4]: expected the same rank, and lengths that broadcast along all axes except 1",
    );
    fails(
        array.scatter_add(&tall, &source, -3),
        argument,
        "scatter_add: axis -3",
    );
    fails(
        array.scatter_add(&flat, &source, 0),
        mismatch,
        "scatter_add: the indices [4] do not fit the array [3, 4]",
    );
    fails(
        array.scatter_add(&tall, &Array::ones([3, 4])?, 0),
        mismatch,
        "scatter_add: the source [3, 4] does not broadcast to the shape [2, 4] of the indices [2, 4] for the array [3, 4]",
    );
    fails(
        array.scatter_add(&tall, &Array::ones([1, 2, 4])?, 0),
        mismatch,
        "[1, 2, 4]",
    );
    assert_eq!(array.to_vec()?, [1.0; 12]);

    let scalar = Array::full([], 1.0f32)?;
    fails(scalar.gather(&flat, 0), argument, "rank 0");
    fails(scalar.take(&flat, 0), argument, "rank 0");

    let labels = Array::from_slice(&[0i8, 3, -1], 3)?;
    fails(
        labels.one_hot::<f32>(4),
        argument,
        "one_hot: the class -1 in the array of shape [3] is out of range for 4 classes",
    );
    fails(
        labels.one_hot::<f32>(3),
        argument,
        "one_hot: the class 3 in the array of shape [3] is out of range for 3 classes",
    );
    fails(
        labels.one_hot::<f32>(0),
        argument,
        "one_hot: the class 0 in the array of shape [3] is out of range for 0 classes",
    );
    let huge = Array::full(1, u64::MAX)?;
    fails(huge.one_hot::<f32>(9), argument, &u64::MAX.to_string());
    let deep = Array::<u8>::zeros([1; 8])?;
    fails(deep.one_hot::<f32>(2), ErrorKind::InvalidShape, "rank 9");
    fails(
        labels.one_hot::<f64>(usize::MAX),
        ErrorKind::InvalidShape,
        "overflows",
    );
    assert_eq!(
        Array::<i32>::zeros([2, 0])?.one_hot::<f32>(0)?.shape(),
        [2, 0, 0]
    );

    let other = dirty_device()?;
    let away = (tall.to_device(&other)?, source.to_device(&other)?);
    let kind = ErrorKind::DeviceMismatch;
    fails(
        array.gather(&away.0, 0),
        kind,
        "gather: the array [3, 4] is on host, the indices [2, 4] on another host device",
    );
    fails(
        array.scatter_add(&away.0, &source, 0),
        kind,
        "scatter_add: the array [3, 4] is on host, the indices [2, 4] on another host device",
    );
    fails(
        array.scatter_add(&tall, &away.1, 0),
        kind,
        "scatter_add: the array [3, 4] is on host, the source [2, 4] on another host device",
    );
    Ok(())
}

#[test]
fn nothing_is_picked_of_nothing() -> Result<()> {
    let none = Array::<f32>::zeros([0, 3])?;
    let no_indices = Array::<i64>::zeros([0, 3])?;
    assert_eq!(none.gather(&no_indices, 0)?.shape(), [0, 3]);
    let index = Array::<i64>::zeros([1, 3])?;
    fails(
        none.gather(&index, 0),
        ErrorKind::InvalidArgument,
        "length 0",
    );
    let mut some = Array::<f32>::ones([2, 3])?;
    assert_eq!(some.gather(&no_indices, 0)?.shape(), [0, 3]);
    some.scatter_add(&no_indices, &none, 0)?;
    assert_eq!(some.to_vec()?, [1.0; 6]);
    Ok(())
}

#[test]
fn the_model_resolves_indices_as_numpy_does() {
    assert_eq!([-3, -1, 0, 2].map(|index| resolved(index, 3)), [0, 2, 0, 2]);
    let shape = common(&[2, 1, 4], &[1, 3, 5], 2);
    assert_eq!(shape, [2, 3, 5]);
    let host: ArrayD<usize> = expected(&shape, |index| index.iter().sum());
    assert_eq!(host[[1, 2, 4]], 7);
}
