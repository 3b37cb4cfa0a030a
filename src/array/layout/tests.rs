//! Layouts against two oracles that know nothing of strides: a list of coordinates, and ndarray.

use std::collections::HashSet;

use ndarray::{ArrayD, IxDyn, SliceInfoElem};
use proptest::prelude::*;

use super::*;
use crate::array::shape::broadcast_shapes;
use crate::error::ErrorKind;

/// Elements of the block under test.
fn block(dims: &[usize]) -> ArrayD<usize> {
    let count = dims.iter().product();
    ArrayD::from_shape_vec(IxDyn(dims), (0..count).collect()).unwrap()
}

/// Every coordinate of a shape in row-major order.
fn coordinates(dims: &[usize]) -> Vec<Vec<usize>> {
    dims.iter().fold(vec![vec![]], |prefixes, &length| {
        let longer = |prefix: Vec<usize>| {
            (0..length).map(move |index| [prefix.as_slice(), &[index]].concat())
        };
        prefixes.into_iter().flat_map(longer).collect()
    })
}

/// The definition of a layout, coordinate by coordinate.
fn oracle(layout: &Layout) -> Vec<usize> {
    let index = |coordinate: Vec<usize>| {
        let steps = coordinate.iter().zip(layout.strides());
        let distance: isize = steps.map(|(&at, &stride)| at as isize * stride).sum();
        (layout.offset() as isize + distance) as usize
    };
    coordinates(layout.dims()).into_iter().map(index).collect()
}

fn indices(layout: &Layout) -> Vec<usize> {
    layout.indices().collect()
}

/// Checks what every layout must satisfy, whatever it is a view of.
fn check(layout: &Layout) {
    check_walk(layout);
    let expected = oracle(layout);
    assert_eq!(layout.len(), expected.len());
    assert_eq!(indices(layout), expected, "{layout:?}");
    assert_eq!(
        indices(&layout.coalesced()),
        expected,
        "{layout:?} coalesced"
    );
    let bounds = expected.iter().min().zip(expected.iter().max());
    assert_eq!(layout.bounds(), bounds.map(|(&low, &high)| (low, high)));
    let several = expected.iter().collect::<HashSet<_>>().len() < expected.len();
    assert!(layout.repeats() || !several, "{layout:?}");
    let dense: Vec<usize> = (layout.offset()..).take(expected.len()).collect();
    assert_eq!(layout.is_contiguous(), expected == dense, "{layout:?}");
    for axis in 0..=layout.ndim() {
        let (outer, inner) = layout.split_at(axis);
        let nested = outer
            .indices()
            .flat_map(|start| inner.starting_at(start).indices());
        assert_eq!(nested.collect::<Vec<_>>(), expected, "{layout:?} at {axis}");
    }
}

/// Checks what a walk over a layout and its reverse must satisfy.
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
    let walk = Walk::new([layout, &flipped]);
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

/// One step from a view to a view, with numbers that `apply` fits to the view at hand.
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

/// Takes `step` on both sides; steps that the view at hand does not allow are skipped.
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
        // A shape of the same length, by taking factors out of it.
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
        // ndarray adds what broadcasts to one of the two; the rest is checked by broadcasting both.
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

/// The strides that give `indices` in the shape `dims`, found by trying the only candidates: the
/// step to each axis's second element.
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

fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(&dims.into()).unwrap()
}

