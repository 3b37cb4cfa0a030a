use cachescope::ndarray::{Array0, Array1, Array2, Array3, ArrayD, array, aview1, s};
use cachescope::{Array, ErrorKind, Result, cache_scope, cache_stats};

use crate::interop::fails;

#[test]
fn every_kind_of_host_array_converts() -> Result<()> {
    let host = array![[1.0f32, 2.0], [3.0, 4.0]];
    let expected = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
    assert_eq!(Array::try_from(&host)?, expected);
    assert_eq!(Array::try_from(host.clone())?, expected);
    assert_eq!(Array::try_from(host.clone().into_dyn())?, expected);
    assert_eq!(Array::try_from(host.view())?, expected);
    assert_eq!(Array::try_from(host.t())?, expected.transpose()?);
    assert_eq!(
        Array::try_from(&host.slice(s![..;-1, 1]))?.to_vec()?,
        [4.0, 2.0]
    );
    assert_eq!(Array::try_from(aview1(&[true]))?.to_vec()?, [true]);
    fails(
        Array::try_from(ArrayD::<u8>::zeros(vec![1; 9])),
        ErrorKind::InvalidShape,
        &["rank 9"],
    );
    Ok(())
}

#[test]
fn arrays_become_host_arrays_of_their_rank() -> Result<()> {
    let array = Array::arange(0, 6, 1)?.reshape([2, 3])?;
    let expected = array![[0, 1, 2], [3, 4, 5]];
    assert_eq!(Array2::try_from(&array)?, expected);
    assert_eq!(Array2::try_from(array.transpose()?)?, expected.t());
    assert_eq!(ArrayD::try_from(&array)?, expected.clone().into_dyn());
    assert_eq!(ArrayD::try_from(array.clone())?, expected.into_dyn());
    assert_eq!(Array0::try_from(Array::full([], 7u8)?)?.into_scalar(), 7);
    let message = ["[2, 3]", "rank 2, expected 1"];
    fails(Array1::try_from(&array), ErrorKind::InvalidShape, &message);
    let message = ["[2, 3]", "rank 2, expected 3"];
    fails(Array3::try_from(array), ErrorKind::InvalidShape, &message);
    Ok(())
}

#[test]
fn a_conversion_is_recorded_at_its_line() -> Result<()> {
    cache_scope!("conversions", {
        Array::try_from(array![1, 2, 3])?;
        Array::try_from(&array![1, 2, 3])?;
    });
    let stats = cache_stats("conversions").expect("the scope was entered");
    assert_eq!((stats.misses, stats.hits), (1, 1));
    Ok(())
}
