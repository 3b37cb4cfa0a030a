//! Shapes, axes and devices that do not match.

use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, ErrorKind, INFER, concat, select, stack};

use super::{ones, places, refused};

#[test]
fn shapes_that_do_not_match() {
    const KIND: ErrorKind = ErrorKind::ShapeMismatch;
    let (a, b) = (ones(&[2, 3]), ones(&[2, 4]));
    let both = ["[2, 3]", "[2, 4]"];
    let with = |operation| [operation, both[0], both[1]];
    refused((&a + &b).eval(), KIND, &with("add"));
    refused((&a - &b).eval(), KIND, &with("sub"));
    refused((&a * &b).eval(), KIND, &with("mul"));
    refused((&a / &b).eval(), KIND, &with("div"));
    refused((&a % &b).eval(), KIND, &with("rem"));
    refused(a.maximum(&b).eval(), KIND, &with("maximum"));
    refused(a.minimum(&b).eval(), KIND, &with("minimum"));
    refused(a.lazy().eq(&b).eval(), KIND, &with("eq"));
    refused(a.lt(&b).eval(), KIND, &with("lt"));
    refused(select(a.gt(0.0), &a, &b).eval(), KIND, &with("select"));
    refused(select(b.gt(0.0), &a, 0.0).eval(), KIND, &with("select"));
    // The error names the first mismatch, not the operation around it.
    refused(((&a + &b) * ones(&[7])).exp().eval(), KIND, &with("add"));
    refused((&a + &b).sum(), KIND, &with("add"));
    refused((&a + &b).max_axis(0), KIND, &with("add"));
    refused(a.clone().assign(&b), KIND, &with("assign"));
    refused(a.clone().update(|a| a + &b), KIND, &with("add"));
    // `assign` does not broadcast its target.
    refused(ones(&[3]).assign(&a), KIND, &["assign", "[2, 3]", "[3]"]);

    refused(a.matmul(&b), KIND, &with("matmul"));
    refused(a.matmul(&ones(&[])), KIND, &["matmul", "[2, 3]", "[]"]);
    refused(a.dot(&ones(&[3])), KIND, &["dot", "[2, 3]", "[3]"]);
    refused(ones(&[3]).dot(&ones(&[4])), KIND, &["dot", "[3]", "[4]"]);
    refused(a.outer(&ones(&[3])), KIND, &["outer", "[2, 3]", "[3]"]);
    let (many, few) = (ones(&[3, 2, 3]), ones(&[2, 3, 4]));
    refused(
        many.matmul(&few),
        KIND,
        &["matmul", "[3, 2, 3]", "[2, 3, 4]"],
    );
    refused(a.broadcast_to([2, 4]), KIND, &with("broadcast_to"));
    refused(concat(&[&a, &b], 0), KIND, &with("concat"));
    refused(
        concat(&[&a, &ones(&[3])], 0),
        KIND,
        &["concat", "[2, 3]", "[3]"],
    );
    refused(stack(&[&a, &b], 0), KIND, &with("stack"));
    let indices = Array::<i64>::zeros([2, 5]).unwrap();
    refused(
        a.gather(&places(&[0]), 0),
        KIND,
        &["gather", "[2, 3]", "[1]"],
    );
    refused(a.gather(&indices, 0), KIND, &["gather", "[2, 3]", "[2, 5]"]);
    refused(
        a.clone().scatter_add(&indices, &a, 0),
        KIND,
        &["scatter_add", "[2, 3]", "[2, 5]"],
    );
    // The indices fit the target. The source fits neither the indices nor the target.
    let source = a.clone().scatter_add(&indices, &b, 1);
    refused(source, KIND, &["scatter_add", "[2, 3]", "[2, 5]", "[2, 4]"]);
}

