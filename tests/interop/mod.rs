//! Arrays of other crates, and arrays in files.

mod dlpack;
mod foreign;
mod ndarrays;
#[cfg(feature = "npy")]
mod npy;
#[cfg(feature = "serde")]
mod serde;

use cachescope::{ErrorKind, Result};

/// Asserts that `outcome` is an error of `kind` whose text contains all of `texts`.
#[track_caller]
fn fails<T>(outcome: Result<T>, kind: ErrorKind, texts: &[&str]) {
    match outcome {
        Ok(_) => panic!("expected {kind:?}: {texts:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{error}");
            for text in texts {
                assert!(error.to_string().contains(text), "{error} lacks {text:?}");
            }
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
