//! Windows, padding, grids and kernels.

use cachescope::{Array, ConvOptions, ErrorKind, PadMode, meshgrid};

use super::{ones, refused};

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
    // This is a macro, not a function, so that errors have the lines of the calls.
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
    // This is a macro, not a closure, so that errors have the lines of the calls.
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
    // The first elements of the options are ignored, because this convolution has one spatial axis.
    let rows = ConvOptions {
        stride: [0, 1],
        padding: [9, 0],
        dilation: [0, 1],
        groups: 1,
    };
    assert_eq!(with!(&[2, 4, 3], rows).unwrap().shape(), [1, 2, 3]);
}
