use cachescope::ndarray::{self, ArrayD, array, s};
use cachescope::{Array, DeviceConfig, ErrorKind, Result};
use under_test::device_with;

use crate::arrays::{dirty_device, fails};

#[test]
fn converts_ndarrays_of_any_strides_both_ways() -> Result<()> {
    let host = ndarray::Array3::from_shape_fn((3, 4, 5), |(a, b, c)| (100 * a + 10 * b + c) as i32);
    assert_eq!(
        Array::from_ndarray(&host)?.to_ndarray()?,
        host.clone().into_dyn()
    );
    let turned = host.t();
    assert_eq!(
        Array::from_ndarray(&turned)?.to_ndarray()?,
        turned.into_dyn()
    );
    let cut = host.slice(s![..;-1, 1..3, ..;2]);
    assert_eq!(Array::from_ndarray(&cut)?.to_ndarray()?, cut.into_dyn());
    let none = ndarray::Array2::<f32>::zeros((0, 3));
    assert_eq!(Array::from_ndarray(&none)?.shape(), [0, 3]);
    let scalar = ndarray::arr0(5u8);
    assert_eq!(Array::from_ndarray(&scalar)?.item()?, 5);
    Ok(())
}

#[test]
fn the_conversion_traits_do_the_same() -> Result<()> {
    let host = array![[1.0f32, 2.0], [3.0, 4.0]];
    let borrowed = Array::try_from(&host)?;
    let viewed = Array::try_from(host.view())?;
    let owned = Array::try_from(host.clone())?;
    assert!(borrowed == viewed && viewed == owned);
    assert_eq!(ArrayD::try_from(&owned)?, host.into_dyn());
    let nine = ArrayD::<f32>::zeros(ndarray::IxDyn(&[1; 9]));
    fails(Array::try_from(&nine), ErrorKind::InvalidShape, "rank 9");
    Ok(())
}

#[test]
fn a_long_transposed_array_arrives_in_order() -> Result<()> {
    // Some rows are longer than a staging buffer, and some are shorter.
    for (rows, columns) in [(3, 20_000), (20_000, 3), (300, 301)] {
        let host = ndarray::Array2::from_shape_fn((rows, columns), |(row, column)| {
            (row * columns + column) as u64
        });
        let array = Array::from_ndarray(&host)?;
        let turned = array.transpose()?;
        assert_eq!(turned.to_ndarray()?, host.t().into_dyn());
        assert_eq!(turned.to_uncached()?.to_ndarray()?, host.t().into_dyn());
        let from_columns = Array::from_ndarray(&host.t())?;
        assert_eq!(from_columns.to_vec()?, turned.to_vec()?);
    }
    Ok(())
}

#[test]
fn item_wants_one_element() -> Result<()> {
    let array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    assert_eq!(array.slice(s![1, 2])?.item()?, 5);
    assert_eq!(array.slice(s![..1, 1..2])?.item()?, 1);
    fails(
        array.item(),
        ErrorKind::InvalidShape,
        "[2, 3] has 6 elements",
    );
    Ok(())
}

#[test]
fn to_device_copies_between_devices_and_shares_on_one() -> Result<()> {
    let (here, there) = (dirty_device()?, dirty_device()?);
    let _guard = here.enter();
    let array = Array::arange(0, 6, 1)?.reshape([2, 3])?.transpose()?;
    let same = array.to_device(&here)?;
    assert_eq!(same.address(), array.address());
    let moved = array.to_device(&there)?;
    assert_eq!((array.device(), moved.device()), (&here, &there));
    assert_eq!(moved.to_vec()?, [0, 3, 1, 4, 2, 5]);
    assert!(moved != array, "arrays on two devices are not equal");
    assert!(moved.to_device(&here)? == array);
    Ok(())
}

#[test]
fn detach_leaves_the_scope() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    let kept = {
        let _scope = device.scope("detached").enter();
        let inside = Array::<f32>::ones([4, 4])?;
        inside.slice(s![.., 1])?.to_uncached()?
    };
    let stats = device.cache_stats("detached").unwrap();
    assert_eq!((stats.live_blocks, stats.escaped_blocks), (0, 0));
    assert_eq!(stats.misses, 1);
    assert_eq!(kept.to_vec()?, [1.0; 4]);
    Ok(())
}

#[test]
fn arrays_outlive_every_handle_of_their_device() -> Result<()> {
    let array = {
        let device = device_with(DeviceConfig::default())?;
        let _guard = device.enter();
        Array::arange(0, 4, 1)?
    };
    assert_eq!(array.flip(0)?.to_vec()?, [3, 2, 1, 0]);
    Ok(())
}

#[test]
fn arrays_are_read_from_many_threads() -> Result<()> {
    let array = Array::arange(0i64, 10_000, 1)?.reshape([100, 100])?;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4isize)
            .map(|row| {
                let array = array.clone();
                scope.spawn(move || array.slice(s![row, ..])?.to_vec())
            })
            .collect();
        for (row, reader) in readers.into_iter().enumerate() {
            let first = 100 * row as i64;
            assert_eq!(
                reader.join().unwrap()?,
                (first..first + 100).collect::<Vec<_>>()
            );
        }
        Ok(())
    })
}
