//! Bad input, one test a kind: every operation that can be given it answers with an error of the
//! right kind that names the operation, the shapes and what is wrong with them, and never panics.

use std::panic::Location;

use cachescope::ndarray::{SliceInfoElem, s};
use cachescope::{
    Array, ConvOptions, Device, DeviceConfig, ErrorKind, INFER, PadMode, Result, concat, meshgrid,
    select, stack,
};

/// Holds that a call failed with this kind, and that its message has all of these words.
#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, words: &[&str]) {
    let error = result.err().expect("that is no input for it");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    let (here, told) = (Location::caller(), error.location());
    let is_here =
        |told: &Location<'_>| told.file() == here.file() && told.line().abs_diff(here.line()) < 12;
    assert!(
        told.is_some_and(is_here),
        "not {here}, but {told:?}: {text}"
    );
    assert!(text.contains(&format!(" at {}", told.unwrap())), "{text}");
    for word in words {
        assert!(text.contains(word), "\"{word}\" is missing in: {text}");
    }
}

fn ones(shape: &[usize]) -> Array<f32> {
    Array::ones(shape).unwrap()
}

fn places(values: &[i64]) -> Array<i64> {
    Array::from_slice(values, values.len()).unwrap()
}

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
    // The first of several, and wherever the expression ends up.
    refused(((&a + &b) * ones(&[7])).exp().eval(), KIND, &with("add"));
    refused((&a + &b).sum(), KIND, &with("add"));
    refused((&a + &b).max_axis(0), KIND, &with("add"));
    refused(a.clone().assign(&b), KIND, &with("assign"));
    refused(a.clone().update(|a| a + &b), KIND, &with("add"));
    // A target does not grow.
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
    // The indices go with the target, and the source with neither.
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
    // A new axis may stand one further on.
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
    // What has no axes has none to name.
    let scalar = ones(&[]);
    refused(scalar.sum_axis(0), KIND, &["sum", "axis 0", "[]"]);
    refused(scalar.sum_axis(-1), KIND, &["sum", "axis -1", "[]"]);
    // An axis that is there, but no axis to squeeze.
    refused(a.squeeze(1), KIND, &["squeeze", "axis 1", "[2, 3]"]);
}

