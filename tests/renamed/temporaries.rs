//! Temporaries of the block's last expression drop inside the scope, and the value outlives the
//! scope.

use super::is_bound;
use scoped::{Buffer, Device, cache_scope, cache_stats, uncached};
use std::cell::RefCell;

/// A value that records on drop whether the cache is still bound.
struct Witness<'a> {
    cache: &'static str,
    ends: &'a RefCell<Vec<bool>>,
}

impl Witness<'_> {
    fn number(&self) -> usize {
        self.ends.borrow().len()
    }
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        let bound = is_bound(self.cache);
        self.ends.borrow_mut().push(bound);
    }
}

#[test]
fn of_every_kind_of_last_expression_die_inside() {
    const CACHE: &str = "witness";
    let ends = RefCell::new(Vec::new());
    let witness = || Witness {
        cache: CACHE,
        ends: &ends,
    };
    let numbers = [
        cache_scope!("witness", { witness().number() }),
        cache_scope!("witness", {
            match witness().number() {
                1 => 10,
                _ => 0,
            }
        }),
        cache_scope!("witness", {
            if let 2 = witness().number() { 20 } else { 0 }
        }),
        cache_scope!("witness", < witness().number() >),
        cache_scope!(CACHE, max_bytes = 1 << 20, { witness().number() }),
    ];
    assert_eq!(numbers, [0, 10, 20, 3, 4]);
    assert_eq!(*ends.borrow(), [true; 5]);
}

#[test]
fn die_inside_where_the_call_is_itself_a_last_expression() {
    fn number(ends: &RefCell<Vec<bool>>) -> usize {
        cache_scope!("tail", {
            cache_scope!("tail inner", {
                Witness {
                    cache: "tail inner",
                    ends,
                }
                .number()
            })
        })
    }
    let ends = RefCell::new(Vec::new());
    assert_eq!((number(&ends), ends.take()), (0, vec![true]));
}

#[test]
fn die_inside_on_the_way_out_by_the_question_mark() {
    fn fails(ends: &RefCell<Vec<bool>>) -> Option<usize> {
        let witness = || Witness {
            cache: "error",
            ends,
        };
        cache_scope!("error", {
            witness().number().checked_sub(1)?.checked_add(1)
        })
    }
    let ends = RefCell::new(Vec::new());
    assert_eq!((fails(&ends), ends.take()), (None, vec![true]));
}

#[test]
fn leave_no_block_escaped() {
    let size_bytes = cache_scope!("blocks", {
        Buffer::new(&Device::current(), 512).unwrap().size_bytes()
    });
    let stats = cache_stats("blocks").unwrap();
    assert_eq!(
        (size_bytes, stats.live_blocks, stats.escaped_blocks),
        (512, 0, 0)
    );
}

#[test]
fn outside_every_cache_die_before_the_cache_is_bound_again() {
    let ends = RefCell::new(Vec::new());
    cache_scope!("bare", {
        uncached!(
            Witness {
                cache: "bare",
                ends: &ends
            }
            .number()
        );
        assert!(is_bound("bare"));
    });
    assert_eq!(ends.take(), [false]);
}

#[test]
fn locals_of_the_block_die_inside_and_its_value_does_not() {
    let ends = RefCell::new(Vec::new());
    let value = cache_scope!("value", {
        let _local = Witness {
            cache: "value",
            ends: &ends,
        };
        Witness {
            cache: "value",
            ends: &ends,
        }
    });
    assert_eq!(*ends.borrow(), [true]);
    drop(value);
    assert_eq!(*ends.borrow(), [true, false]);
}

#[test]
fn that_a_let_prolongs_live_on_as_with_any_block() {
    let ends = RefCell::new(Vec::new());
    {
        let value: &Witness = cache_scope!("prolonged", {
            &Witness {
                cache: "prolonged",
                ends: &ends,
            }
        });
        assert_eq!(value.number(), 0);
    }
    assert_eq!(ends.take(), [false]);
}

#[test]
fn of_the_name_and_the_options_die_before_the_block() {
    let ends = RefCell::new(Vec::new());
    let witness = || Witness {
        cache: "before",
        ends: &ends,
    };
    cache_scope!(
        format!("before{}", "-".repeat(witness().number())),
        max_bytes = witness().number() as u64 + 4096,
        {
            assert_eq!(ends.borrow().len(), 2);
        }
    );
}