#[test]
fn axes_out_of_range() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 3]);
    let indices = places(&[0]);
    for axis in [2, -3, isize::MAX, isize::MIN] {
        let named = format!("axis {axis}");
        let with = |operation| [operation, &named[..], "[2, 3]"];
        refused(a.sum_axis(axis), KIND, &with("sum"));
        refused(a.mean_axis(axis), KIND, &with("mean"));
        refused(a.max_axis(axis), KIND, &with("max"));
        refused(a.min_axis(axis), KIND, &with("min"));
        refused(a.argmax_axis(axis), KIND, &with("argmax"));
        refused(a.argmin_axis(axis), KIND, &with("argmin"));
        refused(a.lazy().exp().sum_axis(axis), KIND, &with("sum"));
        refused(a.flip(axis), KIND, &with("flip"));
        refused(a.squeeze(axis), KIND, &with("squeeze"));
        refused(a.swap_axes(0, axis), KIND, &with("swap_axes"));
        refused(a.swap_axes(axis, 0), KIND, &with("swap_axes"));
        refused(a.take(&indices, axis), KIND, &with("take"));
        refused(concat(&[&a, &a], axis), KIND, &with("concat"));
        let grid = indices.unsqueeze(0).unwrap();
        refused(a.gather(&grid, axis), KIND, &with("gather"));
        refused(
            a.clone().scatter_add(&grid, &a, axis),
            KIND,
            &with("scatter_add"),
        );
        refused(a.split(1, axis), KIND, &with("split"));
        refused(a.repeat(2, axis), KIND, &with("repeat"));
        refused(a.sort(axis), KIND, &with("sort"));
        refused(a.argsort(axis), KIND, &with("argsort"));
        refused(a.topk(1, axis), KIND, &with("topk"));
    }
    // An insertion also accepts the axis after the last axis.
    for axis in [3, -4] {
        refused(
            a.unsqueeze(axis),
            KIND,
            &["unsqueeze", &format!("axis {axis}"), "[2, 3]"],
        );
    }
    for axis in [3, -4] {
        refused(
            stack(&[&a, &a], axis),
            KIND,
            &["stack", &format!("axis {axis}")],
        );
    }
    refused(a.permute(&[0, 2]), KIND, &["permute", "[2, 3]", "2"]);
    refused(a.permute(&[1, 1]), KIND, &["permute", "[2, 3]", "[1, 1]"]);
    refused(a.permute(&[0]), KIND, &["permute", "[2, 3]", "[0]"]);
    // An array without axes has no valid axis.
    let scalar = ones(&[]);
    refused(scalar.sum_axis(0), KIND, &["sum", "axis 0", "[]"]);
    refused(scalar.sum_axis(-1), KIND, &["sum", "axis -1", "[]"]);
    // The axis is valid, but its length is not 1.
    refused(a.squeeze(1), KIND, &["squeeze", "axis 1", "[2, 3]"]);
}

#[test]
fn arrays_of_two_devices() {
    const KIND: ErrorKind = ErrorKind::DeviceMismatch;
    let other = Device::host_with(DeviceConfig::default()).unwrap();
    let mut a = ones(&[2, 2]);
    let b = a.to_device(&other).unwrap();
    let with = |operation| [operation, "[2, 2]", "[3]", "host"];
    let c = ones(&[3]).to_device(&other).unwrap();
    let d = ones(&[2, 2, 1]).to_device(&other).unwrap();
    refused((&a + &b).eval(), KIND, &["add", "[2, 2]", "host"]);
    refused(
        (&a + &d).eval(),
        KIND,
        &["add: the left operand [2, 2] is on", "[2, 2, 1]", "host"],
    );
    refused(
        (&a + &d).sum(),
        KIND,
        &["add: the left operand [2, 2] is on", "[2, 2, 1]", "host"],
    );
    refused(
        (&a + &d).max_axis(0),
        KIND,
        &["add: the left operand [2, 2] is on", "[2, 2, 1]", "host"],
    );
    refused(
        select(a.gt(0.0), &a, &d).eval(),
        KIND,
        &["select", "the third operand [2, 2, 1] on", "host"],
    );
    refused(a.assign(&b), KIND, &["assign", "[2, 2]", "host"]);
    refused(a.matmul(&b), KIND, &["matmul", "[2, 2]", "host"]);
    refused(c.dot(&ones(&[3])), KIND, &["dot", "[3]", "host"]);
    refused(c.outer(&ones(&[3])), KIND, &["outer", "[3]", "host"]);
    let there = places(&[0, 0, 0]).to_device(&other).unwrap();
    refused(a.take(&there, 0), KIND, &with("take"));
    let square = there.slice(s![..1]).unwrap().unsqueeze(0).unwrap();
    refused(
        a.gather(&square, 0),
        KIND,
        &["gather", "[2, 2]", "[1, 1]", "host"],
    );
    refused(
        a.scatter_add(&square, &b, 0),
        KIND,
        &["scatter_add", "[1, 1]", "host"],
    );
    let here = places(&[0]).unsqueeze(0).unwrap();
    refused(
        a.scatter_add(&here, &b, 0),
        KIND,
        &["scatter_add", "[2, 2]", "host"],
    );
    refused(concat(&[&a, &b], 0), KIND, &["concat", "[2, 2]", "host"]);
    refused(stack(&[&a, &b], 0), KIND, &["stack", "[2, 2]", "host"]);
    assert_eq!(a.to_vec().unwrap(), [1.0; 4]);
}

