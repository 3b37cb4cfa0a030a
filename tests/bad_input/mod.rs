//! Bad input, one test for each kind. Every operation that may get bad input returns an error of
//! the right kind and never panics. The error names the operation, the shapes and the mistake.

// Builds of the whole workspace enable `safetensors`, so they leave out this module.
#[cfg(all(feature = "npy", not(feature = "safetensors")))]
mod formats;
mod indices;
#[cfg(feature = "linalg")]
mod matrices;
mod messages;
mod settings;
mod shapes;
mod values;
mod windows;

use std::panic::Location;

use cachescope::{Array, ErrorKind, Result};

/// Checks that a call failed with an error of `kind`, and that the message contains all `words`.
#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, words: &[&str]) {
    let error = result.err().expect("that is no input for it");
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    let (here, location) = (Location::caller(), error.location());
    let is_here = |location: &Location<'_>| {
        location.file() == here.file() && location.line().abs_diff(here.line()) < 12
    };
    assert!(
        location.is_some_and(is_here),
        "not {here}, but {location:?}: {text}"
    );
    assert!(
        text.contains(&format!(" at {}", location.unwrap())),
        "{text}"
    );
    for word in words {
        assert!(text.contains(word), "\"{word}\" is missing in: {text}");
    }
}

fn ones(shape: &[usize]) -> Array<f32> {
    Array::ones(shape).unwrap()
}

fn places(values: &[i64]) -> Array<i64> {
    Array::from_slice(values, values.len()).unwrap()
}