#[test]
fn reductions_of_nothing() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 0]);
    refused(a.max(), KIND, &["max", "[2, 0]"]);
    refused(a.min(), KIND, &["min", "[2, 0]"]);
    refused(a.argmax(), KIND, &["argmax", "[2, 0]"]);
    refused(a.argmin(), KIND, &["argmin", "[2, 0]"]);
    refused(a.max_axis(1), KIND, &["max", "[2, 0]"]);
    refused(a.min_axis(-1), KIND, &["min", "[2, 0]"]);
    refused(a.argmax_axis(1), KIND, &["argmax", "[2, 0]"]);
    refused(a.argmin_axis(1), KIND, &["argmin", "[2, 0]"]);
    refused((&a + 1.0).max(), KIND, &["max", "[2, 0]"]);
    // Along the other axis there is nothing to be found, and that is what is found.
    assert_eq!(a.max_axis(0).unwrap().shape(), [0]);
    assert_eq!(a.argmin_axis(0).unwrap().shape(), [0]);
    // What has an identity gives it.
    assert_eq!(a.sum_axis(1).unwrap().to_vec().unwrap(), [0.0, 0.0]);
    assert!(a.mean().unwrap().item().unwrap().is_nan());
}

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
        let says = ["bincount", &number, "below 3", "[3]"];
        refused(places(&[0, 2, bad]).bincount(3), KIND, &says);
    }
    // The good ones before the bad one wrote nothing, neither here nor in the handle beside it.
    assert_eq!(target.to_vec().unwrap(), [1.0; 6]);
    target.fill(5.0).unwrap();
    let bad = places(&[0, 0, 3]).unsqueeze(0).unwrap();
    refused(target.scatter_add(&bad, &a, 1), KIND, &["index 3 "]);
    assert_eq!(target.to_vec().unwrap(), [5.0; 6]);
    assert_eq!(a.to_vec().unwrap(), [1.0; 6]);
    // Of no elements none can be taken.
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
fn integers_divided_by_zero_give_zero() {
    macro_rules! check {
        ($($type:ident)+) => {
            $(
                let values = [0, 1, 7, $type::MAX, $type::MIN, $type::MIN + 1];
                let a = Array::from_slice(&values, 6).unwrap();
                let none = Array::<$type>::zeros(6).unwrap();
                for gone in [
                    (&a / &none).eval(), (&a % &none).eval(), (&a / 0).eval(), (&a % 0).eval(),
                    (1 / &none).eval(), (1 % &none).eval(),
                    a.lazy().eval().and_then(|mut a| a.update(|a| a / &none).map(|()| a)),
                ] {
                    assert_eq!(gone.unwrap().to_vec().unwrap(), [0; 6], stringify!($type));
                }
                assert_eq!((&a / &none).sum().unwrap().item().unwrap(), 0);
            )+
        };
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
    macro_rules! lowest {
        ($($type:ident)+) => {
            $(
                // One element, and more than are worked on at once.
                for length in [1, 5000] {
                    let a = Array::full(length, $type::MIN).unwrap();
                    let quotients = (&a / -1).eval().unwrap().to_vec().unwrap();
                    assert_eq!(quotients, vec![$type::MIN; length]);
                    #[expect(clippy::modulo_one, reason = "it is what must not panic")]
                    let rests = (&a % -1).eval().unwrap().to_vec().unwrap();
                    assert_eq!(rests, vec![0; length]);
                }
            )+
        };
    }
    lowest!(i8 i16 i32 i64);
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
    refused((&a + &b).eval(), KIND, &["[2, 2]", "host"]);
    refused(
        (&a + &d).eval(),
        KIND,
        &["eval", "[2, 2]", "[2, 2, 1]", "host"],
    );
    refused(
        (&a + &d).sum(),
        KIND,
        &["sum", "[2, 2]", "[2, 2, 1]", "host"],
    );
    refused(
        (&a + &d).max_axis(0),
        KIND,
        &["max", "[2, 2]", "[2, 2, 1]", "host"],
    );
    refused(
        select(a.gt(0.0), &a, &d).eval(),
        KIND,
        &["[2, 2, 1]", "host"],
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
    // An error does not print more axes than there may be.
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
    // More axes than anybody counts.
    refused(Array::<u8>::zeros(vec![1; 300]), KIND, &["rank 300"]);
}

#[test]
fn slices_that_there_are_not() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[4, 3]);
    let all = SliceInfoElem::from(..);
    let slice = |start, end, step| SliceInfoElem::Slice { start, end, step };
    // ndarray's macro has no such step, but a selection can be made without it.
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
        &["slice", "5", "axis 0", "[4, 3]"],
    );
    refused(
        a.slice([all, slice(-4, None, 1)]),
        KIND,
        &["slice", "-4", "axis 1", "[4, 3]"],
    );
}

#[test]
fn counts_that_make_no_sense() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    refused(Array::arange(0, 10, 0), KIND, &["arange", "0", "10"]);
    refused(Array::arange(0.0, f64::NAN, 1.0), KIND, &["arange", "NaN"]);
    refused(concat::<f32>(&[], 0), KIND, &["concat"]);
    refused(stack::<f32>(&[], 0), KIND, &["stack"]);
    let a = ones(&[2, 3]);
    refused(a.split(2, 1), KIND, &["split", "2", "axis 1", "[2, 3]"]);
    refused(a.split(0, 1), KIND, &["split", "0", "axis 1", "[2, 3]"]);
    refused(a.topk(4, 1), KIND, &["topk", "4", "axis 1", "[2, 3]"]);
    refused(a.pad(&[(1, 1)], 0.0), KIND, &["pad", "(1, 1)", "[2, 3]"]);
    refused(ones(&[3]).tril(0), KIND, &["tril", "[3]"]);
    refused(ones(&[]).triu(0), KIND, &["triu", "[]"]);
    refused(ones(&[2, 2, 2]).diag(0), KIND, &["diag", "[2, 2, 2]"]);
    let huge = ErrorKind::InvalidShape;
    refused(
        a.repeat(usize::MAX, 0),
        huge,
        &["18446744073709551615", "overflow"],
    );
    refused(a.pad(&[(0, usize::MAX), (0, 0)], 0.0), huge, &["overflow"]);
    refused(ones(&[3]).diag(isize::MIN), huge, &["overflow"]);
    refused(
        Array::<f64>::zeros([usize::MAX, 2]),
        ErrorKind::InvalidShape,
        &["[18446744073709551615, 2]", "overflow"],
    );
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

