//! Blocks in angle brackets.

use super::is_bound;
use scoped::{Policy, cache_scope};

#[test]
fn is_the_same_block() {
    let doubled = cache_scope!("angle", <
        assert!(is_bound("angle"));
        let value = 21;
        value * 2
    >);
    assert_eq!(doubled, 42);
    assert!(!is_bound("angle"));
}

#[test]
fn holds_comparisons_and_shifts() {
    let (a, b) = (6_u32, 3_u32);
    assert!(cache_scope!("compare", < a > b >));
    assert!(cache_scope!("compare", < b < a >));
    assert!(cache_scope!("compare", < a >= b >));
    assert_eq!(cache_scope!("compare", < a >> 1 << b >> 2 >), 6);
    assert_eq!(cache_scope!("compare", <if a > b { a } else { b }>), 6);
    let mut shifted = a;
    cache_scope!("compare", < shifted >>= 1; shifted <<= 2; >);
    assert_eq!(shifted, 12);
}

#[test]
#[rustfmt::skip]
fn holds_generics_up_to_the_last_token() {
    let nested = cache_scope!("generics", < Vec::<Vec<u8>>::with_capacity(1) >);
    assert!(nested.is_empty());
    assert_eq!(cache_scope!("generics", < std::mem::size_of::<Option<Box<u8>>> >)(), 8);
    assert_eq!(cache_scope!("generics", <std::mem::size_of::<Option<Box<u8>>>>)(), 8);
    assert_eq!(cache_scope!("generics", <<u8 as Default>::default()>), 0);
    assert_eq!(cache_scope!("generics", <-1>), -1);
}

#[test]
fn holds_arrows() {
    let choose = cache_scope!("arrows", <
        |value: i32| -> &'static str {
            match value {
                1 => "one",
                other if other < 0 => "negative",
                _ => "many",
            }
        }
    >);
    assert_eq!(
        [choose(1), choose(-1), choose(2)],
        ["one", "negative", "many"]
    );
}

#[test]
fn holds_scopes_of_either_form() {
    let order = cache_scope!("outer angle", <
        let inner = cache_scope!("inner angle", < is_bound("inner angle") && 1 < 2 >);
        inner && cache_scope!("inner angle", { is_bound("inner angle") })
    >);
    assert!(order && !is_bound("inner angle"));
}

#[test]
fn takes_options_and_a_trailing_comma() {
    let value =
        cache_scope!("angle options", max_bytes = 1 << 30, policy = Policy::Release, < 1 >,);
    assert_eq!(value, 1);
}

#[test]
fn lets_control_flow_out() {
    fn first_above(limit: u32, items: &[u32]) -> Option<u32> {
        for &item in items {
            cache_scope!("flow", < if item > limit { return Some(item) } >);
        }
        None
    }
    assert_eq!(
        (first_above(1, &[1, 2]), first_above(2, &[1, 2])),
        (Some(2), None)
    );
    assert!(!is_bound("flow"));
}