#[test]
fn other_lengths() {
    const KIND: ErrorKind = ErrorKind::InvalidShape;
    let a = ones(&[2, 3]);
    refused(
        a.reshape([4, 2]),
        KIND,
        &["reshape", "[2, 3]", "6", "[4, 2]", "8"],
    );
    refused(a.reshape([0]), KIND, &["reshape", "[2, 3]", "[0]"]);
    refused(a.reshape([7]), KIND, &["reshape", "[2, 3]", "[7]"]);
    refused(ones(&[0]).reshape([]), KIND, &["reshape", "[0]", "[]"]);
    refused(
        a.transpose().unwrap().reshape([5]),
        KIND,
        &["reshape", "[3, 2]", "[5]"],
    );
    refused(
        a.reshape([usize::MAX - 1, 2]),
        KIND,
        &["reshape", "[18446744073709551614, 2]"],
    );
    refused(
        Array::from_vec(vec![1, 2], [3]),
        KIND,
        &["2 elements", "[3]"],
    );
    refused(a.item(), KIND, &["item", "[2, 3]", "6 elements"]);
}

#[test]
fn ranks_above_eight() {
    const KIND: ErrorKind = ErrorKind::InvalidShape;
    // An error prints at most as many axes as an array may have.
    let words = ["[1, 1, 1, 1, 1, 1, 1, 1, …]", "rank 9"];
    let with = |operation| [operation, words[0], words[1]];
    refused(Array::<f32>::zeros([1; 9]), KIND, &words);
    refused(Array::<f32>::full([1; 9], 1.0), KIND, &words);
    refused(Array::<f32>::rand([1; 9]), KIND, &words);
    refused(Array::from_vec(vec![1], [1; 9]), KIND, &words);
    let eight = ones(&[1; 8]);
    refused(eight.reshape([1; 9]), KIND, &with("reshape"));
    refused(eight.broadcast_to([1; 9]), KIND, &with("broadcast_to"));
    refused(eight.unsqueeze(0), KIND, &with("unsqueeze"));
    let indices = Array::<i64>::zeros([1, 1]).unwrap();
    refused(eight.take(&indices, 0), KIND, &words);
    refused(Array::<u8>::zeros(vec![1; 300]), KIND, &["rank 300"]);
}

#[test]
fn lengths_that_cannot_be_inferred() {
    const KIND: ErrorKind = ErrorKind::InvalidShape;
    let a = ones(&[2, 3]);
    refused(
        a.reshape([INFER, 2, INFER]),
        KIND,
        &["reshape", "[INFER, 2, INFER]", "axes 0 and 2"],
    );
    refused(
        a.reshape([4, INFER]),
        KIND,
        &["reshape", "[4, INFER]", "axis 1", "6", "4"],
    );
    refused(
        ones(&[0, 3]).reshape([0, INFER]),
        KIND,
        &["reshape", "[0, INFER]"],
    );
    refused(
        a.reshape([INFER, 1, 1, 1, 1, 1, 1, 1, 1]),
        KIND,
        &["reshape", "rank 9"],
    );
    refused(
        a.reshape([INFER, usize::MAX - 1, 2]),
        KIND,
        &["reshape", "overflows"],
    );
    refused(Array::<f32>::zeros([INFER]), KIND, &["overflows"]);
    refused(Array::<f32>::zeros([0, INFER]), KIND, &["overflows"]);
    refused(
        ones(&[1]).broadcast_to([INFER]),
        KIND,
        &["broadcast_to", "overflows"],
    );
}