#[test]
fn windows_that_do_not_fit() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 3]);
    refused(
        a.windows(&[4]),
        KIND,
        &["windows", "4", "axis 1", "3", "[2, 3]"],
    );
    refused(
        a.windows(&[3, 1]),
        KIND,
        &["windows", "3", "axis 0", "2", "[2, 3]"],
    );
    refused(
        a.windows(&[1, 1, 1]),
        KIND,
        &["windows", "[1, 1, 1]", "[2, 3]"],
    );
    refused(
        ones(&[1; 6]).windows(&[1; 3]),
        ErrorKind::InvalidShape,
        &["windows", "rank 9"],
    );
    let wide = ones(&[1]).broadcast_to([1 << 40]).unwrap();
    refused(
        wide.windows(&[1 << 39]),
        ErrorKind::InvalidShape,
        &["windows"],
    );

    let image = ones(&[1, 4, 5]);
    // Not a function, so that errors have the lines of the calls.
    macro_rules! pools {
        ($($name:ident)+) => {
            $(
                let name = stringify!($name);
                refused(image.$name([5, 1], [1, 1]), KIND, &[name, "[5, 1]", "[1, 4, 5]"]);
                refused(image.$name([1, 6], [1, 1]), KIND, &[name, "[1, 6]", "[1, 4, 5]"]);
                refused(image.$name([0, 1], [1, 1]), KIND, &[name, "[0, 1]", "0"]);
                refused(image.$name([2, 2], [1, 0]), KIND, &[name, "[1, 0]", "0"]);
                refused(a.$name([1, 1], [1, 1]), KIND, &[name, "[2, 3]", "[N, C, H, W]"]);
                let five = ones(&[1; 5]);
                refused(five.$name([1, 1], [1, 1]), KIND, &[name, "[1, 1, 1, 1, 1]"]);
            )+
        };
    }
    pools!(max_pool2d avg_pool2d);
}

#[test]
fn margins_and_grids_that_there_are_not() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 0]);
    for mode in [PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
        refused(
            a.pad_with(&[(0, 0), (1, 0)], mode),
            KIND,
            &["pad_with", "[2, 0]", "axis 1", "(1, 0)"],
        );
        refused(
            a.pad_with(&[(1, 1)], mode),
            KIND,
            &["pad_with", "(1, 1)", "[2, 0]"],
        );
        let far = [(0, usize::MAX), (0, 0)];
        refused(
            a.pad_with(&far, mode),
            ErrorKind::InvalidShape,
            &["pad_with", "overflow"],
        );
        assert_eq!(a.pad_with(&[(1, 2), (0, 0)], mode).unwrap().shape(), [5, 0]);
    }
    let constant = a
        .pad_with(&[(0, 0), (1, 2)], PadMode::Constant(2.0))
        .unwrap();
    assert_eq!(constant.to_vec().unwrap(), [2.0; 6]);
    refused(
        a.pad_with(&[(1, 1)], PadMode::Constant(0.0)),
        KIND,
        &["pad_with", "(1, 1)", "[2, 0]"],
    );
    let v = ones(&[3]);
    refused(
        meshgrid(&[&v, &a]),
        KIND,
        &["meshgrid", "array 1", "[2, 0]"],
    );
    refused(
        meshgrid(&[&v; 9]),
        ErrorKind::InvalidShape,
        &["meshgrid", "rank 9"],
    );
    let wide = ones(&[1]).broadcast_to([1 << 40]).unwrap();
    refused(
        meshgrid(&[&wide, &wide]),
        ErrorKind::InvalidShape,
        &["meshgrid"],
    );
    assert!(meshgrid::<f32>(&[]).unwrap().is_empty());
    refused(a.roll(1, 2), KIND, &["roll", "axis 2", "[2, 0]"]);
    refused(a.diff(-3), KIND, &["diff", "axis -3", "[2, 0]"]);
    refused(
        Array::from_fn([1; 9], |_| 0.0),
        ErrorKind::InvalidShape,
        &["rank 9"],
    );
}

