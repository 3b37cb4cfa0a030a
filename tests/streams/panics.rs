//! Work that panics after the arrays that it should write were returned.

use cachescope::__private::{Function, Pass, apply1};
use cachescope::{Array, ErrorKind, Result};
use under_test::device_with;

use crate::streams::device;

/// The reciprocal, which panics at 0. No function that `elementwise!` accepts panics.
#[derive(Clone, Copy)]
struct Reciprocal;

impl Function<(i32,)> for Reciprocal {
    const NAME: &'static str = "reciprocal";
    const CUDA: &'static str = "1 / a";
    type Output = i32;

    fn apply<L: Pass>(_pass: &mut L, (x,): (i32,)) -> i32 {
        assert_ne!(x, 0, "no reciprocal");
        1 / x
    }
}

#[test]
fn unwritten_results_are_not_read() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let early = Array::full(100, 1)?;
    device.synchronize()?;
    let zeros = Array::<i32>::zeros(100)?;
    let unwritten = apply1::<Reciprocal, _>(zeros.lazy()).eval()?;
    let behind = (&unwritten + 1).eval()?;
    for _ in 0..2 {
        for array in [&unwritten, &behind, &early] {
            let error = array.to_vec().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Panic);
            assert!(error.to_string().contains("no reciprocal"), "{error}");
        }
    }
    // Another device is not affected.
    let other = crate::streams::device();
    let _guard = other.enter();
    assert_eq!(Array::full(2, 3)?.to_vec()?, [3, 3]);
    Ok(())
}

/// If streams do not delay work, the panic occurs before any array is returned.
#[test]
fn a_panic_at_once_leaves_the_device_as_it_was() -> Result<()> {
    let device = device_with(Default::default())?;
    let _guard = device.enter();
    let zeros = Array::<i32>::zeros(100_000)?;
    let mut target = Array::full(100_000, 2)?;
    let run = || {
        let result = apply1::<Reciprocal, _>(zeros.lazy()).eval();
        result.map(drop)
    };
    assert!(std::panic::catch_unwind(run).is_err());
    let assign =
        std::panic::AssertUnwindSafe(|| target.assign(apply1::<Reciprocal, _>(zeros.lazy())));
    assert!(std::panic::catch_unwind(assign).is_err());
    assert_eq!(target.to_vec()?, vec![2; 100_000]);
    assert_eq!((&zeros + 1).sum()?.item()?, 100_000);
    Ok(())
}
