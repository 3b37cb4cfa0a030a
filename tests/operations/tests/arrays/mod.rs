//! Arrays as a user uses them: construction, moves, views, indexing, comparison and printing.

mod axes;
mod compare;
mod complex;
mod construct;
mod copies;
mod extremes;
mod index;
mod interpolation;
mod locations;
mod model;
mod networks;
mod norm_rows;
mod parts;
mod picking;
mod policies;
mod print;
mod random;
mod ranges;
mod regions;
mod sampling;
mod selection;
mod sort;
mod threads;
mod transfer;
#[cfg(feature = "fft")]
mod transforms;
mod views;
mod windows;

use cachescope::{Device, DeviceConfig, ErrorKind, Result};
use under_test::device_with;

/// Asserts that `outcome` is an error of `kind` whose text contains `text`.
#[track_caller]
fn fails<T>(outcome: Result<T>, kind: ErrorKind, text: &str) {
    match outcome {
        Ok(_) => panic!("expected {kind:?}: {text}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
            let here = std::panic::Location::caller().file();
            assert!(
                error
                    .location()
                    .is_some_and(|location| location.file() == here),
                "{error:?}"
            );
        }
    }
}

/// Returns a new host device whose recycled memory is filled with bytes that no result may contain.
fn dirty_device() -> Result<Device> {
    device_with(DeviceConfig {
        fill_recycled: Some(0xA5),
        ..Default::default()
    })
}
