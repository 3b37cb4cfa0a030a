//! Tests of failing calls of cublasLt, and of the life of its descriptors.

use cachescope::grad::nn::Linear;
use cachescope::ndarray::s;
use cachescope::{Array, Device, DeviceConfig, ErrorKind, Result};

use crate::device::EmulatorLock;
use crate::device::failures::leaks;

/// The functions that are called for a new product. The functions that release are not in the list.
const FUNCTIONS: [&str; 8] = [
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
    "cublasCreate_v2",
];

const RELEASES: [&str; 3] = [
    "cublasLtMatmulDescDestroy",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatmulPreferenceDestroy",
];

/// Applies a layer on a new device, twice if the first time fails.
fn program() -> Result<()> {
    let device = Device::cuda_with(2, DeviceConfig::default())?;
    let _guard = device.enter();
    let layer = Linear::<f32> {
        weight: Array::full([8, 6], 2.0)?,
        bias: Some(Array::full(8, 3.0)?),
    };
    let x = Array::<f32>::ones([5, 6])?;
    let apply = || {
        let sums = layer.forward(&x)?;
        assert_eq!(sums.to_vec()?, [15.0; 40]);
        Ok(())
    };
    let first = apply();
    apply()?;
    first
}

#[test]
fn each_failed_call_of_cublas_lt_is_an_error_that_names_it() {
    let lock = EmulatorLock::take();
    program().unwrap();
    for name in FUNCTIONS {
        let calls = lock.calls_of(name, || program().unwrap());
        assert!(calls > 0, "{name}");
        for call in 1..=calls {
            let alive = lock.control.report();
            let failed = lock.control.failed();
            lock.control.fail_named(name, call, 999);
            let outcome = program();
            lock.control.fail_named(name, 0, 0);
            if lock.control.failed() > failed {
                let error = outcome.unwrap_err();
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Driver, "{text}");
                assert!(text.contains(name) && text.contains("cuda:2: "), "{text}");
            }
            let left = leaks(lock.control.report(), alive);
            assert_eq!(left, 0, "call {call} of {name}");
        }
    }
    lock.assert_no_misuse();
}

#[test]
fn a_failed_release_of_a_descriptor_leaks_one_descriptor() {
    let lock = EmulatorLock::take();
    program().unwrap();
    for name in RELEASES {
        let alive = lock.control.report();
        lock.control.fail_named(name, 1, 999);
        program().unwrap();
        assert_eq!(leaks(lock.control.report(), alive), 1, "{name}");
    }
    lock.assert_no_misuse();
}

#[test]
fn a_device_holds_a_bounded_number_of_descriptors() -> Result<()> {
    let lock = EmulatorLock::take();
    {
        let device = Device::cuda_with(0, DeviceConfig::default())?;
        let _guard = device.enter();
        let layer = Linear::<f32>::new(2, 4)?;
        let rows = Array::<f32>::ones([2000, 2])?;
        let mut most = 0;
        for count in 2..1200 {
            let some = rows.slice(s![..count, ..])?;
            layer.forward(&some)?;
            most = most.max(lock.control.report().descriptors - lock.before.descriptors);
        }
        // A plan has four descriptors.
        assert_eq!(most, 4 * 1024);
    }
    lock.end();
    Ok(())
}
