//! Groups of CUDA devices: NCCL on emulated devices, whose streams run work as late as possible,
//! and threads that transfer a device's arrays.

mod calls;
mod failures;
mod registered;

use std::sync::{Mutex, MutexGuard, PoisonError};

use cachescope::collective::{Group, NcclId};
use cachescope::{Device, DeviceConfig, Result};

/// The number of emulated devices of this process, which the table of suites sets.
const DEVICES: usize = 4;

/// Returns a lock that one test at a time holds. The emulator counts the calls of the whole
/// process. Besides, a call of one test may run the work of another test's devices.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` on `size` ranks, each on its own device, and returns their results.
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
