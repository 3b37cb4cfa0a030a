//! `scope::report`: every cache of the current device, as a table.

use cachescope::{Buffer, Policy, Result, cache_scope, scope};

use crate::scopes::{device, stats};

#[test]
fn every_cache_of_the_current_device_has_a_row() -> Result<()> {
    let (device, other) = (device(), crate::scopes::device());
    let iteration = |name: &str, policy, sizes: &[usize]| {
        cache_scope!(name, policy = policy, device = &device, {
            let buffers = sizes.iter().map(|&bytes| Buffer::new(&device, bytes));
            buffers.collect::<Result<Vec<_>>>()
        })
    };
    for _ in 0..4 {
        iteration("train", Policy::Recycle, &[1 << 20, 1 << 20])?;
    }
    // Two equal entries are recorded, the third follows the plan, and the fourth diverges.
    for sizes in [[4096], [4096], [4096], [8192]] {
        iteration("plan", Policy::Plan, &sizes)?;
    }
    let escaped = iteration("kept", Policy::Release, &[512, 512])?;
    cache_scope!("elsewhere", device = &other, { Buffer::new(&other, 512) })?;
    device.configure_cache("unused", cachescope::CacheConfig::default());

    let _device = device.enter();
    let report = scope::report();
    let names: Vec<_> = report
        .caches
        .iter()
        .map(|cache| cache.name.as_str())
        .collect();
    assert_eq!(names, ["kept", "plan", "train", "unused"]);
    for cache in &report.caches {
        assert_eq!(cache.stats, stats(&device, &cache.name));
    }
    let text = report.to_string();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["caches", "of", &device.to_string()]);
    assert_eq!(
        rows[2],
        [
            "kept", "release", "1", "0.0%", "1", "KiB", "0", "B", "2", "0"
        ]
    );
    assert_eq!(
        rows[4],
        [
            "train", "recycle", "4", "75.0%", "2", "MiB", "2", "MiB", "0", "0"
        ]
    );
    assert_eq!(
        rows[5],
        ["unused", "recycle", "0", "-", "0", "B", "0", "B", "0", "0"]
    );
    assert_eq!(
        rows[3].last(),
        Some(&"1"),
        "an entry differed from the plan: {text}"
    );
    drop(escaped);
    Ok(())
}

#[test]
fn the_columns_are_aligned_for_names_of_any_length() -> Result<()> {
    let device = device();
    let _device = device.enter();
    for name in ["a", "a name of many characters, ünïcode too"] {
        cache_scope!(name, { Buffer::new(&device, 100)? });
    }
    let text = scope::report().to_string();
    let widths: Vec<_> = text
        .lines()
        .skip(1)
        .map(|row| row.chars().count())
        .collect();
    assert_eq!(widths.len(), 3);
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    Ok(())
}
