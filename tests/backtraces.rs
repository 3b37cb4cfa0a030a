//! Backtraces of allocations: the callers of the function that allocated.

use std::hint::black_box;

use cachescope::record::{EventKind, RecordOptions, Recording};
use cachescope::{Array, Device, DeviceConfig, Result, cache_scope};

/// Uses the result of a call. Otherwise, the call would be a tail call, which leaves no frame of
/// the caller.
fn used(array: Array<f32>) -> Result<Array<f32>> {
    Ok(black_box(array))
}

#[inline(never)]
fn innermost() -> Result<Array<f32>> {
    used(Array::ones([1000])?)
}

#[inline(never)]
fn one_caller() -> Result<Array<f32>> {
    used(innermost()?)
}

#[inline(never)]
fn other_caller() -> Result<Array<f32>> {
    used(innermost()?)
}

/// Allocates in a tail call, so that this function leaves no frame.
#[inline(never)]
fn from_the_tail() -> Result<Array<f32>> {
    Array::ones([1000])
}

/// Records `program` on a new device. If `backtraces`, the recording has backtraces. Returns the
/// recording and the program's result.
fn record<R>(backtraces: bool, program: impl FnOnce() -> Result<R>) -> Result<(Recording, R)> {
    let device = Device::host_with(DeviceConfig::default())?;
    let _device = device.enter();
    let options = RecordOptions {
        backtraces,
        ..RecordOptions::default()
    };
    let recording = device.record(options)?;
    Ok((recording, program()?))
}

#[inline(never)]
fn steps() -> Result<()> {
    for _ in 0..5 {
        cache_scope!("step", {
            one_caller()?;
            other_caller()?;
        });
    }
    Ok(())
}

#[test]
fn each_allocation_has_the_stack_of_its_callers() -> Result<()> {
    let profile = record(true, steps)?.0.profile();
    assert_eq!(profile.stacks.len(), 2, "each stack once");
    let callers = ["one_caller", "other_caller"];
    for (stack, caller) in profile.stacks.iter().zip(callers) {
        let functions: Vec<_> = stack.iter().map(|frame| frame.function.as_str()).collect();
        let ends = |at: usize, name: &str| functions[at].ends_with(name);
        assert!(ends(0, "innermost") && ends(1, caller), "{functions:?}");
        assert!(
            functions.iter().any(|name| name.ends_with("steps")),
            "{functions:?}"
        );
        assert!(
            !functions.iter().any(|name| name.contains("lang_start")),
            "{functions:?}"
        );
        assert!(stack[0].file.ends_with("tests/backtraces.rs") && stack[0].line > 0);
    }
    let of_stack = |number| {
        let events = profile.events.iter();
        events.filter(move |event| event.kind.is_allocation() && event.stack == Some(number))
    };
    assert_eq!([0, 1].map(|number| of_stack(number).count()), [5, 5]);
    let frees = profile.events.iter().filter(|event| event.kind.is_free());
    assert!(frees.clone().count() == 10 && frees.into_iter().all(|event| event.stack.is_some()));
    let others = profile
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Enter);
    assert!(others.into_iter().all(|event| event.stack.is_none()));
    Ok(())
}

#[test]
fn frames_of_this_crate_are_left_out() -> Result<()> {
    let program = || Ok((used(from_the_tail()?)?, one_caller()?));
    let (recording, _kept) = record(true, program)?;
    let profile = recording.profile();
    assert_eq!(profile.stacks.len(), 2);
    for stack in &profile.stacks {
        assert!(stack[0].file.ends_with("tests/backtraces.rs"), "{stack:?}");
        // Without debug information, frames have no files, and functions have mangled names.
        let own = |frame: &cachescope::record::Frame| frame.function.starts_with("cachescope::");
        assert!(!stack.iter().any(own), "{stack:?}");
    }
    Ok(())
}

#[test]
fn captures_no_backtrace_unless_requested() -> Result<()> {
    let profile = record(false, steps)?.0.profile();
    assert!(profile.stacks.is_empty());
    assert!(profile.events.iter().all(|event| event.stack.is_none()));
    Ok(())
}

#[test]
fn stacks_of_the_peak_show_the_callers() -> Result<()> {
    let (recording, _kept) = record(true, one_caller)?;
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/backtraces.folded");
    recording.write(path)?;
    let text = std::fs::read_to_string(path).expect("it was written");
    let called = text.lines().any(|line| {
        let callers = line.split(';').map(|frame| frame.contains("one_caller"));
        callers
            .zip(line.split(';').skip(1))
            .any(|(is_caller, next)| is_caller && next.contains("innermost"))
    });
    assert!(called, "{text}");
    Ok(())
}
