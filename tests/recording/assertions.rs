//! The assertions of `cachescope::testing`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cachescope::testing::{assert_no_allocations, assert_no_growth, assert_peak, peak_of};
use cachescope::{Array, Buffer, Device, Policy, Result, cache_scope};

use super::device;

/// Returns the message with which `body` panics.
fn panic_of(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn a_peak_is_exact_under_every_policy_and_inside_of_entries() {
    for policy in [Policy::Recycle, Policy::Release, Policy::Bump, Policy::Plan] {
        let device = device();
        let kept = Buffer::new(&device, 10_000).unwrap();
        for _ in 0..4 {
            let ((), peak) = peak_of(&device, || {
                cache_scope!("step", policy = policy, device = &device, {
                    let a = Buffer::new(&device, 1000)?;
                    let b = Buffer::new(&device, 500)?;
                    drop(a);
                    let ((), inner) = peak_of(&device, || {
                        let _c = Buffer::new(&device, 300)?;
                        drop(b);
                        let _d = Buffer::new(&device, 400)?;
                        Ok(())
                    })?;
                    assert_eq!(inner, 300, "what was live before was dropped: {policy}");
                    Ok(())
                })
            })
            .unwrap();
            assert_eq!(peak, 1500, "{policy}");
        }
        drop(kept);
    }
}

#[test]
fn the_error_of_the_body_is_answered() {
    let device = device();
    let refused: Result<((), u64)> = peak_of(&device, || {
        Buffer::new(&device, usize::MAX)?;
        Ok(())
    });
    assert!(refused.is_err());
}

#[test]
fn a_block_that_needs_more_names_the_lines() {
    let device = device();
    let _current = device.enter();
    let value = assert_peak!(&device, 4000, { Array::<f32>::ones([1000]).unwrap().len() });
    assert_eq!(value, 1000);
    let line = line!() + 4;
    let message = panic_of(|| {
        assert_peak!(&device, 4000, {
            cache_scope!("step", {
                let _a = Array::<f32>::ones([800]).unwrap();
                let _b = Array::<f32>::ones([300]).unwrap();
            });
        });
    });
    let [first, second] = [line, line + 1].map(|line| format!("assertions.rs:{line}:"));
    assert!(message.contains("(4400 and 4000 bytes)"), "{message}");
    let (first, second) = (message.find(&first), message.find(&second));
    assert!(first.is_some() && first < second, "{message}");
    assert!(message.contains("in scope \"step\""), "{message}");
}

#[test]
fn question_marks_act_on_the_code_around() {
    fn measured(device: &Device) -> Result<usize> {
        let buffer = assert_peak!(device, 1 << 20, { Buffer::new(device, 100)? });
        assert_peak!(device, 0, { Buffer::new(device, usize::MAX)? });
        Ok(buffer.size_bytes())
    }
    assert!(measured(&device()).is_err());
}

#[test]
fn a_block_that_allocates_names_the_lines() {
    let device = device();
    let _current = device.enter();
    let mut w = Array::<f32>::ones([1000]).unwrap();
    assert_no_allocations!(&device, { w.add_assign(1.0).unwrap() });
    let message = panic_of(|| {
        assert_no_allocations!(&device, {
            w = (&w * 2.0).eval().unwrap();
        });
    });
    assert!(message.contains("made 1 request for memory"), "{message}");
    assert!(message.contains("assertions.rs:"), "{message}");
}

#[test]
fn a_hit_is_a_request() {
    let device = device();
    for _ in 0..2 {
        cache_scope!("step", device = &device, {
            Buffer::new(&device, 64).unwrap();
        });
    }
    let message = panic_of(|| {
        cache_scope!("step", device = &device, {
            assert_no_allocations!(&device, { Buffer::new(&device, 64).unwrap() });
        });
    });
    assert!(message.contains("in scope \"step\""), "{message}");
}

#[test]
fn growth_from_entry_to_entry_names_the_line() {
    let device = device();
    let _current = device.enter();
    let mut first = None;
    assert_no_growth!("settles", 5, {
        first.get_or_insert_with(|| Array::<f32>::ones([100]).unwrap());
        Array::<f32>::ones([1000]).unwrap();
    });
    assert_eq!(device.cache_stats("settles").unwrap().entries, 5);
    let mut kept = Vec::new();
    let line = line!() + 3;
    let message = panic_of(|| {
        assert_no_growth!(String::from("grows"), 10, {
            kept.push(Array::<f32>::ones([25]).unwrap());
            Array::<f32>::ones([1000]).unwrap();
        });
    });
    assert!(message.contains("(100 bytes each)"), "{message}");
    assert!(
        message.contains(&format!("9 of tests/recording/assertions.rs:{line}:")),
        "{message}"
    );
    assert!(
        message.contains("scope \"grows\" grew by 900 B in 9 more entries"),
        "{message}"
    );
}

#[test]
fn a_break_is_no_verdict() {
    let device = device();
    let _current = device.enter();
    let mut entries = 0;
    let message = panic_of(|| {
        assert_no_growth!("breaks", 10, {
            entries += 1;
            if entries == 3 {
                break;
            }
        });
    });
    assert!(message.contains("`break`"), "{message}");
}

#[test]
fn one_entry_shows_no_growth() {
    let message = panic_of(|| assert_no_growth!("once", 1, {}));
    assert!(message.contains("from the second entry on"), "{message}");
}
