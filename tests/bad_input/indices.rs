//! Indices, slices and masks.

use cachescope::ErrorKind;
use cachescope::ndarray::SliceInfoElem;

use super::{ones, places, refused};

#[test]
fn indices_out_of_range() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 3]);
    let mut target = a.clone();
    for bad in [3, -4, i64::MAX, i64::MIN] {
        let indices = places(&[0, 2, bad]);
        let named = format!("index {bad} ");
        let with = |operation| [operation, &named[..], "axis 1", "[2, 3]"];
        refused(a.take(&indices, 1), KIND, &with("take"));
        let grid = indices.broadcast_to([2, 3]).unwrap();
        refused(a.gather(&grid, 1), KIND, &with("gather"));
        refused(target.scatter_add(&grid, &a, 1), KIND, &with("scatter_add"));
        refused(
            target.scatter_add(&grid, &a, -1),
            KIND,
            &with("scatter_add"),
        );
        refused(target.scatter(&grid, &a, 1), KIND, &with("scatter"));
        let number = bad.to_string();
        let says = ["bincount", &number, "from 0 to 2", "[3]"];
        refused(places(&[0, 2, bad]).bincount(3), KIND, &says);
    }
    // The valid indices before the bad index wrote nothing to `target` or to `a`, which shares the
    // memory of `target`.
    assert_eq!(target.to_vec().unwrap(), [1.0; 6]);
    target.fill(5.0).unwrap();
    let bad = places(&[0, 0, 3]).unsqueeze(0).unwrap();
    refused(target.scatter_add(&bad, &a, 1), KIND, &["index 3 "]);
    assert_eq!(target.to_vec().unwrap(), [5.0; 6]);
    assert_eq!(a.to_vec().unwrap(), [1.0; 6]);
    // An axis of length 0 has no valid index.
    let none = ones(&[2, 0]);
    refused(
        none.take(&places(&[0]), 1),
        KIND,
        &["take", "index 0 ", "axis 1", "[2, 0]"],
    );
    let zero = places(&[0]).unsqueeze(0).unwrap();
    refused(
        none.gather(&zero, 1),
        KIND,
        &["gather", "index 0 ", "axis 1", "[2, 0]"],
    );
    refused(
        places(&[0, 5]).one_hot::<f32>(5),
        KIND,
        &["one_hot", "5", "[2]"],
    );
    refused(
        places(&[0, -1]).one_hot::<f32>(5),
        KIND,
        &["one_hot", "-1", "[2]"],
    );
}

#[test]
fn slices_that_there_are_not() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[4, 3]);
    let all = SliceInfoElem::from(..);
    let slice = |start, end, step| SliceInfoElem::Slice { start, end, step };
    // ndarray's macro rejects a step of 0, but a selection can be built without the macro.
    refused(
        a.slice([slice(0, None, 0), all]),
        KIND,
        &["slice", "step", "0", "axis 0", "[4, 3]"],
    );
    refused(a.slice([all]), KIND, &["slice", "[4, 3]", "1"]);
    refused(a.slice([all, all, all]), KIND, &["slice", "[4, 3]", "3"]);
    for index in [4, -5, isize::MAX, isize::MIN] {
        let named = format!("index {index}");
        refused(
            a.slice([SliceInfoElem::Index(index), all]),
            KIND,
            &["slice", &named, "axis 0", "[4, 3]"],
        );
    }
    refused(
        a.slice([slice(0, Some(5), 1), all]),
        KIND,
        &["slice", "5", "axis 0 of length 4 of the shape [4, 3]"],
    );
    refused(
        a.slice([all, slice(-4, None, 1)]),
        KIND,
        &["slice", "-4", "axis 1 of length 3 of the shape [4, 3]"],
    );
}

#[test]
fn masks_of_another_shape() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let a = ones(&[2, 3]);
    for shape in [&[3][..], &[2, 4], &[2, 1], &[2, 3, 1]] {
        let mask = ones(shape).gt(0.0).eval().unwrap();
        let named = mask.shape();
        let named = format!("{named:?}");
        refused(a.select_by(&mask), KIND, &["select_by", &named, "[2, 3]"]);
    }
    let mut target = a.clone();
    for shape in [&[2][..], &[2, 4], &[1, 2, 3]] {
        let mask = ones(shape).gt(0.0).eval().unwrap();
        let named = format!("{shape:?}");
        let says = ["masked_assign", "mask", &named, "[2, 3]"];
        refused(target.masked_assign(&mask, 0.0), KIND, &says);
        let (mask, value) = (a.gt(0.0).eval().unwrap(), ones(shape));
        let says = ["masked_assign", "value", &named, "[2, 3]"];
        refused(target.masked_assign(&mask, &value), KIND, &says);
    }
    assert_eq!(target.to_vec().unwrap(), [1.0; 6]);
    let (short, mut target) = (ones(&[2, 5]), ones(&[2, 3]));
    let grid = places(&[0, 1]).reshape([2, 1]).unwrap();
    let says = ["scatter", "[2, 1]", "[2, 3]", "[2, 5]"];
    refused(target.scatter(&grid, &short, 1), KIND, &says);
    refused(
        target.scatter(&places(&[0]), &short, 1),
        KIND,
        &["scatter", "[1]", "[2, 3]"],
    );
}
