//! Rules 4 to 6: nested scopes, requests outside of scopes, and all kinds of exits.

use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

use cachescope::{Array, Buffer, Device, ErrorKind, Policy, Result, cache_scope, scope, uncached};

use crate::scopes::{device, stats};

#[test]
fn an_inner_scope_binds_and_the_outer_one_is_bound_again() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    let misses = |name| device.cache_stats(name).map_or(0, |stats| stats.misses);
    cache_scope!("outer", {
        Array::<u8>::zeros([10])?;
        cache_scope!("inner", {
            Array::<u8>::zeros([10])?;
        });
        assert_eq!((misses("outer"), misses("inner")), (1, 1));
        Array::<u8>::zeros([10])?;
        assert_eq!(stats(&device, "outer").hits, 1);
    });
    Array::<u8>::zeros([10])?;
    assert_eq!((misses("outer"), misses("inner")), (1, 1));
    Ok(())
}

#[test]
fn the_same_name_inside_itself_is_one_scope() -> Result<()> {
    for policy in [Policy::Recycle, Policy::Release] {
        let device = device();
        let _guard = device.enter();
        cache_scope!("loop", policy = policy, {
            let outer = Array::<u8>::full([100], 1)?;
            let inner = cache_scope!("loop", {
                Array::<u8>::zeros([100])?;
                Array::<u8>::full([100], 2)?
            });
            assert_eq!(
                stats(&device, "loop").escaped_blocks,
                0,
                "still inside the outermost"
            );
            let third = Array::<u8>::full([100], 3)?;
            assert_eq!(
                (outer.to_vec()?[0], inner.to_vec()?[0], third.to_vec()?[0]),
                (1, 2, 3)
            );
        });
        assert_eq!(stats(&device, "loop").entries, 1);
    }
    Ok(())
}

#[test]
fn uncached_allocations_belong_to_no_cache() -> Result<()> {
    let device = device();
    let _guard = device.enter();
    cache_scope!("loop", {
        let outside = uncached!({ Array::<u8>::zeros([10])? });
        let too = uncached!(Array::<u8>::zeros([10])?);
        assert_eq!(stats(&device, "loop").live_blocks, 0);
        assert!(uncached!(scope::current()).is_none());
        uncached!({
            cache_scope!("loop", {
                let inside = Array::<u8>::zeros([10])?;
                assert_eq!(stats(&device, "loop").live_blocks, 1);
                drop(inside);
            });
        });
        drop((outside, too));
        assert_eq!(stats(&device, "loop").cached_blocks, 1);
    });
    Ok(())
}

fn leave(device: &Device, how: u32) -> Result<u32> {
    for iteration in 0.. {
        cache_scope!("exits", device = device, {
            Buffer::new(device, 100)?;
            match how {
                0 => return Ok(iteration),
                1 => break,
                2 if iteration == 0 => continue,
                2 => return Ok(iteration),
                3 => {
                    Buffer::new(device, usize::MAX)?;
                }
                _ => panic!("on purpose"),
            }
        });
    }
    Ok(99)
}

#[test]
fn exit_runs_however_the_block_is_left() {
    let device = device();
    assert_eq!(leave(&device, 0).unwrap(), 0);
    assert_eq!(leave(&device, 1).unwrap(), 99);
    assert_eq!(leave(&device, 2).unwrap(), 1);
    assert_eq!(
        leave(&device, 3).unwrap_err().kind(),
        ErrorKind::InvalidShape
    );
    assert!(catch_unwind(|| leave(&device, 4)).is_err());
    assert!(scope::current().is_none(), "every entry was left");
    let stats = stats(&device, "exits");
    assert_eq!(
        (stats.entries, stats.misses, stats.hits),
        (6, 1, 5),
        "and the cache serves on"
    );
}

/// Types that the library keeps consistent through a panic do not require `AssertUnwindSafe`.
#[test]
fn handles_may_be_used_after_a_panic() {
    fn unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    unwind_safe::<cachescope::Device>();
    unwind_safe::<cachescope::Stream>();
    unwind_safe::<cachescope::Buffer>();
    unwind_safe::<cachescope::Array<f32>>();
    unwind_safe::<cachescope::Error>();
    unwind_safe::<scope::ScopeHandle>();
}