#[track_caller]
fn fails<T: std::fmt::Debug>(outcome: Result<T>, kind: ErrorKind, text: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn shapes_beyond_rank_8_or_an_address_are_invalid() {
    use ErrorKind::InvalidShape;
    assert_eq!(layout(&[1; 8]).ndim(), 8);
    fails(Layout::contiguous(&[1; 9].into()), InvalidShape, "rank 9");
    let half = 1 << 32;
    fails(
        Layout::contiguous(&[half, half].into()),
        InvalidShape,
        "overflows",
    );
    // A length of 0 does not excuse the others: their strides would overflow.
    fails(
        Layout::contiguous(&[half, half, 0].into()),
        InvalidShape,
        "overflows",
    );
    fails(layout(&[1; 8]).unsqueeze(0), InvalidShape, "rank 9");
    let wide = Shape::from([2, 1 << 62]);
    fails(wide.size_bytes::<f32>(), InvalidShape, "overflow");
    fails(
        layout(&[1]).broadcast_to(&[half, half].into()),
        InvalidShape,
        "overflows",
    );
}

#[test]
fn axes_out_of_range_are_named() {
    use ErrorKind::InvalidArgument;
    let two = layout(&[2, 3]);
    fails(two.flip(2), InvalidArgument, "flip: axis 2");
    fails(two.flip(-3), InvalidArgument, "axis -3");
    fails(two.flip(isize::MIN), InvalidArgument, "[2, 3]");
    fails(two.swap_axes(0, 2), InvalidArgument, "swap_axes");
    fails(
        two.squeeze(0),
        InvalidArgument,
        "axis 0 of the shape [2, 3] has length 2, expected 1",
    );
    fails(two.unsqueeze(3), InvalidArgument, "unsqueeze");
    fails(two.unsqueeze(-4), InvalidArgument, "unsqueeze");
    fails(two.permute(&[0]), InvalidArgument, "permute");
    fails(two.permute(&[0, 0]), InvalidArgument, "permute");
    fails(two.permute(&[0, 2]), InvalidArgument, "permute");
    fails(layout(&[]).flip(0), InvalidArgument, "rank 0");
}

#[test]
fn slices_out_of_range_are_named() {
    use ErrorKind::InvalidArgument;
    let two = layout(&[2, 3]);
    let range = |start, end, step| [SliceInfoElem::Slice { start, end, step }, (..).into()];
    fails(
        two.slice("slice", &[(..).into()]),
        InvalidArgument,
        "slice: the selection names 1 axis, the shape [2, 3] has 2: write `..`",
    );
    fails(
        two.slice("slice", &range(0, None, 0)),
        InvalidArgument,
        "slice: the step of axis 0 of the shape [2, 3] is 0",
    );
    fails(
        two.slice("slice", &range(3, None, 1)),
        InvalidArgument,
        "slice: the bound 3 is out of range for axis 0 of length 2 of the shape [2, 3]",
    );
    // The message has the shape before the selection, and the name of the operation called.
    fails(
        two.slice("slice_mut", &[(0..1).into(), 3.into()]),
        InvalidArgument,
        "slice_mut: the index 3 is out of range for axis 1 of length 3 of the shape [2, 3]",
    );
    fails(
        two.slice("slice", &range(0, Some(-3), 1)),
        InvalidArgument,
        "bound -3",
    );
    fails(
        two.slice("slice", &[2.into(), (..).into()]),
        InvalidArgument,
        "index 2",
    );
    fails(
        two.slice("slice", &[isize::MIN.into(), (..).into()]),
        InvalidArgument,
        "index",
    );
    let steps = two.slice("slice", &range(0, None, isize::MIN)).unwrap();
    assert_eq!(steps.dims(), [1, 3]);
    check(&steps);
}

#[test]
fn slicing_takes_indices_out_and_puts_axes_in_at_rank_8() {
    let eight = layout(&[2; 8]);
    let mut parts = vec![SliceInfoElem::from(..); 8];
    parts[7] = 1.into();
    parts.insert(0, SliceInfoElem::NewAxis);
    let sliced = eight.slice("slice", &parts).unwrap();
    assert_eq!(sliced.dims(), [1, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(sliced.offset(), 1);
    check(&sliced);
    parts.push(SliceInfoElem::NewAxis);
    fails(
        eight.slice("slice", &parts),
        ErrorKind::InvalidShape,
        "rank 9",
    );
}

#[test]
fn shapes_that_do_not_fit_are_both_named() {
    let two = layout(&[2, 3]);
    fails(
        two.broadcast_to(&[3, 2].into()),
        ErrorKind::ShapeMismatch,
        "[2, 3]",
    );
    fails(
        two.broadcast_to(&[3].into()),
        ErrorKind::ShapeMismatch,
        "[3]",
    );
    fails(
        two.reshape(&[4].into()),
        ErrorKind::InvalidShape,
        "[2, 3] of 6",
    );
}

#[test]
fn elements_in_several_places_are_found() {
    let x = layout(&[4, 6]);
    let windows = x.windows(&[2, 3]).unwrap();
    assert_eq!(windows.dims(), [3, 4, 2, 3]);
    assert!(windows.repeats());
    check(&windows);
    assert!(windows.transpose().repeats());
    assert!(
        x.unsqueeze(1)
            .unwrap()
            .broadcast_to(&[4, 2, 6].into())
            .unwrap()
            .repeats()
    );
    // Windows that do not overlap, and no more than one window.
    let apart = x.windows_apart(&[2, 3], &[2, 3], &[1, 1]).unwrap();
    assert_eq!(apart.dims(), [2, 2, 2, 3]);
    for once in [
        apart,
        apart.transpose(),
        x.windows(&[4, 6]).unwrap(),
        x.transpose(),
        x.flip(1).unwrap(),
    ] {
        assert!(!once.repeats(), "{once:?}");
        check(&once);
    }
}

#[test]
fn windows_reach_as_far_as_their_steps() {
    let x = layout(&[2, 9]);
    let windows = x.windows_apart(&[3], &[2], &[3]).unwrap();
    assert_eq!(windows.dims(), [2, 2, 3]);
    assert_eq!(indices(&windows), [0, 3, 6, 2, 5, 8, 9, 12, 15, 11, 14, 17]);
    check(&windows);
    use ErrorKind::InvalidArgument;
    fails(
        x.windows(&[10]),
        InvalidArgument,
        "length 10 is longer than axis 1 of length 9 of the shape [2, 9]",
    );
    fails(x.windows(&[3, 1]), InvalidArgument, "axis 0 of length 2");
    fails(
        x.windows(&[1, 1, 1]),
        InvalidArgument,
        "the 3 sizes [1, 1, 1] are more than the 2 axes of the shape [2, 9]",
    );
    fails(
        layout(&[1; 5]).windows(&[1; 4]),
        ErrorKind::InvalidShape,
        "rank 9",
    );
    let wide = layout(&[1]).broadcast_to(&[1 << 40].into()).unwrap();
    fails(
        wide.windows(&[1 << 39]),
        ErrorKind::InvalidShape,
        "windows: the size",
    );
}

#[test]
fn foreign_strides_begin_at_the_lowest_index() {
    let strided = |shape: &[usize], strides: &[isize]| Layout::strided(&shape.into(), strides);
    let x = strided(&[2, 3], &[-4, 1]).unwrap();
    assert_eq!(indices(&x), [4, 5, 6, 0, 1, 2]);
    assert_eq!((x.offset(), x.bounds()), (4, Some((0, 6))));
    check(&x);
    assert_eq!(strided(&[2, 3], &[3, 1]).unwrap(), layout(&[2, 3]));
    assert_eq!(strided(&[0, 3], &[isize::MIN, 1]).unwrap(), layout(&[0, 3]));
    let single = strided(&[1, 3], &[isize::MIN, -1]).unwrap();
    assert_eq!(single.strides(), [3, -1]);
    check(&single);
    let far = isize::MAX / 2;
    assert!(strided(&[2, 2], &[far, 0]).is_ok());
    for strides in [
        [isize::MIN, 0],
        [isize::MAX, 0],
        [far, far],
        [far, -far],
        [-far, -far],
    ] {
        fails(
            strided(&[2, 3], &strides),
            ErrorKind::InvalidShape,
            "overflows",
        );
    }
}
