//! Operations that copy elements, by index or in order, in recycled memory.

use cachescope::{Array, CacheConfig, DeviceConfig, Element, Policy, Result, concat, stack};
use half::f16;
use under_test::device_with;

/// Returns a line of text for each operation.
fn results<T: Element>() -> Result<Vec<String>> {
    let a = Array::from_vec(
        (0..24)
            .map(|at| T::from_f64(f64::from(at * 7 % 12)))
            .collect(),
        [4, 6],
    )?;
    let long = a.repeat(100, 1)?;
    let indices = Array::from_slice(&[3i64, 0, -1, 1], [4, 1])?;
    let mut sums = Array::<f32>::zeros([4, 6])?;
    sums.scatter_add(&indices, &a.cast().eval()?, 0)?;
    let (top, places) = long.topk(300, 1)?;
    let arrays = [
        a.take(&indices, 0)?,
        a.gather(&indices, 0)?,
        concat(&[&a, &a.flip(0)?], 0)?,
        stack(&[&a, &a.flip(1)?], -1)?,
        a.pad(&[(1, 2), (0, 3)], T::one())?,
        a.tril(1)?,
        a.triu(-1)?,
        a.diag(2)?,
        a.flatten()?.diag(-2)?,
        a.sort(1)?,
        long.sort(1)?,
        long.transpose()?.sort(0)?,
        top,
        a.transpose()?.flatten()?,
        indices
            .slice(cachescope::ndarray::s![1..2, ..])?
            .one_hot(5)?,
    ];
    let mut lines = Vec::new();
    for array in &arrays {
        lines.push(format!("{:?} {:?}", array.shape(), array.to_vec()?));
    }
    lines.push(format!("{:?} {:?}", sums.to_vec()?, places.to_vec()?));
    lines.push(format!("{:?}", long.argsort(1)?.to_vec()?));
    Ok(lines)
}

fn all() -> Result<Vec<String>> {
    Ok([
        results::<bool>()?,
        results::<i8>()?,
        results::<f16>()?,
        results::<f32>()?,
        results::<i64>()?,
    ]
    .concat())
}

#[test]
fn results_do_not_depend_on_the_memorys_contents() -> Result<()> {
    let expected = all()?;
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let device = device_with(DeviceConfig {
            fill_recycled: Some(0xff),
            ..Default::default()
        })?;
        let _guard = device.enter();
        let config = CacheConfig {
            policy,
            ..Default::default()
        };
        device.configure_cache("copies", config);
        for round in 0..4 {
            let _scope = device.scope("copies").enter();
            assert_eq!(all()?, expected, "{policy} in round {round}");
        }
        let stats = device.cache_stats("copies").unwrap();
        assert!(
            policy == Policy::Release || stats.hits > stats.misses,
            "{policy}"
        );
    }
    Ok(())
}