#[test]
fn kernels_that_do_not_fit() {
    const MISMATCH: ErrorKind = ErrorKind::ShapeMismatch;
    const INVALID: ErrorKind = ErrorKind::InvalidArgument;
    let x = ones(&[1, 4, 5, 6]);
    // Not a closure, so that errors have the lines of the calls.
    macro_rules! with {
        ($shape:expr, $options:expr) => {
            x.conv2d(&ones($shape), $options)
        };
    }
    let plain = ConvOptions::default();
    let both = |kernel| ["conv2d", "[1, 4, 5, 6]", kernel];
    refused(with!(&[2, 3, 3, 3], plain), MISMATCH, &both("[2, 3, 3, 3]"));
    refused(with!(&[4, 3, 3], plain), MISMATCH, &both("[4, 3, 3]"));
    refused(
        ones(&[4, 5, 6]).conv2d(&ones(&[2, 4, 3, 3]), plain),
        MISMATCH,
        &["[4, 5, 6]", "4 axes"],
    );
    refused(with!(&[2, 4, 6, 3], plain), INVALID, &both("[2, 4, 6, 3]"));
    refused(with!(&[2, 4, 3, 7], plain), INVALID, &both("[2, 4, 3, 7]"));
    refused(with!(&[2, 4, 0, 3], plain), INVALID, &both("[2, 4, 0, 3]"));
    let dilated = ConvOptions {
        dilation: [3, 1],
        ..plain
    };
    refused(
        with!(&[2, 4, 3, 3], dilated),
        INVALID,
        &["[2, 4, 3, 3]", "7", "5"],
    );
    assert!(
        with!(
            &[2, 4, 3, 3],
            ConvOptions {
                padding: [1, 0],
                ..dilated
            }
        )
        .is_ok()
    );
    let grouped = |groups| ConvOptions { groups, ..plain };
    refused(
        with!(&[2, 4, 3, 3], grouped(2)),
        MISMATCH,
        &["[2, 4, 3, 3]", "2 groups"],
    );
    refused(
        with!(&[3, 2, 3, 3], grouped(2)),
        INVALID,
        &["[3, 2, 3, 3]", "2 groups"],
    );
    refused(
        with!(&[2, 4, 3, 3], grouped(0)),
        INVALID,
        &["[2, 4, 3, 3]", "0 groups"],
    );
    let wrapping = grouped(usize::MAX / 2 + 1);
    refused(with!(&[0, 4, 3, 3], wrapping), MISMATCH, &["[0, 4, 3, 3]"]);
    for zero in [
        ConvOptions {
            stride: [0, 1],
            ..plain
        },
        ConvOptions {
            dilation: [1, 0],
            ..plain
        },
    ] {
        refused(with!(&[2, 4, 3, 3], zero), INVALID, &["[2, 4, 3, 3]", "0"]);
    }
    let huge = ConvOptions {
        padding: [usize::MAX / 2, 0],
        ..plain
    };
    refused(
        with!(&[2, 4, 3, 3], huge),
        ErrorKind::InvalidShape,
        &["conv2d"],
    );
    let huge = ConvOptions {
        dilation: [usize::MAX; 2],
        ..plain
    };
    refused(
        with!(&[2, 4, 3, 3], huge),
        INVALID,
        &["conv2d", "[2, 4, 3, 3]"],
    );
    let far = ConvOptions {
        stride: [usize::MAX; 2],
        dilation: [1, usize::MAX],
        ..plain
    };
    assert_eq!(with!(&[2, 4, 3, 1], far).unwrap().shape(), [1, 2, 1, 1]);

    let line = ones(&[1, 4, 5]);
    macro_rules! with {
        ($shape:expr, $options:expr) => {
            line.conv1d(&ones($shape), $options)
        };
    }
    let both = |kernel| ["conv1d", "[1, 4, 5]", kernel];
    refused(with!(&[2, 3, 3], plain), MISMATCH, &both("[2, 3, 3]"));
    refused(with!(&[2, 4, 6], plain), INVALID, &both("[2, 4, 6]"));
    refused(with!(&[2, 4, 1, 3], plain), MISMATCH, &both("[2, 4, 1, 3]"));
    // The first entries are of an axis that there is not.
    let rows = ConvOptions {
        stride: [0, 1],
        padding: [9, 0],
        dilation: [0, 1],
        groups: 1,
    };
    assert_eq!(with!(&[2, 4, 3], rows).unwrap().shape(), [1, 2, 3]);
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

#[test]
fn order_statistics_that_there_are_not() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 3]);
    for q in [-0.1, 1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let named = q.to_string();
        refused(a.quantile(q, 0), KIND, &["quantile", &named, "from 0 to 1"]);
    }
    let none = ones(&[2, 0]);
    refused(none.median(1), KIND, &["median", "nothing", "[2, 0]"]);
    refused(
        none.quantile(0.5, -1),
        KIND,
        &["quantile", "nothing", "[2, 0]"],
    );
    assert_eq!(none.median(0).unwrap().shape(), [0]);
    refused(a.median(2), KIND, &["median", "axis 2", "[2, 3]"]);
    refused(
        a.quantile(0.5, -3),
        KIND,
        &["quantile", "axis -3", "[2, 3]"],
    );
    refused(a.cumprod(2), KIND, &["cumprod", "axis 2", "[2, 3]"]);
    refused(
        a.searchsorted(&a),
        KIND,
        &["searchsorted", "[2, 3]", "one axis"],
    );
    refused(ones(&[]).searchsorted(&a), KIND, &["searchsorted", "[]"]);
}

