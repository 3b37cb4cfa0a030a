//! Slabs that outlast what they were made for.

use super::*;

/// An entry with requests of these sizes on a stream, each dropped once the next is made.
fn turn(caches: &CachesRef, sizes: &[u64], stream: StreamId) -> Result<()> {
    let _entered = enter(caches, "turn", Some(Policy::Plan));
    let mut last = None;
    for bytes in sizes {
        let handle = caches.allocate(*bytes, stream)?;
        assert_eq!(handle.block.stream, stream, "{bytes} bytes");
        last.replace(handle);
    }
    Ok(())
}

#[test]
fn a_slab_serves_no_plan_of_another_stream() -> Result<()> {
    let caches = caches(None, None);
    let other = caches.memory.backend().new_stream()?;
    for _ in 0..3 {
        turn(&caches, &[100_000, 50_000], StreamId::default())?;
    }
    // More than are remembered, so that the long one is forgotten, whose slab would be long enough.
    for number in 1..6 {
        turn(&caches, &[1000 * number, 2000], other)?;
    }
    for _ in 0..3 {
        turn(&caches, &[5000, 2000], other)?;
        caches.check();
    }
    Ok(())
}
