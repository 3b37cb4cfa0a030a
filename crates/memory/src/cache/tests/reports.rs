//! Out-of-memory reports: the limit that they advise, the lines that they name, and their remedy.

use super::*;
use crate::size::parse_bytes;

const MIB: u64 = 1 << 20;

/// A limit, the bytes that are live, and a request that the binned pool refuses beside them.
const REFUSED: [(u64, u64, u64); 3] = [
    (96 * MIB, 0, 92 * MIB),
    (10 * MIB, 0, 9 * MIB + 5),
    (12 * MIB, 6 * MIB, 5 * MIB),
];

fn request(caches: &CachesRef, bytes: u64) -> Result<BlockHandle> {
    caches.allocate_on(bytes, StreamId::default())
}

/// Returns the limit that the remedy of a failed request advises.
fn advised_bytes(error: &crate::error::Error) -> u64 {
    let remedy = error.out_of_memory_report().unwrap().remedy();
    let (before, _) = remedy.split_once(" or more").expect("it advises a limit");
    let (_, size) = before.rsplit_once(" to ").expect("it advises a limit");
    parse_bytes(size).unwrap()
}

#[test]
fn the_advised_limit_suffices_for_the_size_that_the_pool_takes() {
    for (limit_bytes, live_bytes, bytes) in REFUSED {
        let caches = caches_over(PoolKind::Binned, Some(limit_bytes), None);
        let _live = request(&caches, live_bytes).unwrap();
        let error = request(&caches, bytes).unwrap_err();
        let advised_bytes = advised_bytes(&error);
        assert!(advised_bytes > limit_bytes, "{error}");
        caches.set_limit(Some(advised_bytes));
        assert!(request(&caches, bytes).is_ok(), "{error}");
    }
}

#[test]
fn the_advised_limit_suffices_for_the_blocks_of_the_largest_entry() {
    let caches = caches_over(PoolKind::Binned, None, None);
    let entry = || {
        let _scope = enter(&caches, "r", None);
        let first = request(&caches, 5 * MIB)?;
        request(&caches, 5 * MIB).map(|second| drop((first, second)))
    };
    entry().unwrap();
    caches.invalidate("r");
    caches.set_limit(Some(12 * MIB));
    let _outside = request(&caches, 6 * MIB).unwrap();
    let error = entry().unwrap_err();
    assert!(error.to_string().contains("so far took at most"), "{error}");
    caches.set_limit(Some(advised_bytes(&error)));
    entry().unwrap();
}