#[test]
fn histograms_of_what_has_no_range() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    refused(
        ones(&[2, 3]).histogram(0),
        KIND,
        &["histogram", "0 bins", "[2, 3]"],
    );
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let x = Array::from_slice(&[1.0, odd, 2.0], 3).unwrap();
        let named = odd.to_string();
        refused(x.histogram(4), KIND, &["histogram", "[3]", &named]);
    }
    let near = Array::from_slice(&[1.0, 1.0 + f32::EPSILON], 2).unwrap();
    refused(near.histogram(10), KIND, &["histogram", "10 bins", "f32"]);
    let most = ones(&[1]).histogram(usize::MAX);
    refused(most, ErrorKind::InvalidShape, &["histogram"]);
    let most = places(&[0]).bincount(usize::MAX);
    refused(most, ErrorKind::InvalidShape, &[]);
    refused(places(&[0]).bincount(0), KIND, &["bincount", "[1]"]);
}

#[cfg(feature = "linalg")]
mod matrices {
    use cachescope::linalg::{self, MatrixNorm};
    use cachescope::{Array, ErrorKind};

    use super::{ones, refused};

    const KIND: ErrorKind = ErrorKind::InvalidArgument;

    fn matrix(elements: &[f32; 4]) -> Array<f32> {
        Array::from_slice(elements, [2, 2]).unwrap()
    }

    #[test]
    fn that_are_none_or_not_square() {
        let (vector, wide) = (ones(&[3]), ones(&[4, 2, 3]));
        let square = |operation| [operation, "[4, 2, 3]", "not square", "2 rows", "3 columns"];
        refused(linalg::solve(&wide, &vector), KIND, &square("solve"));
        refused(linalg::inv(&wide), KIND, &square("inv"));
        refused(linalg::det(&wide), KIND, &square("det"));
        refused(linalg::cholesky(&wide), KIND, &square("cholesky"));
        refused(linalg::eigh(&wide), KIND, &square("eigh"));
        refused(linalg::eigvalsh(&wide), KIND, &square("eigvalsh"));
        let none = |operation| [operation, "[3]", "no matrices", "last two axes"];
        refused(linalg::inv(&vector), KIND, &none("inv"));
        refused(linalg::qr(&vector), KIND, &none("qr"));
        refused(linalg::svd(&vector), KIND, &none("svd"));
        refused(linalg::svdvals(&vector), KIND, &none("svdvals"));
        refused(linalg::lstsq(&vector, &vector), KIND, &none("lstsq"));
        let norm = linalg::norm(&vector, MatrixNorm::Nuclear);
        refused(norm, KIND, &none("norm"));
        refused(linalg::qr(&ones(&[])), KIND, &["qr", "[]"]);
    }

