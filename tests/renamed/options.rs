//! Names and options of a scope, in every order.

use super::{entries, is_bound};
use scoped::{Buffer, Device, DeviceConfig, Policy, cache_scope};
use std::cell::RefCell;

/// Passes every selection of the options, in every order, to `$then!(name, options…)`.
macro_rules! every_order {
    ($then:ident, $name:expr, $a:tt $b:tt $c:tt) => {
        $then!($name,);
        every_order!(@one $then, $name, $a $b $c);
        every_order!(@one $then, $name, $b $a $c);
        every_order!(@one $then, $name, $c $a $b);
    };
    (@one $then:ident, $name:expr, $a:tt $b:tt $c:tt) => {
        $then!($name, $a);
        $then!($name, $a $b);
        $then!($name, $a $c);
        $then!($name, $a $b $c);
        $then!($name, $a $c $b);
    };
}

#[test]
fn every_order_of_every_choice_is_evaluated_as_written() {
    let steps = RefCell::new(Vec::new());
    let step = |word: &'static str| steps.borrow_mut().push(word);
    let device = Device::current();
    let mut runs = 0;
    macro_rules! run {
        ($name:expr, $([$key:ident = $value:expr])*) => {
            let braces = cache_scope!($name, $($key = { step(stringify!($key)); $value },)* {
                step("block");
                runs += 1;
                runs
            });
            let angles = cache_scope!($name, $($key = { step(stringify!($key)); $value },)* <
                step("block");
                runs += 1;
                runs
            >);
            assert_eq!((braces, angles), (runs - 1, runs));
            let once = [$(stringify!($key),)* "block"];
            assert_eq!(steps.take(), [once, once].concat());
        };
    }
    every_order!(
        run,
        "orders",
        [policy = Policy::Release][max_bytes = 1 << 20][device = &device]
    );
    assert_eq!(
        (runs, device.cache_stats("orders").unwrap().entries),
        (32, 32)
    );
}

#[test]
fn the_name_is_evaluated_first_and_once() {
    let steps = RefCell::new(Vec::new());
    let step = |word: &'static str| {
        steps.borrow_mut().push(word);
        word
    };
    cache_scope!(
        step("name first"),
        max_bytes = step("bytes").len() as u64 + 4096,
        {
            step("block");
        }
    );
    assert_eq!(steps.take(), ["name first", "bytes", "block"]);
    assert_eq!(entries("name first"), 1);
}

#[test]
fn a_name_is_anything_that_reads_as_a_string() {
    const NAME: &str = "names";
    let owned = String::from(NAME);
    struct Named;
    impl AsRef<str> for Named {
        fn as_ref(&self) -> &str {
            NAME
        }
    }
    cache_scope!("names", { assert!(is_bound(NAME)) });
    cache_scope!(r"names", { assert!(is_bound(NAME)) });
    cache_scope!(NAME, { assert!(is_bound(NAME)) });
    cache_scope!(owned, { assert!(is_bound(NAME)) });
    cache_scope!(&owned, { assert!(is_bound(NAME)) });
    cache_scope!(*owned, { assert!(is_bound(NAME)) });
    cache_scope!(format!("na{}", "mes"), { assert!(is_bound(NAME)) });
    cache_scope!(String::from("na") + "mes", { assert!(is_bound(NAME)) });
    cache_scope!(concat!("na", "mes"), { assert!(is_bound(NAME)) });
    cache_scope!(std::borrow::Cow::Borrowed(NAME), {
        assert!(is_bound(NAME))
    });
    cache_scope!(std::rc::Rc::<str>::from(NAME), { assert!(is_bound(NAME)) });
    cache_scope!(Named, { assert!(is_bound(NAME)) });
    cache_scope!({ NAME }, { assert!(is_bound(NAME)) });
    cache_scope!(if owned.is_empty() { "other" } else { NAME }, {
        assert!(is_bound(NAME))
    });
    assert_eq!(entries(NAME), 14);
}

#[test]
fn one_literal_at_two_places_and_a_computed_name_are_one_cache() {
    let first = cache_scope!("shared", {
        Buffer::new(&Device::current(), 1 << 12).unwrap().address()
    });
    let second = cache_scope!("shared", {
        Buffer::new(&Device::current(), 1 << 12).unwrap().address()
    });
    let third = cache_scope!(String::from("shared"), {
        Buffer::new(&Device::current(), 1 << 12).unwrap().address()
    });
    assert_eq!((second, third), (first, first));
}

#[test]
fn the_policy_determines_the_fate_of_idle_blocks() {
    let allocate = || drop(Buffer::new(&Device::current(), 1 << 12).unwrap());
    cache_scope!("recycling", policy = Policy::Recycle, { allocate() });
    cache_scope!("releasing", policy = Policy::Release, { allocate() });
    let idle = |name| scoped::cache_stats(name).unwrap().cached_blocks;
    assert_eq!((idle("recycling"), idle("releasing")), (1, 0));
}

#[test]
fn max_bytes_bounds_what_the_cache_serves() {
    cache_scope!("bounded", max_bytes = 1 << 16, {
        let _large = Buffer::new(&Device::current(), 1 << 20).unwrap();
        assert_eq!(scoped::cache_stats("bounded").unwrap().live_blocks, 0);
        let _small = Buffer::new(&Device::current(), 1 << 10).unwrap();
        assert_eq!(scoped::cache_stats("bounded").unwrap().live_blocks, 1);
    });
}

#[test]
fn the_device_is_current_inside() {
    let other = Device::host_with(DeviceConfig::default()).unwrap();
    let before = Device::current();
    let held = &other;
    for _ in 0..2 {
        cache_scope!("elsewhere", device = &other, {
            assert_eq!(Device::current(), other);
            assert!(is_bound("elsewhere"));
        });
        cache_scope!("elsewhere", device = held, {
            assert!(is_bound("elsewhere"))
        });
        assert_eq!(Device::current(), before);
    }
    assert_eq!(
        (
            entries("elsewhere"),
            other.cache_stats("elsewhere").unwrap().entries
        ),
        (0, 4)
    );
}

#[test]
fn options_may_leave_the_surrounding_code_before_the_scope_is_entered() {
    fn bounded(bytes: Option<u64>) -> Option<bool> {
        Some(cache_scope!("unentered", max_bytes = bytes?, {
            is_bound("unentered")
        }))
    }
    assert_eq!((bounded(None), entries("unentered")), (None, 0));
    assert_eq!(
        (bounded(Some(1 << 20)), entries("unentered")),
        (Some(true), 1)
    );
}
