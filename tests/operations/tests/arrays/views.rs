use cachescope::ndarray::{self, ArrayD, Axis, IxDyn, NewAxis, SliceInfoElem, s};
use cachescope::{Array, ErrorKind, Result};
use proptest::prelude::*;

use crate::arrays::fails;

fn counted(dims: &[usize]) -> Result<(Array<i32>, ArrayD<i32>)> {
    let count: usize = dims.iter().product();
    let host = ArrayD::from_shape_vec(IxDyn(dims), (0..count as i32).collect()).unwrap();
    Ok((Array::from_ndarray(&host)?, host))
}

#[test]
fn views_share_the_block() -> Result<()> {
    let (array, host) = counted(&[2, 3, 4])?;
    let views = [
        array.clone(),
        array.reshape([6, 4])?,
        array.flatten()?,
        array.transpose()?,
        array.t()?,
        array.permute(&[1, 2, 0])?,
        array.swap_axes(0, -1)?,
        array.unsqueeze(1)?,
        array.unsqueeze(0)?.squeeze(0)?,
        array.broadcast_to([5, 2, 3, 4])?,
        array.slice(s![0, .., ..])?,
    ];
    assert!(views.iter().all(|view| view.address() == array.address()));
    let later = array.slice(s![1, 2, 3])?;
    assert_eq!(later.address(), array.address() + 23 * 4);
    drop((array, views));
    assert_eq!(later.item()?, host[[1, 2, 3]]);
    Ok(())
}

#[test]
fn strides_count_elements_as_in_ndarray() -> Result<()> {
    let (array, host) = counted(&[2, 3, 4])?;
    for (view, expected) in [
        (array.clone(), host.view()),
        (array.t()?, host.t()),
        (
            array.slice(s![1, .., ..])?,
            host.slice(s![1, .., ..]).into_dyn(),
        ),
        (
            array.slice(s![.., 2, ..;2])?,
            host.slice(s![.., 2, ..;2]).into_dyn(),
        ),
        (
            array.slice(s![.., .., 1..3])?,
            host.slice(s![.., .., 1..3]).into_dyn(),
        ),
        (
            array.slice(s![..;-1, .., ..])?,
            host.slice(s![..;-1, .., ..]).into_dyn(),
        ),
    ] {
        assert_eq!(view.strides(), expected.strides());
        assert_eq!(view.is_contiguous(), expected.is_standard_layout());
    }
    assert!(array.item().is_err() && array.slice(s![0, 0, 0])?.strides().is_empty());
    assert!(array.slice(s![.., 1..1, ..])?.is_contiguous());
    Ok(())
}

#[test]
#[allow(
    clippy::reversed_empty_ranges,
    reason = "ndarray gives them no elements"
)]
fn slices_mean_what_ndarray_means() -> Result<()> {
    let (array, host) = counted(&[4, 5, 6])?;
    macro_rules! same {
        ($($selection:tt)*) => {
            assert_eq!(
                array.slice(s![$($selection)*])?.to_ndarray()?,
                host.slice(s![$($selection)*]).into_dyn().to_owned(),
                stringify!($($selection)*),
            );
        };
    }
    same!(.., .., ..);
    same!(1, .., -1);
    same!(..;-1, 1..4;-2, -3..);
    same!(1..1, .., ..);
    same!(3..1, .., ..);
    same!(..;7, ..;-7, 2);
    same!(NewAxis, 0, NewAxis, .., 2..=3, NewAxis);
    same!(-2..-1, ..-1, ..=-2);
    same!(4.., 5.., 6..);
    Ok(())
}

#[test]
fn reshape_copies_only_where_it_must() -> Result<()> {
    let (array, host) = counted(&[4, 6])?;
    let turned = array.transpose()?;
    let split = turned.reshape([2, 3, 4])?;
    assert_eq!(split.address(), array.address());
    let copied = turned.reshape([24])?;
    assert_ne!(copied.address(), array.address());
    let expected: Vec<i32> = host.t().iter().copied().collect();
    assert_eq!(copied.to_vec()?, expected);
    assert_eq!(split.to_vec()?, expected);
    assert_eq!(
        array.slice(s![..;2, ..])?.reshape([2, 2, 3])?.address(),
        array.address()
    );
    fails(
        array.reshape([5, 5]),
        ErrorKind::InvalidShape,
        "[4, 6] of 24",
    );
    fails(array.reshape([]), ErrorKind::InvalidShape, "[]");
    Ok(())
}