    #[test]
    fn whose_right_sides_do_not_fit() {
        const KIND: ErrorKind = ErrorKind::ShapeMismatch;
        let a = ones(&[2, 3, 3]);
        let rows = |operation, shape| [operation, "[2, 3, 3]", shape, "3 rows", "2 on the right"];
        refused(linalg::solve(&a, &ones(&[2])), KIND, &rows("solve", "[2]"));
        // A matrix, not two vectors.
        let right = ones(&[2, 3]);
        refused(linalg::solve(&a, &right), KIND, &rows("solve", "[2, 3]"));
        refused(linalg::lstsq(&a, &right), KIND, &rows("lstsq", "[2, 3]"));
        let other = ones(&[5, 3, 1]);
        let batches = ["[2, 3, 3]", "[5, 3, 1]", "[2] and [5] do not broadcast"];
        refused(linalg::solve(&a, &other), KIND, &batches);
        refused(linalg::lstsq(&a, &other), KIND, &batches);
        refused(linalg::solve(&a, &ones(&[])), KIND, &["solve", "[]"]);
    }

    #[test]
    fn that_are_singular() {
        let singular = matrix(&[1.0, 2.0, 2.0, 4.0]);
        let words = ["[2, 2]", "singular", "U[1, 1]", "exactly zero"];
        let right = ones(&[2]);
        refused(linalg::solve(&singular, &right), KIND, &words);
        refused(linalg::inv(&singular), KIND, &words);
        let many = cachescope::stack(&[&matrix(&[1.0, 0.0, 0.0, 1.0]), &singular], 0).unwrap();
        let many = many.unsqueeze(0).unwrap();
        let named = ["[0, 1]", "[1, 2, 2, 2]", "singular"];
        refused(linalg::inv(&many), KIND, &named);
        refused(linalg::solve(&many, &right), KIND, &named);
        let zero = Array::<f64>::zeros([1, 1]).unwrap();
        refused(linalg::inv(&zero), KIND, &["inv", "U[0, 0]"]);
    }

    #[test]
    fn that_are_not_positive_definite() {
        let words = ["cholesky", "[2, 2]", "not positive definite", "order 2"];
        refused(
            linalg::cholesky(&matrix(&[1.0, 2.0, 2.0, 1.0])),
            KIND,
            &words,
        );
        let of_nan = matrix(&[f32::NAN, 0.0, 0.0, 1.0]);
        refused(linalg::cholesky(&of_nan), KIND, &["cholesky", "order 1"]);
        let of_zero = Array::<f64>::zeros([2, 2, 2]).unwrap();
        let words = ["cholesky", "[0]", "[2, 2, 2]", "order 1"];
        refused(linalg::cholesky(&of_zero), KIND, &words);
    }

    #[test]
    fn that_are_not_finite() {
        for element in [f32::NAN, f32::INFINITY] {
            let a = matrix(&[1.0, 2.0, element, 1.0]);
            let words = |operation| [operation, "[2, 2]", "not finite"];
            refused(linalg::svd(&a), KIND, &words("svd"));
            refused(linalg::svdvals(&a), KIND, &words("svdvals"));
            refused(linalg::eigh(&a), KIND, &words("eigh"));
            refused(linalg::eigvalsh(&a), KIND, &words("eigvalsh"));
            refused(linalg::lstsq(&a, &ones(&[2])), KIND, &words("lstsq"));
            let norm = linalg::norm(&a, MatrixNorm::Spectral);
            refused(norm, KIND, &words("norm"));
        }
        // What the upper triangle holds does not matter.
        let a = matrix(&[1.0, f32::NAN, 0.0, 1.0]);
        assert_eq!(linalg::eigvalsh(&a).unwrap().to_vec().unwrap(), [1.0; 2]);
        assert_eq!(
            linalg::cholesky(&a).unwrap().to_vec().unwrap(),
            [1.0, 0.0, 0.0, 1.0]
        );
    }
}
