//! The expansion uses no names of the surrounding code, and defines no names in it.

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

/// Calls a macro with every identifier of current and earlier expansions, and similar identifiers.
macro_rules! with_words {
    ($declare:ident) => {
        $declare! {
            __guard guard exit enter enter_site enter_named enter_uncached scopeguard ScopeGuard
            SITE CallSite ScopeOptions policy max_bytes device name site options
            core std alloc cachescope __private option Option Some None Ok Err Result
            convert AsRef as_ref primitive str bool u8 usize new drop Drop
            A B C D L A1 L1 pass Pass lane Lane Lazy operators __elementwise Apply Function IntoExpr Expr into_lazy
            apply apply1 apply2 apply3 apply4 element text length joined of cast
            PARTS BYTES NAME CUDA RARE Output __apply __CUDA __RARE exp mul rare cuda
            clone marker fmt Clone Copy Debug
        }
    };
}

/// Defines the content of each module below. The identifiers are names of the caller's items.
macro_rules! uses_the_macros {
    () => {
        pub fn run() -> u32 {
            let one = ::scoped::cache_scope!("words", { 1 });
            let two = ::scoped::cache_scope!("words", max_bytes = 1 << 20, { one + 1 });
            let named = concat!("wo", "rds");
            let other = ::scoped::Device::host();
            let how = ::scoped::Policy::Recycle;
            let three = ::scoped::cache_scope!(named, device = &other, policy = how, < two + 1 >);
            let four = ::scoped::cache_scope!("words", {
                if three > 3 {
                    return 0;
                }
                three + 1
            });
            ::scoped::uncached!({ four + 1 })
        }

        ::scoped::elementwise! {
            /// Computes an expression of a function, a method and operators.
            pub fn scaled(x: f32, y: f32) -> f32 {
                let sum = halved(x) + y.exp();
                if sum > 0.5 { sum * 2.0 } else { -sum }
            }

            fn halved(x: f32) -> f32 {
                x / 2.0
            }

            fn chosen(p: f32, q: f32, r: f32, s: f32) -> ::std::primitive::bool {
                p < q && r as i32 > s as i32
            }
        }

        pub fn computed() -> ::std::vec::Vec<f32> {
            let x = ::scoped::Array::from_slice(&[4.0_f32, -6.0], 2).unwrap();
            let y = ::scoped::Array::from_slice(&[0.0_f32, 0.0], 2).unwrap();
            let truth = chosen(&x, 1.0, 2.0, 1.0).eval().unwrap();
            ::std::assert_eq!(truth.to_vec().unwrap(), [false, true]);
            scaled(&x, &y).eval().unwrap().to_vec().unwrap()
        }
    };
}

/// Modules in which every identifier is the name of an item of one kind.
#[allow(
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unused_macros,
    clippy::upper_case_acronyms,
    reason = "the names are what might clash"
)]
mod words {
    pub mod statics {
        macro_rules! declare {
            ($($word:ident)*) => { $(static $word: u64 = 0;)* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod constants {
        macro_rules! declare {
            ($($word:ident)*) => { $(const $word: u64 = 0;)* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod unit_structures {
        macro_rules! declare {
            ($($word:ident)*) => { $(struct $word;)* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod functions {
        macro_rules! declare {
            ($($word:ident)*) => { $(fn $word() {})* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod types {
        macro_rules! declare {
            ($($word:ident)*) => { $(type $word = u64;)* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod traits {
        macro_rules! declare {
            ($($word:ident)*) => { $(trait $word {})* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod modules {
        macro_rules! declare {
            ($($word:ident)*) => { $(mod $word {})* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
    pub mod macros {
        macro_rules! declare {
            ($($word:ident)*) => { $(macro_rules! $word { () => {}; })* };
        }
        with_words!(declare);
        uses_the_macros!();
    }
}

#[test]
fn means_no_item_of_the_caller_whatever_it_is_called() {
    let runs = [
        words::statics::run,
        words::constants::run,
        words::unit_structures::run,
        words::functions::run,
        words::types::run,
        words::traits::run,
        words::modules::run,
        words::macros::run,
    ];
    assert_eq!(runs.map(|run| run()), [5; 8]);
    let computed = [
        words::statics::computed,
        words::constants::computed,
        words::unit_structures::computed,
        words::functions::computed,
        words::types::computed,
        words::traits::computed,
        words::modules::computed,
        words::macros::computed,
    ];
    for computed in computed {
        assert_eq!(computed(), [6.0, 2.0]);
    }
}

/// Paths of the caller, through modules with the names of possible parameters of the expansion.
#[allow(non_snake_case, reason = "the names are what might clash")]
mod paths {
    mod A {
        pub use std::primitive::f32;
    }
    mod L {
        pub use std::primitive::f32;
    }

    scoped::elementwise! {
        pub fn B(x: A::f32, y: L::f32) -> A::f32 {
            let z: L::f32 = x * y;
            z as A::f32
        }
    }

    const PARTS: f32 = 0.25;
    const BYTES: f32 = 0.5;

    scoped::elementwise! {
        pub fn sum(x: f32) -> f32 {
            x + PARTS + BYTES
        }
    }
}

#[test]
fn takes_no_word_of_the_call_for_its_own() {
    let x = scoped::Array::from_slice(&[1.5_f32], 1).unwrap();
    assert_eq!(paths::B(&x, 2.0).eval().unwrap().to_vec().unwrap(), [3.0]);
    assert_eq!(paths::sum(&x).eval().unwrap().to_vec().unwrap(), [2.25]);
}
