//! Tests of random allocations, in which the emulated and the simulated driver must agree.

use cachescope::simulation::{DriverCall, DriverCosts};
use cachescope::{Buffer, Device, DeviceConfig, PoolKind, Result};
use cachescope_tools::simulation::DeviceReplay;
use cachescope_tools::trace::TraceEvent;

use crate::costs::{EmulatorLock, MEMORY, WAITING};

const MIB: u64 = 1 << 20;

fn device(pool: PoolKind) -> Device {
    let config = DeviceConfig {
        pool,
        ..DeviceConfig::default()
    };
    Device::cuda_with(0, config).unwrap()
}

fn random_allocations(count: u32, most_bytes: u64, most_live_bytes: u64) -> Vec<TraceEvent> {
    let allocate = |slot, bytes| TraceEvent::Allocate { slot, bytes };
    let free = |slot| TraceEvent::Free { slot };
    programs::random_allocations(count, most_bytes, most_live_bytes, allocate, free)
}

fn run(device: &Device, live: &mut Vec<Option<Buffer>>, events: &[TraceEvent]) -> Result<()> {
    for &event in events {
        match event {
            TraceEvent::Allocate { slot, bytes } => {
                live.resize_with(live.len().max(slot as usize + 1), || None);
                live[slot as usize] = Some(Buffer::new(device, bytes as usize)?);
            }
            TraceEvent::Free { slot } => live[slot as usize] = None,
            other => panic!("{other:?} is no event of these programs"),
        }
    }
    Ok(())
}

#[test]
fn random_allocations_call_no_driver_after_their_first_repetition() -> Result<()> {
    let lock = EmulatorLock::take();
    for pool in [PoolKind::BestFit, PoolKind::Binned] {
        for most_bytes in [MIB, 64 * MIB, 1024 * MIB] {
            let events = random_allocations(3000, most_bytes, 16_000 * MIB);
            let device = device(pool);
            let mut live = Vec::new();
            run(&device, &mut live, &events)?;
            let calls = [lock.calls(&MEMORY), lock.calls(&WAITING)];
            for _ in 0..2 {
                run(&device, &mut live, &events)?;
            }
            assert_eq!(
                [lock.calls(&MEMORY), lock.calls(&WAITING)],
                calls,
                "{pool}, {most_bytes}"
            );
        }
    }
    Ok(())
}

#[test]
fn the_simulated_driver_counts_what_the_emulated_one_counts() -> Result<()> {
    let lock = EmulatorLock::take();
    let costs = DriverCosts::named("h100")?;
    for pool in [PoolKind::BestFit, PoolKind::Binned, PoolKind::Direct] {
        let events = random_allocations(1000, 200 * MIB, 8000 * MIB);
        let device = device(pool);
        let before = lock.control.clock().unwrap();
        let counts = |name: &str| {
            let name = match name {
                "MemAlloc" | "MemFree" => format!("cu{name}_v2"),
                name => format!("cu{name}"),
            };
            lock.control.calls_of(&name)
        };
        let calls = [
            DriverCall::MemAlloc,
            DriverCall::MemFree,
            DriverCall::MemAddressReserve,
            DriverCall::MemCreate,
            DriverCall::MemMap,
            DriverCall::MemSetAccess,
            DriverCall::MemUnmap,
            DriverCall::MemRelease,
        ];
        let earlier = calls.map(|call| counts(&call.to_string()));
        let mut live = Vec::new();
        run(&device, &mut live, &events)?;
        device.synchronize()?; // Completes frees that waited for their streams.
        let spent = lock.clock() - before;

        let mut replay = DeviceReplay::new(pool, &costs, None)?;
        replay.apply(&events);
        let outcome = replay.outcome();
        for (call, earlier) in calls.into_iter().zip(earlier) {
            let told = counts(&call.to_string()) - earlier;
            assert_eq!(told, outcome.calls_of(call), "{pool}: {call}");
        }
        let stats = device.memory_stats();
        assert_eq!(
            stats.peak_reserved_bytes, outcome.peak_reserved_bytes,
            "{pool}"
        );
        let simulated = outcome.ledger.microseconds();
        assert!(
            (spent - simulated).abs() < 0.02 * simulated,
            "{pool}: {spent} {simulated}"
        );
    }
    Ok(())
}
