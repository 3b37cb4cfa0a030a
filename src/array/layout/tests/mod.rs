//! Tests of layouts against two oracles: a list of coordinates, and ndarray.

mod limits;

use std::collections::HashSet;

use ndarray::{ArrayD, IxDyn, SliceInfoElem};
use proptest::prelude::*;

use super::*;
use crate::array::broadcast_shapes;
use crate::error::ErrorKind;

/// Returns an array of shape `dims` whose elements are their own row-major indices.
fn block(dims: &[usize]) -> ArrayD<usize> {
    let count = dims.iter().product();
    ArrayD::from_shape_vec(IxDyn(dims), (0..count).collect()).unwrap()
}

/// Returns every coordinate of a shape in row-major order.
fn coordinates(dims: &[usize]) -> Vec<Vec<usize>> {
    dims.iter().fold(vec![vec![]], |prefixes, &length| {
        let longer = |prefix: Vec<usize>| {
            (0..length).map(move |index| [prefix.as_slice(), &[index]].concat())
        };
        prefixes.into_iter().flat_map(longer).collect()
    })
}

/// Computes the index of each coordinate from the strides and the offset of `layout`.
fn oracle(layout: &Layout) -> Vec<usize> {
    let index = |coordinate: Vec<usize>| {
        let steps = coordinate.iter().zip(layout.strides());
        let distance: isize = steps.map(|(&at, &stride)| at as isize * stride).sum();
        (layout.offset() as isize + distance) as usize
    };
    coordinates(layout.dims()).into_iter().map(index).collect()
}

fn indices(layout: &Layout) -> Vec<usize> {
    let walk = Layout::walk([layout]);
    walk.each(0..walk.count()).map(|[at]| at).collect()
}

/// Checks the invariants that hold for every layout.
fn check(layout: &Layout) {
    check_walk(layout);
    let expected = oracle(layout);
    assert_eq!(layout.len(), expected.len());
    assert_eq!(indices(layout), expected, "{layout:?}");
    let bounds = expected.iter().min().zip(expected.iter().max());
    assert_eq!(layout.bounds(), bounds.map(|(&low, &high)| (low, high)));
    let several = expected.iter().collect::<HashSet<_>>().len() < expected.len();
    assert!(layout.repeats() || !several, "{layout:?}");
    let dense: Vec<usize> = (layout.offset()..).take(expected.len()).collect();
    assert_eq!(layout.is_contiguous(), expected == dense, "{layout:?}");
    for axis in 0..=layout.ndim() {
        let (outer, inner) = layout.split_at(axis);
        let outer = indices(&outer).into_iter();
        let nested = outer.flat_map(|start| indices(&inner.starting_at(start)));
        assert_eq!(nested.collect::<Vec<_>>(), expected, "{layout:?} at {axis}");
    }
}

/// Checks a walk over two layouts: `layout`, and `layout` flipped along every axis.
fn check_walk(layout: &Layout) {
    let expected = oracle(layout);
    let flipped = (0..layout.ndim()).fold(*layout, |flipped, axis| {
        flipped.flip(axis as isize).unwrap()
    });
    let backwards = oracle(&flipped);
    let pairs: Vec<_> = expected
        .iter()
        .zip(&backwards)
        .map(|(&one, &other)| [one, other])
        .collect();
    let walk = Layout::walk([layout, &flipped]);
    assert_eq!(walk.count(), pairs.len());
    assert_eq!(
        walk.each(0..pairs.len()).collect::<Vec<_>>(),
        pairs,
        "{walk:?}"
    );
    let (firsts, (length, _)) = walk.by_rows();
    let of_rows: Vec<_> = firsts.each(0..firsts.count()).collect();
    let expected: Vec<_> = pairs.iter().copied().step_by(length.max(1)).collect();
    assert_eq!(of_rows, expected, "{walk:?}");
    for cut in [pairs.len() / 3, pairs.len() / 2] {
        let parts = walk.each(0..cut).chain(walk.each(cut..pairs.len()));
        assert_eq!(parts.collect::<Vec<_>>(), pairs, "{walk:?} cut at {cut}");
    }
    if !pairs.is_empty() {
        let narrowed = walk.narrowed(0, 1..walk.length(0));
        let each = pairs.len() / walk.length(0);
        assert_eq!(
            narrowed.each(0..narrowed.count()).collect::<Vec<_>>(),
            pairs[each..]
        );
    }
}

/// An operation that returns a view. `apply` brings the parameters into the range that the view
/// allows.
#[derive(Clone, Debug)]
enum ViewStep {
    Permute(Vec<u32>),
    Transpose,
    SwapAxes(usize, usize),
    Unsqueeze(usize),
    Squeeze(usize),
    Flip(usize),
    Slice(Vec<(u32, u32, isize)>),
    Index(usize, usize),
    Broadcast(usize, usize),
    Windows(usize, usize),
}

