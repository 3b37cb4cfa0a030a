//! Concatenation, repetition, padding and diagonals.

use cachescope::{Array, Element, ErrorKind, Result, concat, stack};
use proptest::prelude::*;

use crate::arrays::model::{
    alike, counted, dims, dirty_scope, expected, for_types, value, with_axis,
};
use crate::arrays::{dirty_device, fails};
use crate::strided::{Placement, placement};

fn check_repeat<T: Element>(array: &Placement, count: usize, axis: isize) {
    let array = array.build(value::<T>);
    let at = counted(axis, array.ndim());
    let host = array.to_ndarray().unwrap();
    let mut shape = array.shape().to_vec();
    shape[at] *= count;
    let expected = expected(&shape, |index| {
        let mut index = index.to_vec();
        index[at] /= count;
        host[index.as_slice()]
    });
    alike(&array.repeat(count, axis).unwrap(), &expected);
}

fn check_pad<T: Element>(array: &Placement, margins: &[(usize, usize)]) {
    let array = array.build(value::<T>);
    let margin = T::from_f64(7.0);
    let host = array.to_ndarray().unwrap();
    let lengths = array.shape().iter().zip(margins);
    let shape: Vec<_> = lengths
        .map(|(length, (before, after))| length + before + after)
        .collect();
    let expected = expected(&shape, |index| {
        let axes = index.iter().zip(margins);
        let inside: Option<Vec<usize>> = axes
            .map(|(&index, &(before, _))| index.checked_sub(before))
            .collect();
        inside
            .and_then(|index| host.get(index.as_slice()).copied())
            .unwrap_or(margin)
    });
    alike(&array.pad(margins, margin).unwrap(), &expected);
}

fn check_triangles<T: Element>(array: &Placement, k: isize) {
    let array = array.build(value::<T>);
    let host = array.to_ndarray().unwrap();
    let rank = array.ndim();
    let kept = |keep: fn(isize, isize) -> bool| {
        expected(array.shape(), |index| {
            let (row, column) = (index[rank - 2] as isize, index[rank - 1] as isize);
            if keep(column - row, k) {
                host[index]
            } else {
                T::zero()
            }
        })
    };
    alike(&array.tril(k).unwrap(), &kept(|diagonal, k| diagonal <= k));
    alike(&array.triu(k).unwrap(), &kept(|diagonal, k| diagonal >= k));
}

fn check_diag<T: Element>(vector: &Placement, matrix: &Placement, k: isize) {
    let vector = vector.build(value::<T>);
    let host = vector.to_ndarray().unwrap();
    let side = vector.len() + k.unsigned_abs();
    let square = expected(&[side, side], |index| {
        let (row, column) = (index[0] as isize, index[1] as isize);
        if column - row == k {
            host[index[0].min(index[1])]
        } else {
            T::zero()
        }
    });
    alike(&vector.diag(k).unwrap(), &square);
    let matrix = matrix.build(value::<T>);
    let host = matrix.to_ndarray().unwrap();
    let elements = host.indexed_iter();
    let on_diagonal = elements.filter(|(index, _)| index[1] as isize - index[0] as isize == k);
    let diagonal: Vec<T> = on_diagonal.map(|(_, value)| *value).collect();
    assert_eq!(matrix.diag(k).unwrap().to_vec().unwrap(), diagonal);
}

fn check_joined<T: Element>(parts: &[Placement], axis: isize) {
    let (rank, dims) = (parts[0].dims().len(), parts[0].dims());
    let numbered = (0..).zip(parts);
    let arrays: Vec<_> = numbered
        .map(|(seed, part)| part.build(|at| value::<T>(at + seed * 5)))
        .collect();
    let hosts: Vec<_> = arrays
        .iter()
        .map(|array| array.to_ndarray().unwrap())
        .collect();
    let arrays: Vec<_> = arrays.iter().collect();
    if rank > 0 {
        let at = counted(axis, rank);
        let mut shape = dims.clone();
        shape[at] *= arrays.len();
        let expected = expected(&shape, |index| {
            let mut index = index.to_vec();
            let part = index[at] / dims[at];
            index[at] %= dims[at];
            hosts[part][index.as_slice()]
        });
        alike(&concat(&arrays, at as isize).unwrap(), &expected);
    }
    let at = counted(axis, rank + 1);
    let mut shape = dims;
    shape.insert(at, arrays.len());
    let expected = expected(&shape, |index| {
        let mut index = index.to_vec();
        let part = index.remove(at);
        hosts[part][index.as_slice()]
    });
    alike(&stack(&arrays, at as isize).unwrap(), &expected);
    alike(
        &stack(&arrays, at as isize - rank as isize - 1).unwrap(),
        &expected,
    );
}

