//! Tests of shapes, axes and slices that are out of range.

use ndarray::SliceInfoElem;

use super::super::*;
use super::{check, indices};
use crate::error::ErrorKind;

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
    // Strides are computed from the product of the lengths that are not 0. So this product must not
    // overflow, even if another length is 0.
    fails(
        Layout::contiguous(&[half, half, 0].into()),
        InvalidShape,
        "overflows",
    );
    fails(layout(&[1; 8]).unsqueeze(0), InvalidShape, "rank 9");
    let wide = Shape::from([2, 1 << 62]);
    fails(wide.size_bytes(size_of::<f32>()), InvalidShape, "overflow");
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
    // The message names the called operation and the shape before the selection.
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
    // Windows that do not overlap, single windows, and views without windows have no repeats.
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
