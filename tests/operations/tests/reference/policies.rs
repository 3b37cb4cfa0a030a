//! The cases under every policy, in memory that is overwritten before it is reused. No kernel may
//! depend on the old contents of a block.

use cachescope::{DeviceConfig, Policy, cache_scope};
use under_test::device_with;

use crate::reference::book::Book;
use crate::reference::trial::Outcome;
use crate::reference::{TABLES, assert_agreement};

/// A byte of bits 1: NaN in every float type, and −1 or the largest number in the integer types.
const PATTERN: u8 = 0xff;
/// The number of cases in one entry.
const CASES: usize = 300;
/// The number of entries. The plan is made before the last entry, and in the last entry Bump's
/// arena has its final size.
const ENTRIES: usize = 3;

fn check(policy: Policy) {
    for &(name, table) in TABLES {
        let device = device_with(DeviceConfig {
            fill_recycled: Some(PATTERN),
            ..DeviceConfig::default()
        });
        let device = device.unwrap();
        let _current = device.enter();
        let book = Book::read(name);
        let mut outcome = Outcome::default();
        for (number, cases) in book.cases.chunks(CASES).enumerate() {
            let scope = format!("{name} {number}");
            for _ in 0..ENTRIES {
                cache_scope!(&scope, policy = policy, {
                    for case in cases {
                        outcome.try_case(&book, case, table);
                    }
                });
            }
            let stats = device.cache_stats(&scope).unwrap();
            assert!(stats.hits > stats.misses, "{scope}: {stats:?}");
            device.remove_cache(&scope);
        }
        assert_agreement(&book, &outcome);
    }
}

#[test]
fn recycled_blocks_may_hold_anything() {
    check(Policy::Recycle);
}

#[test]
fn blocks_of_the_pool_may_hold_anything() {
    check(Policy::Release);
}

#[test]
fn chunks_may_hold_anything() {
    check(Policy::Bump);
}

#[test]
fn slabs_may_hold_anything() {
    check(Policy::Plan);
}