proptest! {
    #[test]
    fn repeat_equals_its_definition_by_coordinates((array, axis) in with_axis(), count in 0..4usize) {
        let _scope = dirty_scope();
        for_types!(check_repeat(&array, count, axis));
    }

    #[test]
    fn pad_equals_its_definition_by_coordinates(
        (array, margins) in dims().prop_flat_map(|dims| {
            let margins = prop::collection::vec((0..3usize, 0..3usize), dims.len());
            (placement(dims), margins)
        })
    ) {
        let _scope = dirty_scope();
        for_types!(check_pad(&array, &margins));
    }

    #[test]
    fn triangles_equal_their_definition_by_coordinates(
        array in prop::collection::vec(0..6usize, 2..=4).prop_flat_map(placement),
        k in prop_oneof![8 => -6..7isize, 1 => Just(isize::MIN), 1 => Just(isize::MAX)],
    ) {
        let _scope = dirty_scope();
        for_types!(check_triangles(&array, k));
    }

    #[test]
    fn diag_equals_its_definition_by_coordinates(
        vector in (0..9usize).prop_flat_map(|length| placement(vec![length])),
        matrix in prop::collection::vec(0..6usize, 2).prop_flat_map(placement),
        k in -7..8isize,
    ) {
        let _scope = dirty_scope();
        for_types!(check_diag(&vector, &matrix, k));
    }

    #[test]
    fn concat_and_stack_equal_their_definition_by_coordinates(
        (parts, axis) in dims().prop_flat_map(|dims| {
            let parts = prop::collection::vec(placement(dims), 1..5);
            (parts, any::<isize>())
        })
    ) {
        let _scope = dirty_scope();
        for_types!(check_joined(&parts, axis));
    }

    #[test]
    fn what_is_split_and_joined_is_as_before((array, axis) in with_axis(), parts in 1..6usize) {
        let _scope = dirty_scope();
        let array = array.build(|at| at as i32);
        let length = array.shape()[counted(axis, array.ndim())];
        let split = array.split(parts, axis);
        if !length.is_multiple_of(parts) {
            let shape = array.shape();
            let text = format!(
                "of length {length} of the shape {shape:?} does not divide into {parts} parts"
            );
            fails(split, ErrorKind::InvalidArgument, &text);
            return Ok(());
        }
        let split = split.unwrap();
        prop_assert_eq!(split.len(), parts);
        prop_assert!(array.is_empty() || split[0].address() == array.address(), "a view");
        let joined = concat(&split.iter().collect::<Vec<_>>(), axis).unwrap();
        prop_assert_eq!(&joined, &array);
    }
}

#[test]
fn all_of_eight_axes() -> Result<()> {
    // No two of the eight axes can be merged, so the view has the maximum number of strides.
    // `repeat` adds another stride.
    let array = Array::arange(0, 6561, 1)?.reshape([3; 8])?;
    let axes = [1, 0, 3, 2, 5, 4, 7, 6];
    let view = array.permute(&axes)?.slice(cachescope::ndarray::s![
        ..2,
        ..2,
        ..2,
        ..2,
        ..2,
        ..2,
        ..2,
        ..2
    ])?;
    let host = view.to_ndarray()?;
    let twice = expected(&[2, 2, 2, 2, 4, 2, 2, 2], |index| {
        let mut index = index.to_vec();
        index[4] /= 2;
        host[index.as_slice()]
    });
    alike(&view.repeat(2, 4)?, &twice);
    assert_eq!(view.flatten()?.to_vec()?, view.to_vec()?);
    fails(stack(&[&view], 0), ErrorKind::InvalidShape, "rank 9");
    Ok(())
}