fn step() -> impl Strategy<Value = ViewStep> {
    let number = 0usize..64;
    let range = (
        any::<u32>(),
        any::<u32>(),
        prop_oneof![-4isize..0, 1isize..5],
    );
    prop_oneof![
        proptest::collection::vec(any::<u32>(), 8).prop_map(ViewStep::Permute),
        Just(ViewStep::Transpose),
        (number.clone(), number.clone()).prop_map(|(a, b)| ViewStep::SwapAxes(a, b)),
        number.clone().prop_map(ViewStep::Unsqueeze),
        number.clone().prop_map(ViewStep::Squeeze),
        number.clone().prop_map(ViewStep::Flip),
        proptest::collection::vec(range, 8).prop_map(ViewStep::Slice),
        (number.clone(), number.clone()).prop_map(|(a, b)| ViewStep::Index(a, b)),
        (number.clone(), number.clone()).prop_map(|(a, b)| ViewStep::Broadcast(a, b)),
        (number.clone(), number).prop_map(|(a, b)| ViewStep::Windows(a, b)),
    ]
}

/// Applies `step` to the layout and to the array, unless the view does not allow the step.
fn apply(step: &ViewStep, layout: Layout, array: ArrayD<usize>) -> (Layout, ArrayD<usize>) {
    let ndim = layout.ndim();
    let signed = |axis: usize| axis as isize - if axis % 2 == 1 { ndim as isize } else { 0 };
    match step {
        ViewStep::Permute(keys) => {
            let mut axes: Vec<usize> = (0..ndim).collect();
            axes.sort_by_key(|&axis| keys[axis]);
            (layout.permute(&axes).unwrap(), array.permuted_axes(axes))
        }
        ViewStep::Transpose => (layout.transpose(), array.reversed_axes()),
        ViewStep::SwapAxes(first, second) if ndim > 0 => {
            let (first, second) = (first % ndim, second % ndim);
            let swapped = layout.swap_axes(signed(first), signed(second)).unwrap();
            let mut array = array;
            array.swap_axes(first, second);
            (swapped, array)
        }
        ViewStep::Unsqueeze(at) if ndim < MAX_RANK => {
            let at = at % (ndim + 1);
            let axis = ndarray::Axis(at);
            (
                layout.unsqueeze(at as isize).unwrap(),
                array.insert_axis(axis),
            )
        }
        ViewStep::Squeeze(at) if ndim > 0 && layout.dims()[at % ndim] == 1 => {
            let at = at % ndim;
            let array = array.index_axis_move(ndarray::Axis(at), 0);
            (layout.squeeze(signed(at)).unwrap(), array)
        }
        ViewStep::Flip(at) if ndim > 0 => {
            let at = at % ndim;
            let mut array = array;
            array.invert_axis(ndarray::Axis(at));
            (layout.flip(signed(at)).unwrap(), array)
        }
        ViewStep::Slice(ranges) => {
            let parts: Vec<SliceInfoElem> = layout
                .dims()
                .iter()
                .zip(ranges)
                .map(|(&length, &(start, end, step))| {
                    let bound = |bound: u32| {
                        let bound = bound as usize % (length + 1);
                        // Half of the bounds count from the end.
                        if bound > 0 && bound.is_multiple_of(2) {
                            bound as isize - length as isize - 1
                        } else {
                            bound as isize
                        }
                    };
                    let end = (end % 3 != 0).then(|| bound(end));
                    let start = bound(start);
                    SliceInfoElem::Slice { start, end, step }
                })
                .collect();
            let array = array.slice(parts.as_slice()).to_owned();
            (layout.slice("slice", &parts).unwrap(), array)
        }
        ViewStep::Index(at, index) if ndim > 0 && layout.dims()[at % ndim] > 0 => {
            let at = at % ndim;
            let index = index % layout.dims()[at];
            let mut parts = vec![SliceInfoElem::from(..); ndim];
            parts[at] = SliceInfoElem::Index(index as isize);
            let array = array.index_axis_move(ndarray::Axis(at), index);
            (layout.slice("slice", &parts).unwrap(), array)
        }
        ViewStep::Broadcast(at, length) if ndim > 0 && ndim < MAX_RANK => {
            let (at, length) = (at % ndim, length % 3);
            let mut dims = layout.dims().to_vec();
            if dims[at] == 1 {
                dims[at] = length;
            }
            dims.insert(0, 2);
            let wide = array.broadcast(IxDyn(&dims)).unwrap().to_owned();
            (layout.broadcast_to(&dims.into()).unwrap(), wide)
        }
        ViewStep::Windows(count, size) if ndim > 0 => {
            let count = (count % 2 + 1).min(ndim).min(MAX_RANK - ndim);
            let lead = ndim - count;
            let sizes = layout.dims()[lead..].iter();
            let sizes: Vec<usize> = sizes.map(|&length| size % (length + 1)).collect();
            let mut dims = layout.dims().to_vec();
            for (length, size) in dims[lead..].iter_mut().zip(&sizes) {
                *length = *length - size + 1;
            }
            dims.extend(&sizes);
            let windows = ArrayD::from_shape_fn(IxDyn(&dims), |index| {
                let within = |axis: usize| if axis < lead { 0 } else { index[axis + count] };
                let at: Vec<usize> = (0..ndim).map(|axis| index[axis] + within(axis)).collect();
                array[IxDyn(&at)]
            });
            (layout.windows(&sizes).unwrap(), windows)
        }
        _ => (layout, array),
    }
}

