//! Tests of the kernel cache on disk, which consecutive processes share.

use std::fs;
use std::path::{Path, PathBuf};

use cachescope::{Array, Device};

use crate::device::EmulatorLock;
use crate::device::opening::{is_child, run_child};

/// Returns the output of a child process: the number of compiled kernels, and a computed sum. The
/// child uses the given kernel cache and settings.
fn told(cache: &Path, settings: &[(&str, &str)]) -> String {
    let cache = ("CACHESCOPE_TEST_KERNELS", cache.to_str().unwrap());
    let output = run_child("kernels", "child_adds", &[settings, &[cache]].concat());
    let begin = output.find("<<").expect("the child says something") + 2;
    output[begin..output.find(">>").unwrap()].to_owned()
}

#[test]
fn child_adds() {
    if is_child() {
        let lock = EmulatorLock::take();
        let sum = (Array::from_slice(&[1, 2, 3], 3).unwrap() + 1).eval();
        let sum = sum.and_then(|sum| sum.to_vec()).unwrap();
        println!(
            "<<{}: {sum:?}>>",
            lock.control.calls_of("nvrtcCompileProgram")
        );
    }
}

#[test]
fn child_fails_to_load() {
    if is_child() {
        let _lock = EmulatorLock::take();
        let error = (Array::from_slice(&[1, 2, 3], 3).unwrap() + 1).eval();
        println!("<<{}>>", error.unwrap_err());
    }
}

#[test]
fn a_compiler_newer_than_the_driver_is_an_error_with_both_versions() {
    let _lock = EmulatorLock::take();
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

/// First, two threads compile different kernels concurrently. Then four threads request the same
/// kernel.
#[test]
fn child_compiles_by_threads() {
    if !is_child() {
        return;
    }
    let lock = EmulatorLock::take();
    let device = Device::current();
    let evaluated = |number: usize| {
        let _guard = device.enter();
        let x = Array::from_slice(&[1.0f32, 2.0, 3.0], 3).unwrap();
        let result = match number {
            0 => (x * 2.0).eval(),
            1 => (x - 1.0).eval(),
            _ => (x + 4.0).eval(),
        };
        result.unwrap().to_vec().unwrap()
    };
    let by_threads = |numbers: &[usize]| {
        std::thread::scope(|scope| {
            let evaluated = &evaluated;
            let threads: Vec<_> = numbers
                .iter()
                .map(|&number| scope.spawn(move || evaluated(number)))
                .collect();
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            results.collect::<Vec<_>>()
        })
    };
    let mut results = Vec::new();
    let compiled = lock.calls_of("nvrtcCompileProgram", || {
        lock.control.meet_compilations(2);
        results.extend(by_threads(&[0, 1]));
    });
    let again = lock.calls_of("nvrtcCompileProgram", || {
        results.extend(by_threads(&[2; 4]));
    });
    println!("<<{compiled} and {again}: {results:?}>>");
}

#[test]
fn different_kernels_are_compiled_at_the_same_time_and_each_once() {
    let _lock = EmulatorLock::take();
    let cache = nowhere("kernels-of-threads");
    let cache_name = [("CACHESCOPE_TEST_KERNELS", cache.to_str().unwrap())];
    let output = run_child("kernels", "child_compiles_by_threads", &cache_name);
    let last = "[5.0, 6.0, 7.0]";
    let expected =
        format!("<<2 and 1: [[2.0, 4.0, 6.0], [0.0, 1.0, 2.0], {last}, {last}, {last}, {last}]>>");
    assert!(output.contains(&expected), "{output}");
    fs::remove_dir_all(cache).unwrap();
}

/// One operation compiles several kernels concurrently.
#[test]
fn child_compiles_for_an_operation() {
    if !is_child() {
        return;
    }
    let lock = EmulatorLock::take();
    let values: Vec<u64> = (0..70_000).map(|at| (at * 7919) >> 3).collect();
    let x = Array::from_slice(&values, values.len()).unwrap();
    let mut counts = Vec::new();
    lock.control.meet_compilations(2);
    let mut results = Vec::new();
    for _ in 0..2 {
        counts.push(lock.calls_of("nvrtcCompileProgram", || {
            results.push(x.sort(0).unwrap().to_vec().unwrap());
        }));
    }
    let mut expected = values;
    expected.sort_unstable();
    assert!(results.iter().all(|result| *result == expected));
    println!("<<{counts:?}>>");
}

#[test]
fn the_kernels_of_an_operation_are_compiled_at_the_same_time() {
    let _lock = EmulatorLock::take();
    let cache = nowhere("kernels-of-operations");
    let cache_name = [("CACHESCOPE_TEST_KERNELS", cache.to_str().unwrap())];
    let output = run_child("kernels", "child_compiles_for_an_operation", &cache_name);
    assert!(output.contains("<<[2, 0]>>"), "{output}");
    fs::remove_dir_all(cache).unwrap();
}

/// Returns a path that is specific to the test, and deletes what exists there.
fn nowhere(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn a_kernel_is_compiled_once_and_again_where_its_file_is_damaged() {
    let _lock = EmulatorLock::take();
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

/// A different compiler or device requires a separate compilation of the kernel.
#[test]
fn a_kernel_is_of_its_compiler_and_its_device() {
    let _lock = EmulatorLock::take();
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
    let _lock = EmulatorLock::take();
    let file = nowhere("kernels-in-the-way");
    fs::write(&file, "a file").unwrap();
    for cache in [file.as_path(), &file.join("below"), Path::new("")] {
        assert_eq!(told(cache, &[]), "1: [2, 3, 4]", "{}", cache.display());
    }
    fs::remove_file(file).unwrap();
}
