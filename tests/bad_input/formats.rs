//! Files of formats that the build lacks.

use cachescope::ErrorKind;
use cachescope::grad::files;

use crate::bad_input::{ones, refused};

#[test]
fn a_format_that_the_build_lacks() {
    let path = std::env::temp_dir().join("cachescope-lacks/model.safetensors");
    let words = ["model.safetensors", "feature `safetensors`"];
    let array = ones(&[2]);
    refused(files::save(&array, &path), ErrorKind::Unsupported, &words);
    let loaded = files::load(&array, &path);
    refused(loaded, ErrorKind::Unsupported, &words);
    assert!(!path.exists());
}
