//! Windows, in which an element occurs several times, and operations on windows.

use cachescope::ndarray::s;
use cachescope::{Array, ConvOptions, DeviceConfig, INFER, PadMode, Result, cache_scope, meshgrid};
use under_test::device_with;

use crate::arrays::dirty_device;

#[test]
fn windows_share_the_block() -> Result<()> {
    let x = Array::arange(0, 6, 1)?;
    let windows = x.windows(&[3])?;
    assert_eq!(windows.address(), x.address());
    assert_eq!(windows.to_vec()?, [0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5]);
    let back = x.flip(0)?.windows(&[2])?;
    assert_eq!(back.to_vec()?, [5, 4, 4, 3, 3, 2, 2, 1, 1, 0]);
    let steps = x.slice(s![..;2])?.windows(&[2])?;
    assert_eq!(steps.to_vec()?, [0, 2, 2, 4]);
    Ok(())
}

#[test]
fn a_write_to_windows_writes_to_a_copy() -> Result<()> {
    let _current = dirty_device()?.enter();
    let numbers: Vec<i32> = (0..5).collect();
    let windows = || Array::arange(0, 5, 1)?.windows(&[3]);
    // No other handle holds the memory, but an element occurs in several windows.
    let mut filled = windows()?;
    filled.slice_mut(s![0, ..])?.fill(9)?;
    assert_eq!(filled.to_vec()?, [9, 9, 9, 1, 2, 3, 2, 3, 4]);
    let mut updated = windows()?;
    updated.update(|own| own * 10)?;
    assert_eq!(updated.to_vec()?, [0, 10, 20, 10, 20, 30, 20, 30, 40]);
    let mut turned = windows()?;
    let transposed = turned.transpose()?;
    turned
        .slice_mut(s![.., ..])?
        .update(|part| part + &transposed)?;
    assert_eq!(turned.to_vec()?, [0, 2, 4, 2, 4, 6, 4, 6, 8]);
    let mut assigned = windows()?;
    assigned.assign(&Array::from_slice(&[1, 2, 3], [3, 1])?)?;
    assert_eq!(assigned.to_vec()?, [1, 1, 1, 2, 2, 2, 3, 3, 3]);
    let mut added = windows()?;
    added.scatter_add(&Array::zeros([3, 1])?, &Array::ones([3, 1])?, 1)?;
    assert_eq!(added.to_vec()?, [1, 1, 2, 2, 2, 3, 3, 3, 4]);

    let x = Array::from_slice(&numbers, 5)?;
    let mut shared = x.windows(&[2])?;
    shared.add_assign(1)?;
    assert_eq!(x.to_vec()?, numbers);
    Ok(())
}

#[test]
fn windows_that_do_not_overlap_are_written_in_place() -> Result<()> {
    let mut apart = {
        let x = Array::arange(0, 6, 1)?;
        x.windows(&[3])?.slice(s![..;3, ..])?
    };
    let address = apart.address();
    apart.update(|own| own * 2)?;
    assert_eq!(apart.address(), address);
    assert_eq!(apart.to_vec()?, [0, 2, 4, 6, 8, 10]);
    Ok(())
}

#[test]
fn windows_are_operands_like_any_other() -> Result<()> {
    let x = Array::<f64>::randn([9, 11])?;
    let windows = x.windows(&[4, 5])?;
    let copy = windows.to_uncached()?;
    assert_eq!(windows, copy);
    assert_eq!(
        (&windows + &windows.flip(2)?).eval()?,
        (&copy + copy.flip(2)?).eval()?
    );
    assert_eq!(windows.max_axis([1, 3])?, copy.max_axis([1, 3])?);
    assert_eq!(windows.cumsum(2)?, copy.cumsum(2)?);
    assert_eq!(windows.sort(0)?, copy.sort(0)?);
    assert_eq!(
        windows.permute(&[2, 0, 3, 1])?.flatten()?,
        copy.permute(&[2, 0, 3, 1])?.flatten()?
    );
    let weights = Array::<f64>::randn([5, 3])?;
    let (products, wanted) = (windows.matmul(&weights)?, copy.matmul(&weights)?);
    let apart = (products - wanted).abs().max()?.item()?;
    assert!(apart < 1e-12, "{apart}");
    // `rows` is a matrix whose rows overlap.
    let rows = x.flatten()?.windows(&[7])?;
    let (gram, wanted) = (rows.transpose()?.matmul(&rows)?, rows.to_uncached()?);
    let wanted = wanted.transpose()?.matmul(&wanted)?;
    let apart = (gram - wanted).abs().max()?.item()?;
    assert!(apart < 1e-12, "{apart}");
    Ok(())
}

#[test]
fn many_operands_are_read_in_one_pass() -> Result<()> {
    const TERMS: usize = 40;
    let x = Array::<i64>::arange(0, 100, 1)?;
    let windows = x.windows(&[TERMS])?;
    let mut sum = windows.slice(s![.., 0])?.lazy().boxed();
    for place in 1..TERMS {
        sum = (sum + windows.slice(s![.., place])?).boxed();
    }
    assert_eq!(sum.eval()?, windows.sum_axis(-1)?);
    Ok(())
}

