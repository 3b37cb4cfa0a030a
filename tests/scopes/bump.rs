//! The policy Bump, which advances a pointer.

use cachescope::{Array, Buffer, Device, DeviceConfig, Policy, Result, cache_scope};
use under_test::device_with;

use crate::scopes::{device, stats};

/// Returns the addresses of buffers of these sizes. Each buffer is dropped before the next buffer
/// is made.
fn addresses(device: &Device, sizes: &[usize]) -> Result<Vec<u64>> {
    cache_scope!("bump", policy = Policy::Bump, device = device, {
        sizes
            .iter()
            .map(|size| Ok(Buffer::new(device, *size)?.address()))
            .collect()
    })
}

#[test]
fn nothing_is_used_twice_before_the_exit_and_everything_after() -> Result<()> {
    let device = device();
    let sizes = [512, 512, 100, 5000, 512];
    addresses(&device, &sizes)?;
    let first = addresses(&device, &sizes)?;
    let steps: Vec<_> = first.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, [512, 512, 512, 5120], "one after the other");
    assert_eq!(addresses(&device, &sizes)?, first);
    Ok(())
}

#[test]
fn one_chunk_of_the_high_water_mark_serves_every_entry_after_the_first() -> Result<()> {
    let device = device();
    let sizes = [3 << 20; 40];
    addresses(&device, &sizes)?;
    let cold = stats(&device, "bump");
    assert!(
        cold.misses > 1,
        "the first entry does not know what it needs"
    );
    assert_eq!(cold.cached_bytes, 0, "its chunks are given back");
    addresses(&device, &sizes)?;
    assert_eq!(stats(&device, "bump").misses, cold.misses + 1);
    for _ in 0..100 {
        addresses(&device, &sizes)?;
    }
    let warm = stats(&device, "bump");
    assert_eq!(
        (warm.misses, warm.hits),
        (cold.misses + 1, 102 * 40 - warm.misses)
    );
    assert_eq!(warm.cached_bytes, 40 * (3 << 20));
    Ok(())
}

#[test]
fn a_chunk_with_an_escaped_array_is_set_aside_until_that_drops() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let iteration = |value: f32| {
        cache_scope!("bump", policy = Policy::Bump, {
            let kept = Array::full([1000], value)?;
            let dropped = Array::full([1000], -value)?;
            drop(dropped);
            Ok::<_, cachescope::Error>(kept)
        })
    };
    let mut kept = Vec::new();
    for value in 0..20 {
        kept.push(iteration(value as f32)?);
        for (expected, array) in kept.iter().enumerate() {
            assert!(
                array
                    .to_vec()?
                    .iter()
                    .all(|value| *value == expected as f32)
            );
        }
    }
    assert_eq!(stats(&device, "bump").escaped_blocks, 20);
    device.invalidate_cache("bump");
    let odd: Vec<_> = kept
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % 2 == 1)
        .collect();
    for (expected, array) in &odd {
        assert!(
            array
                .to_vec()?
                .iter()
                .all(|value| *value == *expected as f32)
        );
    }
    drop(odd);
    device.invalidate_cache("bump");
    let memory = device.memory_stats();
    assert_eq!(
        (memory.allocated_bytes, memory.live_blocks),
        (0, 0),
        "every chunk came back"
    );
    Ok(())
}

#[test]
fn an_invalidation_leaves_nothing_of_chunks_that_were_given_up() -> Result<()> {
    let device = device();
    // The exit releases several arenas, which a later entry would replace by one arena.
    addresses(&device, &[5 << 20; 4])?;
    device.invalidate_cache("bump");
    let stats = stats(&device, "bump");
    assert_eq!((stats.cached_blocks, stats.cached_bytes), (0, 0));
    Ok(())
}

#[test]
fn what_escapes_outlives_the_cache_and_the_device() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let kept = cache_scope!("bump", policy = Policy::Bump, {
        drop(Array::full([5000], 1u8)?);
        [Array::full([5000], 2u8)?, Array::full([5000], 3u8)?]
    });
    device.remove_cache("bump");
    let [second, third] = kept;
    std::thread::spawn(move || assert!(second.to_vec().unwrap().iter().all(|value| *value == 2)))
        .join()
        .unwrap();
    assert!(
        device.memory_stats().allocated_bytes >= 5000,
        "the chunk of the third stays"
    );
    assert!(third.to_vec()?.iter().all(|value| *value == 3));
    drop(third);
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn a_nested_entry_pops_to_its_mark_or_above_what_lives() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let new = || Buffer::new(&device, 512);
    for _ in 0..3 {
        cache_scope!("bump", policy = Policy::Bump, {
            let outer = new()?;
            cache_scope!("bump", {
                drop((new()?, new()?, new()?));
            });
            let after = new()?;
            assert_eq!(after.address(), outer.address() + 512, "popped to the mark");
            let returned = cache_scope!("bump", {
                let (_first, second, _third) = (new()?, new()?, new()?);
                second
            });
            assert_eq!(returned.address(), after.address() + 1024);
            let above = new()?;
            assert_eq!(
                above.address(),
                returned.address() + 512,
                "above the highest live block"
            );
            drop(returned);
            assert_eq!(
                new()?.address(),
                above.address() + 512,
                "not before an exit"
            );
        });
    }
    Ok(())
}

