use cachescope::ndarray::{self, Axis, s};
use cachescope::{Array, ErrorKind, Result, concat};

use crate::arrays::{dirty_device, fails};

#[test]
fn take_replaces_the_axis_by_the_axes_of_the_indices() -> Result<()> {
    let array = Array::arange(0, 24, 1)?.reshape([2, 3, 4])?;
    let indices = Array::from_vec(vec![2, 0, -1, 1], [2, 2])?;
    let taken = array.take(&indices, 1)?;
    assert_eq!(taken.shape(), [2, 2, 2, 4]);
    let host = array.to_ndarray()?;
    for (index, value) in taken.to_ndarray()?.indexed_iter() {
        let row = [[2, 0], [2, 1]][index[1]][index[2]];
        assert_eq!(*value, host[[index[0], row, index[3]]]);
    }
    let one = array.take(&Array::from_vec(vec![3], [])?, -1)?;
    assert_eq!(one.shape(), [2, 3]);
    assert_eq!(one.to_vec()?, [3, 7, 11, 15, 19, 23]);
    let backwards = array.flip(0)?.take(&Array::from_vec(vec![0], 1)?, 0)?;
    assert_eq!(backwards.to_vec()?, (12..24).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn take_reads_indices_and_elements_through_views() -> Result<()> {
    let array = Array::arange(0, 600, 1)?.reshape([20, 30])?;
    let indices = Array::from_vec(vec![0, 9, 5, 9, 19, 9], [3, 2])?;
    let (view, rows) = (array.slice(s![.., 1..;3])?, indices.slice(s![..;-1, 0])?);
    let host = view.to_ndarray()?.select(Axis(0), &[19, 5, 0]);
    assert_eq!(view.take(&rows, 0)?.to_ndarray()?, host);
    Ok(())
}

#[test]
fn a_bad_index_is_named_and_allocates_nothing() -> Result<()> {
    let device = dirty_device()?;
    let _guard = device.enter();
    let array = Array::<f32>::ones([3, 2])?;
    let indices = |values: &[i64]| Array::from_slice(values, values.len());
    let (high, low) = (indices(&[0, 3])?, indices(&[-4])?);
    let scope = device.scope("bad index").enter();
    fails(array.take(&high, 0), ErrorKind::InvalidArgument, "index 3");
    fails(array.take(&low, 0), ErrorKind::InvalidArgument, "index -4");
    fails(array.take(&high, 2), ErrorKind::InvalidArgument, "axis 2");
    fails(
        array.take(&indices(&[])?.reshape([0, 1, 1, 1, 1, 1, 1, 1])?, 0),
        ErrorKind::InvalidShape,
        "rank 9",
    );
    drop(scope);
    assert_eq!(device.cache_stats("bad index").unwrap().misses, 0);
    let extreme = indices(&[i64::MIN])?;
    fails(array.take(&extreme, 0), ErrorKind::InvalidArgument, "range");
    let none = Array::<f32>::zeros([0, 2])?;
    fails(
        none.take(&indices(&[0])?, 0),
        ErrorKind::InvalidArgument,
        "length 0",
    );
    assert_eq!(none.take(&indices(&[])?, 0)?.shape(), [0, 2]);
    Ok(())
}

#[test]
fn two_devices_do_not_mix() -> Result<()> {
    let other = dirty_device()?;
    let array = Array::<i64>::zeros(3)?;
    let there = array.to_device(&other)?;
    fails(
        array.take(&there, 0),
        ErrorKind::DeviceMismatch,
        "take: the array [3] is on ",
    );
    fails(
        concat(&[&array, &there], 0),
        ErrorKind::DeviceMismatch,
        "concat: array 0 [3] is on ",
    );
    // The result is on the arrays' device, independent of the current device.
    assert_eq!(concat(&[&there, &there], 0)?.device(), &other);
    assert_eq!(there.take(&there, 0)?.device(), &other);
    Ok(())
}

#[test]
fn concat_joins_along_any_axis() -> Result<()> {
    let hosts = [2, 0, 3].map(|width| {
        ndarray::Array3::from_shape_fn((3, width, 2), |(a, b, c)| (a * 100 + b * 10 + c) as f32)
    });
    let arrays = hosts
        .each_ref()
        .map(|host| Array::from_ndarray(host).unwrap());
    let joined = concat(&arrays.each_ref(), -2)?;
    let expected =
        ndarray::concatenate(Axis(1), &hosts.each_ref().map(|host| host.view())).unwrap();
    assert_eq!(joined.to_ndarray()?, expected.into_dyn());
    let column = Array::arange(0, 3, 1)?.unsqueeze(1)?;
    let wide = column.broadcast_to([3, 2])?;
    let both = concat(&[&wide, &column.flip(0)?], 1)?;
    assert_eq!(both.to_vec()?, [0, 0, 2, 1, 1, 1, 2, 2, 0]);
    assert_eq!(concat(&[&wide], 0)?.to_vec()?, wide.to_vec()?);
    let many = vec![&column; 500];
    assert_eq!(concat(&many, 0)?.shape(), [1500, 1]);
    Ok(())
}

#[test]
fn concat_names_what_does_not_fit() -> Result<()> {
    let (two, three) = (Array::<f32>::zeros([2, 2])?, Array::<f32>::zeros([3, 3])?);
    fails(
        concat::<f32>(&[], 0),
        ErrorKind::InvalidArgument,
        "concat: the list of arrays is empty, expected at least one",
    );
    fails(concat(&[&two], 2), ErrorKind::InvalidArgument, "axis 2");
    fails(
        concat(&[&two, &three], 0),
        ErrorKind::ShapeMismatch,
        "concat: array 1 has the shape [3, 3], array 0 has [2, 2]: expected equal lengths along all axes except 0",
    );
    fails(
        concat(&[&two, &two.flatten()?], 0),
        ErrorKind::ShapeMismatch,
        "[4]",
    );
    let scalar = Array::full([], 1.0f32)?;
    fails(
        concat(&[&scalar, &scalar], 0),
        ErrorKind::InvalidArgument,
        "rank 0",
    );
    let wide = Array::<u8>::zeros(1)?.broadcast_to([1 << 62])?;
    fails(
        concat(&[&wide, &wide, &wide], 0),
        ErrorKind::InvalidShape,
        "overflows",
    );
    Ok(())
}
