//! Tests of opening devices by ordinal, and of the resulting errors.

use std::process::Command;

use cachescope::{Array, Device, DeviceConfig, ErrorKind, PoolKind};

use crate::device::{DEVICE_BYTES, DEVICES, EmulatorLock};

#[test]
fn there_is_one_device_for_each_ordinal_and_more_on_request() {
    let lock = EmulatorLock::take();
    {
        let own = Device::cuda_with(0, DeviceConfig::default()).unwrap();
        let other = Device::cuda_with(0, DeviceConfig::default()).unwrap();
        assert_ne!(own, other);
        assert_eq!(own.to_string(), "cuda:0");
        let _guard = own.enter();
        assert_eq!(Array::<f32>::zeros(3).unwrap().device(), &own);
    }
    lock.end();
    assert_eq!(Device::cuda(1).unwrap(), Device::cuda(1).unwrap());
    assert_ne!(Device::cuda(1).unwrap(), Device::cuda(2).unwrap());
    let all = Device::available();
    assert_eq!(all.len(), DEVICES + 1);
    assert_eq!(all[DEVICES], Device::host());
    assert_eq!(all[1], Device::cuda(1).unwrap());
    assert_eq!("cuda:1".parse::<Device>().unwrap(), all[1]);
    lock.assert_no_misuse();
}

#[test]
fn an_ordinal_out_of_range_is_an_error_with_the_count() {
    let _lock = EmulatorLock::take();
    for ordinal in [DEVICES, 63, usize::MAX] {
        let error = Device::cuda(ordinal).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&format!("cuda:{ordinal}")) && text.contains("3 devices"),
            "{text}"
        );
    }
}

#[test]
fn the_limit_in_percent_is_of_the_device() {
    let _lock = EmulatorLock::take();
    let told = child(
        "child_fills_its_device",
        &[("CACHESCOPE_MEMORY_LIMIT", "50%")],
    );
    assert_eq!(told, ((DEVICE_BYTES / 2) >> 20).to_string());
    let told = child(
        "child_fills_its_device",
        &[
            ("CACHESCOPE_MEMORY_LIMIT", "5MiB"),
            ("CACHESCOPE_POOL", "stream-ordered"),
        ],
    );
    assert_eq!(told, "5");
}

#[test]
fn each_obstacle_is_an_error_with_advice() {
    let _lock = EmulatorLock::take();
    let obstacles = [
        ("CACHESCOPE_TEST_WITHOUT", "1", "install NVIDIA's driver"),
        (
            "CACHESCOPE_EMULATOR_VERSION",
            "11080",
            "CUDA 11.8, and 12.0 or later is needed",
        ),
        ("CACHESCOPE_EMULATOR_DEVICES", "0", "CUDA_ERROR_NO_DEVICE"),
        (
            "CACHESCOPE_MEMORY_LIMIT",
            "much",
            "CACHESCOPE_MEMORY_LIMIT=much",
        ),
    ];
    for (name, value, says) in obstacles {
        let told = child("child_opens_a_device", &[(name, value)]);
        assert!(told.contains(says), "{name}={value}: {told}");
        assert!(
            told.starts_with("Driver") || name.contains("LIMIT"),
            "{told}"
        );
        assert!(told.contains("available: 1"), "{told}");
    }
}

#[test]
fn a_device_without_driver_pools_is_an_error() {
    let _lock = EmulatorLock::take();
    let told = child(
        "child_opens_a_device",
        &[
            ("CACHESCOPE_EMULATOR_POOLS", "0"),
            ("CACHESCOPE_POOL", "stream-ordered"),
        ],
    );
    assert!(
        told.starts_with("Unsupported") && told.contains("memory pools"),
        "{told}"
    );
}

#[test]
fn a_device_without_ranges_has_segments() {
    let _lock = EmulatorLock::take();
    let settings = [("CACHESCOPE_EMULATOR_VIRTUAL_MEMORY", "0")];
    let told = child("child_fills_its_device", &settings);
    assert!(
        told.parse::<usize>().unwrap() >= (DEVICE_BYTES >> 20) / 2,
        "{told}"
    );
}

#[test]
fn child_opens_a_device() {
    if is_child() {
        let opened = Device::cuda(0).map(|device| device.to_string());
        let available = Device::available().len();
        println!(
            "<<{} available: {available}>>",
            opened.unwrap_or_else(|error| format!("{error:?}"))
        );
    }
}

/// Prints the number of MiB that can be allocated on the device.
#[test]
fn child_fills_its_device() {
    if is_child() {
        let device = Device::cuda(0).unwrap();
        let _guard = device.enter();
        let held: Vec<_> = (0..1000)
            .map_while(|_| Array::<u8>::zeros(1 << 20).ok())
            .collect();
        println!("<<{}>>", held.len());
    }
}

pub(crate) fn is_child() -> bool {
    std::env::var_os("CACHESCOPE_TEST_CHILD").is_some()
}

/// Runs a test in a separate process. Returns the text that it prints between `<<` and `>>`.
pub(crate) fn child(name: &str, variables: &[(&str, &str)]) -> String {
    let output = run_child("opening", name, variables);
    let begin = output.find("<<").expect("the child says something") + 2;
    output[begin..output.find(">>").unwrap()].to_owned()
}

/// Runs a test in a separate process. Returns its whole output.
pub(crate) fn run_child(module: &str, name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for variable in ["POOL", "MEMORY_LIMIT", "POLICY", "TRACE"] {
        command.env_remove(format!("CACHESCOPE_{variable}"));
    }
    let output = command
        .args([
            "--exact",
            &format!("device::{module}::{name}"),
            "--nocapture",
        ])
        .envs(variables.iter().copied())
        .env("CACHESCOPE_TEST_CHILD", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn the_pool_is_as_configured() {
    let lock = EmulatorLock::take();
    for pool in crate::device::POOLS {
        let device = crate::device::device(pool);
        let _guard = device.enter();
        let array = Array::<u8>::zeros(5000).unwrap();
        let expected = if pool == PoolKind::Binned { 8192 } else { 5120 };
        assert_eq!(device.memory_stats().allocated_bytes, expected, "{pool}");
        drop(array);
    }
    lock.end();
}
