//! Tests of the virtual clock. A call costs the time in the table. Device work takes the time of
//! its bytes. A wait costs the remaining time of the work.

use cachescope::simulation::{DriverCall, DriverCosts};
use cachescope::{Array, Buffer, Device, DeviceConfig, Result};

use crate::costs::EmulatorLock;

const GIB: usize = 1 << 30;

fn device() -> Device {
    Device::cuda_with(0, DeviceConfig::default()).unwrap()
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * other.abs()
}

#[test]
fn an_invalid_cost_is_an_error_with_its_line() {
    let (error, line) = (DriverCosts::named("h1000").unwrap_err(), line!());
    let location = error.location().expect("a line of ours");
    assert_eq!((location.file(), location.line()), (file!(), line));
}

#[test]
fn memory_calls_take_the_time_of_the_table() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = device();
    let costs = DriverCosts::named("h100")?;
    let before = lock.clock();
    let buffer = Buffer::new(&device, 3 * GIB)?;
    let us = |call, bytes| costs.nanos(call, bytes) / 1e3;
    // The buffer has three handles. One call makes all of them accessible to kernels.
    let gib = GIB as u64;
    let handle = us(DriverCall::MemCreate, gib) + us(DriverCall::MemMap, gib);
    let expected =
        us(DriverCall::MemAddressReserve, 0) + 3.0 * (handle + us(DriverCall::MemSetAccess, gib));
    let took = lock.clock() - before;
    assert!(is_near(took, expected), "{took} {expected}");
    drop(buffer);
    assert!(
        is_near(lock.clock() - before, expected),
        "a drop calls nothing"
    );
    device.trim(0);
    let gone = 3.0 * (us(DriverCall::MemUnmap, gib) + us(DriverCall::MemRelease, gib));
    let took = lock.clock() - before - expected;
    assert!(took > gone - 1e-6 && took < gone + 10.0, "{took} {gone}");
    Ok(())
}

/// The duration of a kernel is the bytes that it reads and writes, divided by the bandwidth. A wait
/// costs this duration.
#[test]
fn a_kernel_takes_the_time_of_what_it_moves() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = device();
    let _guard = device.enter();
    let n = 1 << 20;
    let x = Array::<f32>::ones(n)?;
    let add = || (&x + 1.5).eval();
    drop(add()?); // Compiles the kernel, and allocates the memory.
    device.synchronize()?;
    let launch = lock.control.spent("cuLaunchKernel");
    let before = lock.clock();
    let y = add()?;
    let launched = lock.clock() - before;
    assert!(launched < 20.0, "{launched}: nobody waits");
    device.synchronize()?;
    let took = lock.clock() - before;
    let moved = 8.0 * n as f64;
    let kernel = 2.0 + (358.0 - 2.0) * moved / GIB as f64;
    assert!(
        took > kernel && took < kernel + launched + 10.0,
        "{took} {kernel}"
    );
    assert!(is_near(lock.control.spent("cuLaunchKernel") - launch, 5.0));
    drop(y);
    Ok(())
}

/// Work on two streams is concurrent, and work on one stream is sequential.
#[test]
fn streams_run_beside_each_other() -> Result<()> {
    let lock = EmulatorLock::take();
    let device = device();
    let n = 64 << 20;
    let (first, second) = (device.new_stream()?, device.new_stream()?);
    let _device = device.enter();
    let mut arrays = [Array::<f32>::zeros(n)?, Array::<f32>::zeros(n)?];
    let mut time = |streams: [&cachescope::Stream; 2]| -> Result<f64> {
        device.synchronize()?;
        let before = lock.clock();
        for (stream, array) in streams.into_iter().zip(&mut arrays) {
            let _guard = stream.enter();
            array.assign(1.5)?;
        }
        device.synchronize()?;
        Ok(lock.clock() - before)
    };
    time([&first, &second])?; // Compiles the kernels.
    let beside = time([&first, &second])?;
    let behind = time([&first, &first])?;
    let fill = 1.0 + 356.0 * (4 * n) as f64 / GIB as f64;
    assert!(behind > 2.0 * fill, "{behind} {fill}");
    assert!(beside < behind - 0.6 * fill, "{beside} {behind} {fill}");
    Ok(())
}