#[test]
fn views_reject_what_they_cannot_show() -> Result<()> {
    let (array, _) = counted(&[2, 3])?;
    let kind = ErrorKind::InvalidArgument;
    fails(array.permute(&[1, 1]), kind, "[1, 1]");
    fails(array.swap_axes(0, 2), kind, "axis 2");
    fails(array.unsqueeze(4), kind, "axis 4");
    fails(array.squeeze(1), kind, "length 3");
    fails(array.flip(-3), kind, "axis -3");
    fails(
        array.slice([SliceInfoElem::from(..)]),
        kind,
        "slice: the selection names 1 axis",
    );
    fails(array.slice(s![2, ..]), kind, "index 2");
    fails(array.slice(s![.., ..4]), kind, "bound 4");
    fails(
        array.broadcast_to([2, 4]),
        ErrorKind::ShapeMismatch,
        "[2, 3]",
    );
    fails(array.broadcast_to([3]), ErrorKind::ShapeMismatch, "[3]");
    let wide = [1 << 31, 1 << 31, 2, 3];
    fails(
        array.broadcast_to(wide),
        ErrorKind::InvalidShape,
        "overflows",
    );
    fails(
        array.broadcast_to([1 << 60, 2, 3]),
        ErrorKind::InvalidShape,
        "overflows",
    );
    Ok(())
}

/// A step that makes a view. Its numbers are reduced to valid axes and indices.
#[derive(Clone, Debug)]
enum Step {
    Transpose,
    Flip(usize),
    Swap(usize, usize),
    Unsqueeze(usize),
    Cut(usize, usize, isize),
    Reshape(usize),
    Take(usize, Vec<i64>),
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0usize..20;
    prop_oneof![
        Just(Step::Transpose),
        n.clone().prop_map(Step::Flip),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Swap(a, b)),
        n.clone().prop_map(Step::Unsqueeze),
        (n.clone(), n.clone(), prop_oneof![-3isize..0, 1isize..4])
            .prop_map(|(axis, start, step)| Step::Cut(axis, start, step)),
        n.clone().prop_map(Step::Reshape),
        (n, proptest::collection::vec(-9i64..9, 0..4)).prop_map(|(axis, at)| Step::Take(axis, at)),
    ]
}

fn apply(step: &Step, array: &Array<i32>, host: &ArrayD<i32>) -> Result<(Array<i32>, ArrayD<i32>)> {
    let ndim = array.ndim();
    let mut host = host.clone();
    let array = match step {
        Step::Transpose => {
            host = host.reversed_axes();
            array.transpose()?
        }
        Step::Flip(axis) if ndim > 0 => {
            host.invert_axis(Axis(axis % ndim));
            array.flip((axis % ndim) as isize)?
        }
        Step::Swap(first, second) if ndim > 0 => {
            let (first, second) = (first % ndim, second % ndim);
            host.swap_axes(first, second);
            array.swap_axes(first as isize, second as isize - ndim as isize)?
        }
        Step::Unsqueeze(axis) if ndim < 8 => {
            host = host.insert_axis(Axis(axis % (ndim + 1)));
            array.unsqueeze((axis % (ndim + 1)) as isize)?
        }
        Step::Cut(axis, start, step) if ndim > 0 => {
            let mut parts = vec![SliceInfoElem::from(..); ndim];
            let start = (start % (array.shape()[axis % ndim] + 1)) as isize;
            parts[axis % ndim] = SliceInfoElem::Slice {
                start,
                end: None,
                step: *step,
            };
            host = host.slice(parts.as_slice()).to_owned();
            array.slice(&parts)?
        }
        Step::Reshape(divisor) if array.len().is_multiple_of(divisor + 1) => {
            let dims = [divisor + 1, array.len() / (divisor + 1)];
            host = host.to_shape(dims).unwrap().to_owned().into_dyn();
            array.reshape(dims)?
        }
        Step::Take(axis, indices) if ndim > 0 && array.shape()[axis % ndim] > 0 => {
            let length = array.shape()[axis % ndim] as i64;
            let indices: Vec<i64> = indices.iter().map(|index| index % length).collect();
            let counted = indices
                .iter()
                .map(|&index| index.rem_euclid(length) as usize);
            host = host.select(Axis(axis % ndim), &counted.collect::<Vec<_>>());
            let indices = Array::from_slice(&indices, indices.len())?;
            array.take(&indices, (axis % ndim) as isize)?
        }
        _ => array.clone(),
    };
    Ok((array, host))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn views_of_views_and_copies_hold_what_ndarray_holds(
        dims in proptest::collection::vec(1usize..5, 0..5),
        steps in proptest::collection::vec(step(), 0..7),
    ) {
        let (mut array, mut host) = counted(&dims).unwrap();
        for step in &steps {
            (array, host) = apply(step, &array, &host).unwrap();
            prop_assert_eq!(array.shape(), host.shape(), "after {:?}", step);
            prop_assert_eq!(&array.to_ndarray().unwrap(), &host, "after {:?}", step);
        }
        let detached = array.to_uncached().unwrap();
        prop_assert!(detached == array);
        let axis = host.ndim().saturating_sub(1);
        if host.ndim() > 0 {
            let both = cachescope::concat(&[&array, &detached, &array], -1).unwrap();
            let views = [host.view(), host.view(), host.view()];
            let expected = ndarray::concatenate(Axis(axis), &views).unwrap();
            prop_assert_eq!(both.to_ndarray().unwrap(), expected);
        }
    }
}
