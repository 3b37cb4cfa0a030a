//! Compiled kernels on disk, as processes that follow one another find them.

use std::fs;
use std::path::{Path, PathBuf};

use cachescope::Array;

use crate::Turn;
use crate::opening::{is_child, run_child};

/// How many kernels a process with that cache and these settings compiles, and what it computes.
fn told(cache: &Path, settings: &[(&str, &str)]) -> String {
    let cache = ("CACHESCOPE_TEST_KERNELS", cache.to_str().unwrap());
    let output = run_child("kernels", "child_adds", &[settings, &[cache]].concat());
    let begin = output.find("<<").expect("the child says something") + 2;
    output[begin..output.find(">>").unwrap()].to_owned()
}

#[test]
fn child_adds() {
    if is_child() {
        let turn = Turn::take();
        let sum = (Array::from_slice(&[1, 2, 3], 3).unwrap() + 1).eval();
        let sum = sum.and_then(|sum| sum.to_vec()).unwrap();
        println!(
            "<<{}: {sum:?}>>",
            turn.control.calls_of("nvrtcCompileProgram")
        );
    }
}

#[test]
fn child_fails_to_load() {
    if is_child() {
        let _turn = Turn::take();
        let error = (Array::from_slice(&[1, 2, 3], 3).unwrap() + 1).eval();
        println!("<<{}>>", error.unwrap_err());
    }
}

#[test]
fn a_compiler_beyond_the_driver_is_told_with_both_versions() {
    let _turn = Turn::take();
    let cache = nowhere("kernels-of-a-later-compiler");
    let settings = [
        ("CACHESCOPE_TEST_KERNELS", cache.to_str().unwrap()),
        ("CACHESCOPE_EMULATOR_NVRTC", "13000"),
        ("CACHESCOPE_EMULATOR_VERSION", "12040"),
    ];
    let told = run_child("kernels", "child_fails_to_load", &settings);
    assert!(told.contains("loading the kernel"), "{told}");
    assert!(
        told.contains("NVRTC 13.0 compiled it, and the driver is for CUDA 12.4"),
        "{told}"
    );
    let _ = fs::remove_dir_all(cache);
}

/// A path of the test's own, where nothing is.
fn nowhere(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn a_kernel_is_compiled_once_and_again_where_its_file_is_damaged() {
    let _turn = Turn::take();
    let cache = nowhere("kernels-to-damage");
    assert_eq!(told(&cache, &[]), "1: [2, 3, 4]");
    assert_eq!(told(&cache, &[]), "0: [2, 3, 4]");
    let files: Vec<_> = fs::read_dir(&cache).unwrap().collect();
    let [file] = &files[..] else {
        panic!("{files:?}");
    };
    let file = file.as_ref().unwrap().path();
    let whole = fs::read(&file).unwrap();
    let mut turned = whole.clone();
    turned[whole.len() / 2] ^= 0x55;
    for damaged in [&turned[..], &whole[..whole.len() / 2], &[]] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(told(&cache, &[]), "1: [2, 3, 4]");
        assert_eq!(fs::read(&file).unwrap(), whole, "it is made good");
        assert_eq!(told(&cache, &[]), "0: [2, 3, 4]");
    }
    fs::remove_dir_all(cache).unwrap();
}

/// Another compiler, or another device, makes other code of the same text.
#[test]
fn a_kernel_is_of_its_compiler_and_its_device() {
    let _turn = Turn::take();
    let cache = nowhere("kernels-of-others");
    assert_eq!(told(&cache, &[]), "1: [2, 3, 4]");
    for setting in [
        ("CACHESCOPE_EMULATOR_ARCH", "90"),
        ("CACHESCOPE_EMULATOR_NVRTC", "12060"),
    ] {
        assert_eq!(told(&cache, &[setting]), "1: [2, 3, 4]", "{setting:?}");
        assert_eq!(told(&cache, &[setting]), "0: [2, 3, 4]", "{setting:?}");
    }
    assert_eq!(told(&cache, &[]), "0: [2, 3, 4]");
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn a_cache_that_cannot_be_written_costs_time_and_nothing_else() {
    let _turn = Turn::take();
    let file = nowhere("kernels-in-the-way");
    fs::write(&file, "a file").unwrap();
    for cache in [file.as_path(), &file.join("below"), Path::new("")] {
        assert_eq!(told(cache, &[]), "1: [2, 3, 4]", "{}", cache.display());
    }
    fs::remove_file(file).unwrap();
}
