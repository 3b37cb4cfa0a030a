//! Blocks that diverge, values of `()`, and unused values. The code causes no warning of the
//! compiler or clippy, and must cause none inside a scope.

use scoped::{cache_scope, uncached};

/// Returns in both branches of the block. For a plain block, clippy would suggest a value instead
/// of `return`.
#[allow(clippy::needless_return)]
pub fn returns(number: u32) -> u32 {
    let _unused = number;
    cache_scope!("clean", {
        if number > 1 {
            return number;
        } else {
            return 1;
        }
    })
}

/// Returns in a block that is a statement, in a function with a value.
#[allow(clippy::needless_return)]
pub fn returns_as_a_statement() -> u32 {
    cache_scope!("clean", { return 2 });
}

/// Returns in a block without a value, in a function without a value.
pub fn returns_nothing(done: &mut bool) {
    cache_scope!("clean", {
        *done = true;
        if *done {
            return;
        }
        *done = false;
    });
    *done = false;
}

/// Diverges in a block that should have a value.
pub fn diverges_where_a_value_is_expected(number: Option<u32>) -> u32 {
    let found: u32 = match number {
        Some(number) => number,
        None => cache_scope!("clean", { return 3 }),
    };
    found + 1
}

/// Breaks and continues in blocks.
pub fn jumps() -> u32 {
    let mut rounds = 0;
    loop {
        rounds += 1;
        if rounds < 3 {
            cache_scope!("clean", { continue });
        }
        if rounds == 3 {
            cache_scope!("clean", { break rounds });
        }
    }
}

/// Panics in blocks.
pub fn panics(really: bool) -> u32 {
    if rarely() {
        cache_scope!("clean", < unreachable!() >);
    }
    if really {
        cache_scope!("clean", { panic!("really") })
    } else {
        4
    }
}

fn rarely() -> bool {
    false
}

/// Loops forever in a block.
pub fn never_ends() -> ! {
    cache_scope!("clean", {
        loop {
            std::thread::park();
        }
    })
}

/// Evaluates blocks with one token or with none.
pub fn short() -> u32 {
    cache_scope!("clean", {});
    cache_scope!("clean", { () });
    cache_scope!("clean", <>);
    uncached!({});
    let five = 5;
    let five = cache_scope!("clean", { five });
    let five = uncached!(five);
    uncached!({ five })
}

/// Discards the values of blocks.
pub fn unused(values: &[u32]) {
    cache_scope!("clean", { values.len() });
    cache_scope!("clean", { values });
    let _ = cache_scope!("clean", { values.first().ok_or("empty") });
    let _ = cache_scope!("clean", { must_be_used() });
    let _ = uncached!(must_be_used());
    cache_scope! { "clean", {} }
}

/// Returns a value that must be used.
#[must_use]
pub fn must_be_used() -> u32 {
    cache_scope!("clean", { 6 })
}

/// Passes results through every kind of block.
///
/// # Errors
///
/// The parse error, if `text` is not a number.
pub fn results(text: &str) -> Result<u32, std::num::ParseIntError> {
    cache_scope!("clean", { text.parse::<u32>()? });
    cache_scope!("clean", { text.parse::<u32>() })?;
    let number = uncached!(text.parse::<u32>())?;
    cache_scope!("clean", { Ok(number) })
}

/// Writes names and options in common styles.
pub fn names(layer: usize, name: &String) -> usize {
    let named = cache_scope!(format!("clean {layer}"), { layer });
    let borrowed = cache_scope!(name, max_bytes = 1 << 20, { named });
    let device = scoped::Device::host();
    let shared = &device;
    let policy = scoped::Policy::default();
    let first = cache_scope!("clean", device = &device, policy = policy, { borrowed });
    cache_scope!(name.as_str(), policy = policy, device = shared, { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_code_also_runs() {
        assert_eq!(
            (returns(7), returns(0), returns_as_a_statement()),
            (7, 1, 2)
        );
        let _: fn() -> ! = never_ends;
        let mut done = false;
        returns_nothing(&mut done);
        assert!(done);
        let expected = [Some(8), None].map(diverges_where_a_value_is_expected);
        assert_eq!((expected, jumps(), panics(false)), ([9, 3], 3, 4));
        assert!(std::panic::catch_unwind(|| panics(true)).is_err());
        assert_eq!((short(), must_be_used()), (5, 6));
        unused(&[1]);
        assert_eq!((results("7"), results("x").is_err()), (Ok(7), true));
        assert_eq!(names(8, &String::from("clean")), 8);
        assert!(!super::super::is_bound("clean"));
    }
}