#[test]
fn one_length_is_inferred() -> Result<()> {
    let x = Array::<f32>::zeros([4, 3, 2])?;
    assert_eq!(x.reshape([INFER])?.shape(), [24]);
    assert_eq!(x.reshape([2, INFER, 3])?.shape(), [2, 4, 3]);
    assert_eq!(x.transpose()?.reshape([INFER, 4])?.shape(), [6, 4]);
    assert_eq!(x.reshape(&[8, INFER][..])?.address(), x.address());
    assert_eq!(
        Array::<f32>::zeros([0, 3])?.reshape([5, INFER])?.shape(),
        [5, 0]
    );
    assert_eq!(
        Array::<f32>::zeros([])?.reshape([1, INFER])?.shape(),
        [1, 1]
    );
    Ok(())
}

#[test]
fn long_runs_are_rolled_and_framed_whole() -> Result<()> {
    // The offset of a run in its page is slightly larger in the target than in the source.
    for (count, shift) in [(70_000, 3), (5_000, 1), (70_000, -5), (4_096, 60), (300, 2)] {
        let x = Array::<i32>::arange(0, count, 1)?;
        let rolled = x.roll(shift, 0)?.to_vec()?;
        let wanted = (0..count).map(|at| (at - shift as i32).rem_euclid(count));
        assert!(rolled.iter().copied().eq(wanted), "{count} by {shift}");
        let margin = shift.unsigned_abs();
        let padded = x.pad_with(&[(margin, 1)], PadMode::Edge)?.to_vec()?;
        let wanted = std::iter::repeat_n(0, margin)
            .chain(0..count)
            .chain([count - 1]);
        assert!(padded.into_iter().eq(wanted), "{count} by {shift}");
    }
    Ok(())
}

#[test]
fn grids_are_views() -> Result<()> {
    let (x, y) = (Array::arange(0, 3, 1)?, Array::arange(0, 4, 1)?.flip(0)?);
    let grid = meshgrid(&[&x, &y])?;
    assert_eq!(
        [grid[0].address(), grid[1].address()],
        [x.address(), y.address()]
    );
    assert_eq!(
        (&grid[0] * 10 + &grid[1]).eval()?.to_vec()?[4..8],
        [13, 12, 11, 10]
    );
    Ok(())
}

/// Returns the peak of the memory that a function allocates, excluding its result.
fn taken<T: cachescope::Element>(function: impl FnOnce() -> Result<Array<T>>) -> Result<u64> {
    let device = cachescope::Device::current();
    let before = device.memory_stats().live_bytes;
    device.reset_peaks();
    let result = function()?;
    let peak = device.memory_stats().peak_live_bytes;
    Ok(peak - before - result.size_bytes() as u64)
}

#[test]
fn convolutions_take_a_block_and_no_more() -> Result<()> {
    let device = device_with(DeviceConfig::default())?;
    if device.to_string().contains("cuda") {
        return Ok(()); // On CUDA, blocks are larger than the arrays of this test.
    }
    let _current = device.enter();
    let x = Array::<f32>::ones([4, 32, 40, 40])?;
    let kernel = Array::<f32>::ones([8, 32, 3, 3])?;
    let padded = ConvOptions {
        padding: [1, 1],
        ..Default::default()
    };
    // The bound is the sum of a padded image, a block, and the block's results.
    let image = 32 * 42 * 42 * 4;
    let most = image + (1 << 20) + (1 << 20) * 8 / (32 * 9);
    let found = taken(|| x.conv2d(&kernel, padded))?;
    assert!(found <= most, "{found} of {most}");
    let single = Array::<f32>::ones([8, 32, 1, 1])?;
    assert_eq!(taken(|| x.conv2d(&single, ConvOptions::default()))?, 0);
    assert_eq!(taken(|| x.max_pool2d([3, 3], [2, 2]))?, 0);
    assert_eq!(taken(|| x.avg_pool2d([2, 2], [2, 2]))?, 0);
    assert_eq!(taken(|| x.roll(3, -1))?, 0);
    assert_eq!(taken(|| x.diff(-1))?, 0);
    Ok(())
}

#[test]
fn convolutions_are_served_from_their_scope() -> Result<()> {
    let device = dirty_device()?;
    let _current = device.enter();
    let x = Array::<f32>::ones([2, 3, 8, 8])?;
    let kernel = Array::<f32>::ones([4, 3, 3, 3])?;
    let options = ConvOptions {
        padding: [1, 1],
        ..Default::default()
    };
    for _ in 0..3 {
        let sum = cache_scope!("conv", {
            x.conv2d(&kernel, options)?
                .max_pool2d([2, 2], [2, 2])?
                .sum()?
                .item()?
        });
        assert_eq!(sum, 2.0 * 4.0 * 16.0 * 27.0);
    }
    let stats = device.cache_stats("conv").unwrap();
    assert!(stats.hits >= 2 * stats.misses, "{stats:?}");
    Ok(())
}
