//! Every exit from the block acts on the surrounding code, and exits the scope.

use super::{entries, is_bound};
use scoped::{cache_scope, uncached};
use std::panic::catch_unwind;

#[test]
fn binds_inside_and_not_outside() {
    assert!(!is_bound("through"));
    let value = cache_scope!("through", {
        assert!(is_bound("through"));
        7
    });
    assert_eq!(value, 7);
    assert!(!is_bound("through"));
    assert_eq!(entries("through"), 1);
}

#[test]
fn leaves_on_the_question_mark() {
    fn parse(text: &str) -> Result<u32, std::num::ParseIntError> {
        let number = cache_scope!("question", {
            assert!(is_bound("question"));
            text.parse::<u32>()?
        });
        assert!(!is_bound("question"));
        Ok(number + 1)
    }
    assert_eq!(parse("41"), Ok(42));
    assert!(parse("x").is_err());
    assert!(!is_bound("question"));
    assert_eq!(entries("question"), 2);
}

#[test]
fn leaves_on_the_question_mark_of_an_option() {
    fn second(items: &[u32]) -> Option<u32> {
        Some(cache_scope!("option", { *items.get(1)? }))
    }
    assert_eq!((second(&[1, 2]), second(&[1])), (Some(2), None));
    assert!(!is_bound("option"));
}

#[test]
fn leaves_on_return() {
    fn early(stop: bool) -> &'static str {
        cache_scope!("return", {
            assert!(is_bound("return"));
            if stop {
                return "early";
            }
        });
        "late"
    }
    assert_eq!((early(true), early(false)), ("early", "late"));
    assert!(!is_bound("return"));
    assert_eq!(entries("return"), 2);
}

#[test]
fn leaves_on_break_with_a_value() {
    let mut round = 0;
    let found = loop {
        cache_scope!("break", {
            assert!(is_bound("break"));
            round += 1;
            if round == 3 {
                break round * 10;
            }
        });
        assert!(!is_bound("break"));
    };
    assert_eq!((found, entries("break")), (30, 3));
    assert!(!is_bound("break"));
}

#[test]
fn leaves_on_continue() {
    let mut kept = Vec::new();
    for number in 0..6 {
        let half = cache_scope!("continue", {
            if number % 2 == 1 {
                continue;
            }
            number / 2
        });
        assert!(!is_bound("continue"));
        kept.push(half);
    }
    assert_eq!((kept, entries("continue")), (vec![0, 1, 2], 6));
    assert!(!is_bound("continue"));
}

#[test]
fn leaves_every_scope_that_a_label_jumps_out_of() {
    let mut visited = Vec::new();
    let last = 'outer: loop {
        for number in 0.. {
            cache_scope!("outer label", {
                cache_scope!("inner label", {
                    visited.push(number);
                    match number {
                        0 => continue,
                        1 if visited.len() < 4 => continue 'outer,
                        2 => break 'outer number,
                        _ => {}
                    }
                });
            });
        }
    };
    assert_eq!((last, visited), (2, vec![0, 1, 0, 1, 2]));
    assert!(!is_bound("outer label") && !is_bound("inner label"));
}

#[test]
fn jumps_within_the_block_stay_within_the_scope() {
    let sum = cache_scope!("within", {
        let mut sum = 0;
        let found = 'search: {
            for number in 0..10 {
                if number == 3 {
                    continue;
                }
                sum += number;
                if sum > 6 {
                    break 'search number;
                }
            }
            0
        };
        assert!(is_bound("within"));
        (sum, found)
    });
    assert_eq!(sum, (7, 4));
}

#[test]
fn leaves_on_panic_and_serves_on() {
    let panicked: std::thread::Result<u32> = catch_unwind(|| {
        cache_scope!("panic", {
            assert!(is_bound("panic"));
            std::panic::resume_unwind(Box::new("out"))
        })
    });
    let payload = panicked.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"out"));
    assert!(!is_bound("panic"));
    assert!(cache_scope!("panic", { is_bound("panic") }));
    assert_eq!(entries("panic"), 2);
}

#[test]
fn nested_scopes_bind_the_inner_cache_and_then_the_outer_again() {
    cache_scope!("outer", {
        cache_scope!("inner", {
            assert!(is_bound("inner") && !is_bound("outer"));
            cache_scope!("outer", {
                assert!(is_bound("outer") && !is_bound("inner"))
            });
            assert!(is_bound("inner") && !is_bound("outer"));
        });
        assert!(is_bound("outer") && !is_bound("inner"));
    });
    assert!(!is_bound("outer"));
}

#[test]
fn uncached_unbinds_and_a_scope_inside_binds_again() {
    cache_scope!("cached", {
        let (bare, inner) = uncached!({
            let inner = cache_scope!("again", { is_bound("again") });
            (!is_bound("cached"), inner)
        });
        assert!(bare && inner);
        assert!(!uncached!(is_bound("cached")));
        assert!(is_bound("cached"));
    });
    assert!(!uncached!(is_bound("cached")));
}

#[test]
fn uncached_ends_on_every_way_out() {
    fn first(items: &[Option<u32>]) -> Option<u32> {
        for item in items {
            let number = uncached!({
                match item {
                    Some(0) => break,
                    Some(1) => continue,
                    other => (*other)?,
                }
            });
            assert!(is_bound("ways out"));
            uncached!(return Some(number));
        }
        Some(0)
    }
    cache_scope!("ways out", {
        for (items, expected) in [
            (&[Some(1), Some(5)], Some(5)),
            (&[Some(0), Some(5)], Some(0)),
            (&[Some(1), None], None),
        ] {
            assert_eq!(first(items), expected);
            assert!(is_bound("ways out"));
        }
    });
}
