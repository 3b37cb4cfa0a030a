//! Tests of groups of CUDA devices, by NCCL on emulated devices, or by threads that transfer a
//! device's arrays. The emulated streams run work as late as possible.

mod calls;
mod failures;
mod registered;

use std::sync::{Mutex, MutexGuard, PoisonError};

use cachescope::collective::{Group, NcclId};
use cachescope::{Device, DeviceConfig, Result};

/// The number of emulated devices, which the table of suites sets.
const DEVICES: usize = 4;

/// Returns a lock that serialises the tests. The emulator counts calls per process, and a call of
/// one test may run work of another test's devices.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` on `size` ranks, each with its own device. Returns the results.
fn on_ranks<R: Send>(
    size: usize,
    config: DeviceConfig,
    body: impl Fn(&Group, &Device) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let id = NcclId::new().unwrap();
    let id = NcclId::from_bytes(id.to_bytes());
    let run = |rank: usize| {
        let device = Device::cuda_with(rank, config.clone())?;
        let _current = device.enter();
        let group = Group::nccl(rank, size, id)?;
        assert_eq!((group.rank(), group.size()), (rank, size));
        let result = body(&group, &device)?;
        device.synchronize()?;
        Ok(result)
    };
    std::thread::scope(|threads| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| threads.spawn(move || run(rank)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn all_of<R>(outcomes: Vec<Result<R>>) -> Result<Vec<R>> {
    outcomes.into_iter().collect()
}
