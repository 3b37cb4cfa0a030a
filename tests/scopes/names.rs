//! Many names, long names, empty names, and names of any characters.

use std::time::{Duration, Instant};

use cachescope::{Buffer, CacheConfig, DeviceConfig, Policy, Result, cache_scope, scope, uncached};
use under_test::device_with;

use crate::scopes::{MIB, POLICIES, device, stats};

const MANY: usize = 10_000;

/// Returns the resident memory of this process, or `None` if the platform does not report it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Returns the mean time of one of [`MANY`] calls.
fn time_each(mut one: impl FnMut(usize) -> Result<()>) -> Result<Duration> {
    let begin = Instant::now();
    (0..MANY).try_for_each(&mut one)?;
    Ok(begin.elapsed() / MANY as u32)
}

#[test]
fn ten_thousand_names_are_as_fast_as_a_few() -> Result<()> {
    const ENOUGH: Duration = Duration::from_micros(500);
    for policy in POLICIES {
        let device = device();
        let name = |index: usize| format!("name {index}");
        let before = resident_bytes();
        let enter = |index: usize| {
            let enter = |name: &str| -> Result<()> {
                cache_scope!(
                    name,
                    policy = policy,
                    max_bytes = 1 << 40,
                    device = &device,
                    {
                        drop(Buffer::new(&device, 512)?);
                    }
                );
                Ok(())
            };
            enter(&name(index))
        };
        for iteration in ["first", "second"] {
            let each = time_each(enter)?;
            assert!(each < ENOUGH, "{policy}, {iteration}: {each:?}");
        }
        let grown = resident_bytes()
            .zip(before)
            .map(|(now, before)| now.saturating_sub(before));
        assert!(grown.unwrap_or(0) < 200 << 20, "{policy}: {grown:?}");
        // Under each policy, a cache keeps a minimum of memory. The largest minimum is Bump's arena
        // of 64 KiB.
        let most_bytes = (MANY * (64 << 10) + 64 * MIB) as u64;
        let reserved_bytes = device.memory_stats().reserved_bytes;
        assert!(reserved_bytes <= most_bytes, "{policy}: {reserved_bytes}");

        let each = time_each(|index| {
            let stats = stats(&device, &name(index));
            assert_eq!((stats.entries, stats.live_blocks), (2, 0));
            Ok(())
        })?;
        assert!(each < ENOUGH, "{policy}, statistics: {each:?}");
        device.invalidate_all_caches();
        assert_eq!(device.memory_stats().allocated_bytes, 0, "{policy}");
        let each = time_each(|index| {
            device.remove_cache(&name(index));
            Ok(())
        })?;
        assert!(each < ENOUGH, "{policy}, removal: {each:?}");
        assert_eq!(device.cache_stats(&name(MANY / 2)), None);
    }
    Ok(())
}

/// Returns names that are hard to print. The last names look alike, but differ.
fn odd_names() -> Vec<String> {
    vec![
        String::new(),
        " ".into(),
        "\0".into(),
        "a\0b".into(),
        "two\nlines".into(),
        "tab\tand\rreturn".into(),
        "\u{1b}[31mred".into(),
        "ünïcode 漢字 🦀".into(),
        "\u{202e}backwards".into(),
        "quote\"d".into(),
        "back\\slash".into(),
        "x".repeat(MIB),
        format!("{}y", "x".repeat(MIB)),
    ]
}

#[test]
fn a_name_may_be_anything() -> Result<()> {
    let device = device();
    let _device = device.enter();
    for (index, name) in odd_names().iter().enumerate() {
        for _ in 0..3 {
            cache_scope!(name, policy = POLICIES[index % 4], {
                let handle = scope::current().expect("entered");
                assert_eq!(handle.name(), name);
                drop(Buffer::new(&device, 1000)?);
            });
        }
    }
    for name in &odd_names() {
        assert_eq!(stats(&device, name).entries, 3);
        device.configure_cache(name, CacheConfig::default());
        device.invalidate_cache(name);
    }
    cache_scope!("", { assert_eq!(stats(&device, "").entries, 4) });
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    for name in &odd_names() {
        device.remove_cache(name);
        assert_eq!(device.cache_stats(name), None);
    }
    Ok(())
}

/// Checks that the text has `lines` lines of bounded length, without control characters.
fn assert_tidy(text: &str, lines: usize) {
    assert_eq!(text.lines().count(), lines, "{text}");
    let controls = text.chars().filter(|c| c.is_control() && *c != '\n');
    assert_eq!(controls.count(), 0, "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() < 300));
}

#[test]
fn the_table_is_one_whatever_the_names_are() -> Result<()> {
    let device = device();
    let _device = device.enter();
    for name in &odd_names() {
        cache_scope!(name, policy = Policy::Recycle, {
            drop(Buffer::new(&device, 1000)?)
        });
    }
    let report = scope::report();
    let names: Vec<_> = report.caches.iter().map(|cache| &cache.name).collect();
    let mut expected = odd_names();
    expected.sort();
    assert_eq!(names, expected.iter().collect::<Vec<_>>(), "as they are");
    let text = report.to_string();
    assert_tidy(&text, 2 + odd_names().len());
    let widths: Vec<_> = text
        .lines()
        .skip(1)
        .map(|row| row.chars().count())
        .collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    for shown in ["ünïcode 漢字 🦀", "two\\nlines", "a\\0b"] {
        assert!(text.contains(shown), "{shown:?} is missing from\n{text}");
    }
    Ok(())
}

#[test]
fn an_error_names_any_scope_in_one_line() -> Result<()> {
    let config = DeviceConfig {
        memory_limit: Some(4 * MIB as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    let plain = cache_scope!("plain", device = &device, {
        Buffer::new(&device, 5 * MIB).unwrap_err().to_string()
    });
    assert!(plain.contains("in the scope \"plain\""), "{plain}");
    for name in &odd_names() {
        let text = cache_scope!(name, device = &device, {
            Buffer::new(&device, 5 * MIB).unwrap_err().to_string()
        });
        assert_tidy(&text, plain.lines().count());
    }
    let _elsewhere = uncached!(Buffer::new(&device, 100)?);
    Ok(())
}