#[test]
fn large_transposed_arrays_are_copied_by_tiles() -> Result<()> {
    // Some lengths are multiples of a tile's length, and others are not.
    for [outer, rows, columns] in [
        [1, 64, 96],
        [3, 33, 50],
        [2, 8, 100],
        [5, 100, 7],
        [2, 31, 257],
    ] {
        let array = Array::arange(0, (outer * rows * columns) as i32, 1)?;
        let array = array.reshape([rows, outer, columns])?;
        for axes in [[1, 2, 0], [2, 1, 0], [0, 2, 1], [2, 0, 1]] {
            let view = array.permute(&axes)?;
            let flat = view.to_vec()?;
            assert_eq!(view.reshape(array.len())?.to_vec()?, flat);
            assert_eq!(concat(&[&view], 0)?.to_vec()?, flat);
            let backwards = view.flip(1)?;
            assert_eq!(concat(&[&backwards], 0)?, backwards);
            let both = concat(&[&view, &view.flip(0)?], 1)?;
            let [first, second]: [_; 2] = both.split(2, 1)?.try_into().unwrap();
            assert!(first == view && second == view.flip(0)?);
        }
    }
    Ok(())
}

#[test]
fn bad_input_is_named() -> Result<()> {
    let (argument, shape) = (ErrorKind::InvalidArgument, ErrorKind::InvalidShape);
    let array = Array::<f32>::ones([3, 4])?;
    let scalar = Array::full([], 1.0f32)?;
    fails(
        array.repeat(2, 2),
        argument,
        "repeat: axis 2 is out of range for the shape [3, 4]",
    );
    fails(array.repeat(usize::MAX, 0), shape, "overflows");
    assert_eq!(
        Array::<f32>::zeros([0, 10])?.repeat(usize::MAX, 0)?.shape(),
        [0, 10]
    );
    fails(scalar.repeat(2, 0), argument, "rank 0");

    fails(
        array.split(0, 0),
        argument,
        "split: axis 0 of length 3 of the shape [3, 4] does not divide into 0 parts",
    );
    fails(array.split(2, 0), argument, "does not divide into 2 parts");
    fails(array.split(4, -3), argument, "split: axis -3");
    let empty = Array::<f32>::zeros([0, 2])?;
    assert_eq!(empty.split(3, 0)?.len(), 3);
    fails(empty.split(usize::MAX, 0), argument, "does not divide");

    fails(
        array.pad(&[(1, 1)], 0.0),
        argument,
        "pad: the list of margins [(1, 1)] has length 1, expected 2, one for each axis of the shape [3, 4]",
    );
    fails(
        array.pad(&[(usize::MAX, 1), (0, 0)], 0.0),
        shape,
        "overflows",
    );
    assert_eq!(scalar.pad(&[], 0.0)?.item()?, 1.0);
    assert_eq!(empty.pad(&[(1, 0), (0, 0)], 2.0)?.to_vec()?, [2.0, 2.0]);

    fails(
        array.flatten()?.tril(0),
        argument,
        "tril: the shape [12] has rank 1, expected at least two axes",
    );
    fails(
        scalar.triu(0),
        argument,
        "triu: the shape [] has rank 0, expected at least two axes",
    );
    fails(
        scalar.diag(0),
        argument,
        "diag: the shape [] has rank 0, expected a vector or a matrix",
    );
    fails(
        array.unsqueeze(0)?.diag(0),
        argument,
        "diag: the shape [1, 3, 4] has rank 3, expected a vector or a matrix",
    );
    fails(array.flatten()?.diag(isize::MIN), shape, "overflows");
    assert!(array.diag(isize::MIN)?.is_empty() && array.diag(isize::MAX)?.is_empty());

    fails(
        stack::<f32>(&[], 0),
        argument,
        "stack: the list of arrays is empty, expected at least one",
    );
    fails(stack(&[&array], 3), argument, "stack: axis 3");
    fails(stack(&[&array], -4), argument, "stack: axis -4");
    fails(
        stack(&[&array, &array.transpose()?], 0),
        ErrorKind::ShapeMismatch,
        "stack: array 1 has the shape [4, 3], array 0 has [3, 4]: expected equal shapes",
    );
    let away = array.to_device(&dirty_device()?)?;
    fails(
        stack(&[&array, &away], 0),
        ErrorKind::DeviceMismatch,
        "stack: array 0 [3, 4] is on ",
    );
    Ok(())
}