#[test]
fn a_block_of_the_outer_entry_that_drops_inside_is_not_the_inner_ones() -> Result<()> {
    let device = device();
    let _current = device.enter();
    let new = |value: u8| Array::full([512], value);
    cache_scope!("bump", policy = Policy::Bump, {
        let outer = new(1)?;
        let inner = cache_scope!("bump", {
            drop(outer);
            new(2)?
        });
        let next = new(3)?;
        assert!(inner.to_vec()?.iter().all(|value| *value == 2));
        assert!(next.to_vec()?.iter().all(|value| *value == 3));
    });
    Ok(())
}

#[test]
fn a_limit_of_the_sum_of_one_entry_is_enough() -> Result<()> {
    let sizes: Vec<usize> = (1..=20).map(|index| index * 300_000).collect();
    let sum_bytes: usize = sizes.iter().sum();
    let limit_bytes = (sum_bytes as f64 * 1.05) as u64;
    let config = DeviceConfig {
        memory_limit: Some(limit_bytes),
        ..Default::default()
    };
    let device = device_with(config)?;
    for _ in 0..10 {
        addresses(&device, &sizes)?;
    }
    assert!(device.memory_stats().peak_reserved_bytes <= limit_bytes);
    Ok(())
}

/// Large requests between small requests must not leave the remainder of each arena unused.
#[test]
fn a_first_entry_under_a_tight_limit_wastes_nothing_between_its_chunks() -> Result<()> {
    let sizes: Vec<usize> = (0..40)
        .flat_map(|index| [4000 + index, 300_000 - 4 * index, 90_000])
        .collect();
    let sum_bytes: usize = sizes.iter().sum();
    let config = DeviceConfig {
        memory_limit: Some((sum_bytes as f64 * 1.05) as u64),
        ..Default::default()
    };
    let device = device_with(config)?;
    for _ in 0..5 {
        let mut distinct = addresses(&device, &sizes)?;
        distinct.sort_unstable();
        let steps = distinct.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.min() >= Some(4096), "parts lie apart");
    }
    Ok(())
}

#[test]
fn max_bytes_bounds_the_chunk() -> Result<()> {
    let device = device();
    for _ in 0..3 {
        cache_scope!(
            "bump",
            policy = Policy::Bump,
            max_bytes = 100_000,
            device = &device,
            {
                let held: Vec<_> = (0..30)
                    .map(|_| Buffer::new(&device, 10_000))
                    .collect::<Result<_>>()?;
                let stats = stats(&device, "bump");
                assert!(
                    stats.live_bytes + stats.cached_bytes <= 100_000,
                    "{stats:?}"
                );
                drop(held);
            }
        );
    }
    Ok(())
}

#[test]
fn a_new_policy_takes_effect_at_the_next_outermost_entry() -> Result<()> {
    let device = device();
    let new = || Buffer::new(&device, 4096);
    let scope = device.scope("cache");
    let configure = |policy| {
        device.configure_cache(
            "cache",
            cachescope::CacheConfig {
                policy,
                ..Default::default()
            },
        );
    };
    configure(Policy::Bump);
    for policy in [
        Policy::Recycle,
        Policy::Bump,
        Policy::Release,
        Policy::Bump,
        Policy::Recycle,
    ] {
        let _outer = scope.enter();
        let first = new()?.address();
        let bumps = new()?.address() != first;
        configure(policy);
        {
            let _inner = scope.enter();
            let again = new()?.address();
            assert_eq!(new()?.address() != again, bumps, "not inside");
        }
    }
    device.invalidate_cache("cache");
    assert_eq!(device.memory_stats().allocated_bytes, 0);
    Ok(())
}

#[test]
fn an_array_of_nothing_is_no_part_of_a_chunk() -> Result<()> {
    let device = device();
    for _ in 0..3 {
        let nothing = cache_scope!("bump", policy = Policy::Bump, device = &device, {
            drop(Buffer::new(&device, 1000)?);
            let nothing = Buffer::new(&device, 0)?;
            assert_eq!(nothing.address(), 0);
            nothing
        });
        assert_eq!(stats(&device, "bump").live_blocks, 0);
        drop(nothing);
    }
    Ok(())
}
