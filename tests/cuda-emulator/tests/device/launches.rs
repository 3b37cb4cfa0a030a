//! Tests of the number of launches per operation. This is the number of times that an operand is
//! read.

use cachescope::{Array, PoolKind, Result};

use crate::device::{EmulatorLock, device};

/// Returns the number of kernel launches, and the number of memory fills.
fn launches(lock: &EmulatorLock, body: impl FnOnce() -> Result<()>) -> Result<[u64; 2]> {
    let count = || {
        let fills = ["cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"];
        let fills = fills.map(|name| lock.control.calls_of(name));
        [lock.control.calls_of("cuLaunchKernel"), fills.iter().sum()]
    };
    let before = count();
    body()?;
    let after = count();
    Ok([after[0] - before[0], after[1] - before[1]])
}

fn each(shape: &[usize], of: impl Fn(&Array<f32>) -> Result<Array<f32>>) -> Result<[u64; 2]> {
    let lock = EmulatorLock::take();
    let counts = {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let x = Array::<f32>::zeros(shape)?;
        launches(&lock, || of(&x).map(drop))?
    };
    lock.end();
    Ok(counts)
}

/// The fill initialises the status words that the tiles of long lanes publish.
#[test]
fn running_sums_read_their_operand_once() -> Result<()> {
    for (shape, axis, fills) in [
        (&[8191][..], 0, 0),
        (&[8192], 0, 1),
        (&[1 << 18], 0, 1),
        (&[3, 30_000], 1, 1),
        (&[1024, 8192], 1, 0),
        (&[63, 5], 0, 0),
        (&[64, 5], 0, 1),
        (&[20_000, 5], 0, 1),
    ] {
        assert_eq!(each(shape, |x| x.cumsum(axis))?, [1, fills], "{shape:?}");
        assert_eq!(each(shape, |x| x.cumprod(axis))?, [1, fills], "{shape:?}");
    }
    Ok(())
}

#[test]
fn softmax_of_long_lanes_reads_them_twice() -> Result<()> {
    for (shape, kernels) in [
        (&[2, 8192][..], 1),
        (&[2, 8193], 2),
        (&[1, 1 << 18], 2),
        (&[100, 9000], 2),
    ] {
        assert_eq!(each(shape, |x| x.softmax(1))?, [kernels, 0], "{shape:?}");
        assert_eq!(
            each(shape, |x| x.log_softmax(1))?,
            [kernels, 0],
            "{shape:?}"
        );
    }
    Ok(())
}

/// A transposed operand is read without a copy. If its lines are long enough for tiles, a separate
/// kernel reads it.
#[test]
fn transposed_operands_are_read_by_tiles() -> Result<()> {
    let loaded = |shape: [usize; 2]| {
        let lock = EmulatorLock::take();
        let mut loaded = 0;
        {
            let device = device(PoolKind::BestFit);
            let _guard = device.enter();
            let x = Array::<f32>::zeros(shape)?;
            let launched = launches(&lock, || {
                loaded = lock.calls_of("cuModuleLoadData", || {
                    let turned = x.transpose().unwrap();
                    // No other test in this process computes this expression, so its kernel is not
                    // loaded yet.
                    (x.atan2(&turned) - &x).atan2(0.5).eval().unwrap();
                });
                Ok(())
            })?;
            assert_eq!(launched, [1, 0], "{shape:?}");
        }
        lock.end();
        Result::Ok(loaded)
    };
    assert_eq!(loaded([7, 7])?, 1);
    assert_eq!(loaded([5, 5])?, 0);
    assert_eq!(loaded([40, 40])?, 1, "the kernel by tiles");
    assert_eq!(loaded([100, 100])?, 0);
    Ok(())
}
