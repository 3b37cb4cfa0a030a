//! The expansion needs nothing of the code around it and lends it nothing.

use super::is_bound;

#[test]
fn sees_no_local_of_the_caller_and_shows_none() {
    let __guard = "the caller's";
    let (guard, exit, enter) = (1, 2, 3);
    let seen = scoped::cache_scope!("locals", { (__guard, guard + exit + enter) });
    assert_eq!(seen, ("the caller's", 6));
}

#[test]
fn sees_no_item_of_the_caller_and_shows_none() {
    const SITE: u32 = 5;
    #[allow(dead_code)]
    fn guard() {}
    let from_block = scoped::cache_scope!("items", { SITE });
    let from_name = scoped::cache_scope!(SITE.to_string(), max_bytes = u64::from(SITE), { SITE });
    let from_option = scoped::cache_scope!("items", max_bytes = u64::from(SITE) << 20, {
        is_bound("items")
    });
    assert_eq!((from_block, from_name, from_option), (5, 5, true));
}

#[test]
fn needs_no_prelude_and_no_name_of_the_caller() {
    assert_eq!(bare::run(), 6);
    assert!(!is_bound("bare names"));
}

#[no_implicit_prelude]
mod bare {
    #[allow(dead_code)]
    mod core {}
    #[allow(dead_code)]
    mod scopeguard {}
    #[allow(dead_code)]
    pub enum Option {
        Some,
        None,
    }

    pub fn run() -> u32 {
        let one = ::scoped::cache_scope!("bare names", { 1 });
        let name = "bare names";
        let two = ::scoped::cache_scope!(name, max_bytes = 1 << 20, < one + 1 >);
        one + two + ::scoped::uncached!(one + two)
    }
}