fn dims() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![4 => 1usize..5, 1 => 0usize..1], 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn views_of_views_select_what_ndarray_selects(
        dims in dims(),
        steps in proptest::collection::vec(step(), 0..6),
    ) {
        let mut array = block(&dims);
        let mut layout = Layout::contiguous(&dims.into()).unwrap();
        check(&layout);
        for step in &steps {
            if layout.len() > 2000 {
                break;
            }
            (layout, array) = apply(step, layout, array);
            prop_assert_eq!(layout.dims(), array.shape(), "after {:?}", step);
            let expected: Vec<usize> = array.iter().copied().collect();
            prop_assert_eq!(indices(&layout), expected, "after {:?}", step);
            check(&layout);
        }
    }

    #[test]
    fn a_reshape_without_a_copy_keeps_the_order(
        dims in dims(),
        steps in proptest::collection::vec(step(), 0..4),
        cuts in proptest::collection::vec(1usize..7, 0..5),
    ) {
        let mut layout = Layout::contiguous(&dims.clone().into()).unwrap();
        let mut array = block(&dims);
        for step in &steps {
            (layout, array) = apply(step, layout, array);
        }
        // The target shape has as many elements as the layout. Its lengths are factors of the
        // number of elements.
        let (mut rest, mut target) = (layout.len(), Vec::new());
        for cut in cuts {
            if rest.is_multiple_of(cut) {
                target.push(cut);
                rest /= cut;
            }
        }
        target.push(rest);
        let target = Shape::from(target);
        match layout.reshape(&target).unwrap() {
            Some(reshaped) => {
                prop_assert_eq!(reshaped.shape(), &target);
                prop_assert_eq!(indices(&reshaped), indices(&layout));
                check(&reshaped);
            }
            None => {
                let strided = find_strides(&indices(&layout), target.dims());
                prop_assert_eq!(strided, None, "{:?} to {}", layout, target);
            }
        }
    }

    #[test]
    fn shapes_broadcast_as_ndarray_has_it(left in dims(), right in dims()) {
        let (left_shape, right_shape) = (Shape::from(&left), Shape::from(&right));
        let ours = broadcast_shapes("add", &[&left_shape, &right_shape]);
        // ndarray only broadcasts an array to a given shape. So the test broadcasts each operand to
        // the common shape.
        match ours {
            Ok(common) => {
                for own in [&left, &right] {
                    prop_assert!(block(own).broadcast(IxDyn(common.dims())).is_some());
                }
                let longest = left.len().max(right.len());
                prop_assert_eq!(common.ndim(), longest);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
                let text = error.to_string();
                prop_assert!(text.contains(&left_shape.to_string()), "{}", text);
                prop_assert!(text.contains(&right_shape.to_string()), "{}", text);
                let aligned = left.iter().rev().zip(right.iter().rev());
                let clash = |(&a, &b): (&usize, &usize)| a != b && a != 1 && b != 1;
                prop_assert!(aligned.into_iter().any(clash));
            }
        }
    }
}

/// Returns the strides that produce `indices` in the shape `dims`, if they exist. The only
/// candidates are the distances from the first element to the second element of each axis.
fn find_strides(indices: &[usize], dims: &[usize]) -> Option<Vec<isize>> {
    let steps: Vec<usize> = (0..dims.len())
        .map(|axis| dims[axis + 1..].iter().product())
        .collect();
    let first = *indices.first()? as isize;
    let strides: Vec<isize> = dims
        .iter()
        .zip(steps)
        .map(|(&length, step)| {
            if length > 1 {
                indices[step] as isize - first
            } else {
                0
            }
        })
        .collect();
    let rebuilt = coordinates(dims).into_iter().map(|coordinate| {
        let steps = coordinate.iter().zip(&strides);
        first
            + steps
                .map(|(&at, &stride)| at as isize * stride)
                .sum::<isize>()
    });
    rebuilt
        .eq(indices.iter().map(|&index| index as isize))
        .then_some(strides)
}
