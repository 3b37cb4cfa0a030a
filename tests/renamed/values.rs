//! A call of the macro has the value of the block, and types are inferred as for a plain block.

use scoped::{cache_scope, uncached};
use std::borrow::Cow;
use std::fmt::Display;

#[test]
fn the_expected_type_reaches_the_block() {
    let empty: Vec<u8> = cache_scope!("infer", { Vec::new() });
    let parsed: u64 = cache_scope!("infer", { "12".parse().unwrap() });
    let sum: i32 = cache_scope!("infer", { [1, 2, 3].iter().sum() });
    let collected: Result<Vec<i8>, _> = uncached!(["1", "x"].iter().map(|s| s.parse()).collect());
    assert_eq!(
        (empty.len(), parsed, sum, collected.is_err()),
        (0, 12, 6, true)
    );
}

#[test]
fn the_value_coerces_where_it_is_made() {
    let measure: Box<dyn Fn(&str) -> usize> = cache_scope!("coerce", { Box::new(|s| s.len() * 2) });
    let shown: Box<dyn Display> = cache_scope!("coerce", {
        if measure("abc") == 6 {
            Box::new(3)
        } else {
            Box::new("other")
        }
    });
    let slice: &[i32] = cache_scope!("coerce", {
        match shown.to_string().as_str() {
            "3" => &[1, 2, 3],
            _ => &[],
        }
    });
    let function: fn(f64) -> f64 = uncached!(if slice.is_empty() { f64::sin } else { f64::abs });
    assert_eq!((slice, function(-2.0)), (&[1, 2, 3][..], 2.0));
}

#[test]
fn the_type_of_the_value_reaches_the_code_after() {
    let mut items = cache_scope!("after", { Vec::new() });
    items.push(Cow::Borrowed("x"));
    let default = cache_scope!("after", { Default::default() });
    items.extend([default, Cow::Owned(String::from("y"))]);
    assert_eq!(items.concat(), "xy");
}

#[test]
fn references_pass_through() {
    let mut items = vec![3, 1, 2];
    let largest: &mut i32 = cache_scope!("borrow", { items.iter_mut().max().unwrap() });
    *largest = 0;
    let all: &mut Vec<i32> = cache_scope!("borrow", { &mut items });
    all.sort_unstable();
    let again = cache_scope!("borrow", { &mut *all });
    again.push(9);
    all.push(10);
    assert_eq!(items, [0, 1, 2, 9, 10]);
}

#[test]
fn moves_and_borrows_of_the_surroundings_are_those_of_a_plain_block() {
    let text = String::from("moved");
    let name = String::from("kept");
    let mut count = 0;
    let moved = cache_scope!(name, {
        count += 1;
        text
    });
    assert_eq!((moved.as_str(), name.as_str(), count), ("moved", "kept", 1));
    let late;
    cache_scope!("late", { late = moved });
    assert_eq!(late, "moved");
}

#[test]
fn the_call_is_an_expression() {
    let added = cache_scope!("place", { 1 }) + uncached!(2) * cache_scope!("place", { 3 },);
    assert_eq!(added, 7);
    let array = [cache_scope!("place", { 1 }), -cache_scope!("place", { 2 })];
    assert_eq!(array.map(|n| cache_scope!("place", { n * 2 })), [2, -4]);
    let chosen = if cache_scope!("place", { added > 3 }) {
        "many"
    } else {
        "few"
    };
    match cache_scope!("place", { chosen.len() }) {
        4 => assert_eq!(chosen, "many"),
        other => panic!("{other}"),
    }
    assert_eq!(cache_scope!("place", { String::from("abc") }).len(), 3);
    assert_eq!(cache_scope! { "place", { added } }, 7);
    assert_eq!(cache_scope!["place", { added }], 7);
}

#[test]
fn units_and_empty_blocks_are_values_too() {
    let () = cache_scope!("unit", {});
    let () = cache_scope!("unit", <>);
    let () = uncached!({});
    cache_scope! { "unit", {} }
    assert_eq!(super::entries("unit"), 3);
}

#[test]
fn the_block_may_hold_items_attributes_and_loops() {
    let total = cache_scope!(
        "items",
        {
            #![allow(unused_mut)]
            use std::collections::BTreeMap;
            const FACTOR: u32 = 2;
            static OFFSET: u32 = 1;
            struct Scaled(u32);
            impl Scaled {
                fn value(&self) -> u32 {
                    self.0 * FACTOR + OFFSET
                }
            }
            macro_rules! scaled {
            ($($value:expr),*) => { [$(Scaled($value)),*] };
        }
            let mut values: BTreeMap<u32, u32> = BTreeMap::new();
            #[allow(clippy::needless_range_loop)]
            for index in 0..2 {
                #[rustfmt::skip]
            let scaled = scaled![1, 2];
                values.insert(index as u32, scaled[index].value());
            }
            #[cfg(any())]
            compile_error!("not here");
            values.values().sum::<u32>()
        }
    );
    assert_eq!(total, 8);
}

#[test]
fn works_in_generic_code() {
    struct Holder<T, const N: usize>([T; N]);
    trait Sum {
        fn sum(&self) -> f64;
        fn name(&self) -> String {
            cache_scope!("generic", { format!("{}", self.sum()) })
        }
    }
    impl<T: Copy + Into<f64>, const N: usize> Sum for Holder<T, N> {
        fn sum(&self) -> f64 {
            cache_scope!("generic", {
                let widen = |value: &T| -> f64 { (*value).into() };
                self.0.iter().map(widen).sum::<f64>() + N as f64
            })
        }
    }
    assert_eq!(
        (Holder([1_u8, 2]).sum(), Holder([0.5_f32]).sum()),
        (5.0, 1.5)
    );
    assert_eq!(Holder([1_u8]).name(), "2");
}

#[test]
fn fragments_of_other_macros_pass_through() {
    macro_rules! in_scope {
        (uncached $body:block) => {
            uncached!($body)
        };
        ($name:literal, $bytes:expr, $body:block) => {
            cache_scope!($name, max_bytes = $bytes, $body)
        };
        ($name:expr, $body:expr) => {
            cache_scope!($name, { $body })
        };
        ($name:ident => $($body:tt)*) => {
            cache_scope!(stringify!($name), < $($body)* >)
        };
    }
    let one = in_scope!("fragment", 1 << 20, {
        let values = [1, 2];
        values[0]
    });
    let two = in_scope!(String::from("frag") + "ment", one + 1);
    let three = in_scope!(fragment => let four = two + 2; four - one);
    let four = in_scope!(uncached { three + one });
    assert_eq!((one, two, three, four), (1, 2, 3, 4));
    assert_eq!(super::entries("fragment"), 3);
}

#[test]
fn async_code_may_hold_scopes_between_its_awaits() {
    use std::future::{Future, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    async fn work(input: u32) -> u32 {
        let first = cache_scope!("async", { input + 1 });
        let second = ready(first).await;
        let later = cache_scope!("async", {
            async fn nested(value: u32) -> u32 {
                ready(value).await
            }
            async move { nested(second).await * 2 }
        });
        later.await
    }
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(pin!(work(1)).poll(&mut context), Poll::Ready(4));
    assert_eq!(super::entries("async"), 2);
}
