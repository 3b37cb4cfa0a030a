//! Tests of late drops: after the device, on another thread, and at the end of the process.

use std::cell::RefCell;
use std::sync::Mutex;

use cachescope::{Array, Device, DeviceConfig, PoolKind, graph};

use crate::device::opening::{is_child, run_child};
use crate::device::{EmulatorLock, POOLS, device, numbers};

#[test]
fn arrays_outlive_their_device_s_handles() {
    for pool in POOLS {
        let lock = EmulatorLock::take();
        {
            let array = {
                let device = device(pool);
                let _guard = device.enter();
                Array::from_vec(numbers(5, 9000), 9000).unwrap()
            };
            assert_eq!(array.to_vec().unwrap(), numbers(5, 9000));
            std::thread::spawn(move || drop(array)).join().unwrap();
        }
        lock.end();
    }
}

/// When the device ends, it destroys the cuBLAS handle and the workspace of each stream, and the
/// captured graphs.
#[test]
fn memory_of_products_and_graphs_is_released() {
    let lock = EmulatorLock::take();
    {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let other = device.new_stream().unwrap();
        let factor = Array::<f32>::ones([20, 20]).unwrap();
        for stream in [device.default_stream(), other] {
            let _guard = stream.enter();
            let product = factor.matmul(&factor).unwrap();
            assert_eq!(product.to_vec().unwrap(), [20.0; 400]);
        }
        let mut filled = Array::<u32>::zeros(1000).unwrap();
        let graph = graph::capture(&device, || filled.fill(3)).unwrap();
        graph.launch().unwrap();
        assert_eq!(filled.to_vec().unwrap(), [3; 1000]);
        let alive = lock.control.report();
        assert_eq!(alive.executables, lock.before.executables + 1);
        drop(graph);
        assert_eq!(lock.control.report().executables, lock.before.executables);
    }
    lock.end();
}

thread_local! {
    static LATE: RefCell<Vec<Array<u32>>> = const { RefCell::new(Vec::new()) };
}

#[test]
fn arrays_in_thread_locals_drop_with_their_thread() {
    let lock = EmulatorLock::take();
    std::thread::spawn(|| {
        let device = device(PoolKind::BestFit);
        let _guard = device.enter();
        let array = Array::full(1000, 1u32).unwrap();
        LATE.with_borrow_mut(|late| late.push(array));
    })
    .join()
    .unwrap();
    lock.end();
}

#[test]
fn the_end_of_the_process_is_quiet() {
    let _lock = EmulatorLock::take();
    for pool in POOLS {
        let pool = pool.to_string();
        let text = run_child(
            "ending",
            "child_ends_with_everything_alive",
            &[("CACHESCOPE_POOL", &pool)],
        );
        assert!(
            text.contains("<<ready>>") && text.contains("<<dropped>>"),
            "{text}"
        );
        for bad in ["panicked", "misuse", "abort"] {
            assert!(!text.contains(bad), "{pool}: {text}");
        }
    }
}

/// A device and an array that live until the process ends.
static KEPT: Mutex<Option<(Device, Array<u32>)>> = Mutex::new(None);

/// Registers a C destructor that drops the device late. Destructors run in the reverse order of
/// their registration. This destructor is registered before `main`, and before the driver is
/// loaded. So it runs after the driver's destructors.
pub(crate) fn drop_after_the_driver() {
    extern "C" fn drop_late() {
        let late = KEPT.lock().map(|mut kept| kept.take());
        if let Ok(Some(late)) = late {
            drop(late);
            println!("<<dropped>>");
        }
    }
    // SAFETY: the function exists until the process ends.
    assert_eq!(unsafe { atexit(drop_late) }, 0);
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> i32;
}

#[test]
fn child_ends_with_everything_alive() {
    if is_child() {
        let device = Device::cuda(0).unwrap();
        let _guard = device.enter();
        let own = Device::cuda_with(0, DeviceConfig::from_environment(&device).unwrap()).unwrap();
        let array = {
            let _guard = own.enter();
            let stream = own.new_stream().unwrap();
            let _guard = stream.enter();
            Array::full(300_000, 3u32).unwrap()
        };
        *KEPT.lock().unwrap() = Some((own, array));
        LATE.with_borrow_mut(|late| late.push(Array::full(1000, 2u32).unwrap()));
        std::mem::forget(device.new_stream().unwrap());
        println!("<<ready>>");
    }
}
