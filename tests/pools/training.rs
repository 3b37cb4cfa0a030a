//! A recorded training step under a limit slightly above its working set. This is a small version
//! of CuArrays' experiment. In the experiment, the limit slowed CuArrays' pools by factors of 2.0
//! and 2.8.

use std::time::{Duration, Instant};

use cachescope::{Buffer, Device, PoolKind, Result};
use under_test::device_with;

use crate::pools::{Setup, assert_empty, config};

/// The trace: one row for each tensor, which is live from `lower` to `upper`.
const TRACE: &str = include_str!("../data/resnet50.csv");

/// An event of a step: the allocation of a tensor, by its index and bytes, or the free of a tensor.
pub(crate) enum Event {
    Allocate(usize, usize),
    Free(usize),
}

/// Returns the events of the step. At equal times, tensors are freed before other tensors are
/// allocated.
pub(crate) fn step() -> Vec<Event> {
    let mut events = Vec::new();
    for (tensor, line) in TRACE.lines().skip(1).enumerate() {
        let row: Vec<usize> = line
            .split(',')
            .map(|field| field.parse().unwrap())
            .collect();
        let [_, lower, upper, size] = row[..] else {
            panic!("{line}");
        };
        events.push((lower, 1, Event::Allocate(tensor, size)));
        events.push((upper, 0, Event::Free(tensor)));
    }
    events.sort_by_key(|&(time, kind, _)| (time, kind));
    events.into_iter().map(|(_, _, event)| event).collect()
}

/// Runs a step and returns the time of its allocations and frees.
pub(crate) fn run(device: &Device, step: &[Event]) -> Result<Duration> {
    let mut live: Vec<Option<Buffer>> = Vec::new();
    live.resize_with(step.len() / 2, || None);
    let begin = Instant::now();
    for event in step {
        match *event {
            Event::Allocate(tensor, size) => live[tensor] = Some(Buffer::new(device, size)?),
            Event::Free(tensor) => live[tensor] = None,
        }
    }
    Ok(begin.elapsed())
}

/// Returns the peak of the live bytes.
pub(crate) fn peak_live_bytes(step: &[Event]) -> u64 {
    let device = unlimited(true);
    run(&device, step).unwrap();
    device.memory_stats().peak_live_bytes
}

pub(crate) fn unlimited(expandable: bool) -> Device {
    let setup = Setup {
        pool: PoolKind::BestFit,
        expandable,
    };
    let config = cachescope::DeviceConfig {
        fill_recycled: None,
        ..config(setup)
    };
    device_with(config).unwrap()
}

pub(crate) fn limited(limit_bytes: u64) -> Device {
    let device = unlimited(true);
    device.set_memory_limit(Some(limit_bytes));
    device
}

#[test]
fn a_training_step_fits_into_little_more_than_its_working_set() {
    let step = step();
    let peak_bytes = peak_live_bytes(&step);
    for percent in [110, 105, 102] {
        let device = limited(peak_bytes / 100 * percent);
        for _ in 0..4 {
            run(&device, &step).unwrap();
        }
        let stats = device.memory_stats();
        assert!(stats.peak_reserved_bytes <= peak_bytes / 100 * percent);
        assert_eq!(stats.out_of_memory, 0, "{percent} %");
        // A second step also succeeds, although memory of the first step remains.
        let reserves = stats.reserves;
        run(&device, &step).unwrap();
        println!(
            "{percent} %: {reserves} reservations, then {}",
            device.memory_stats().reserves - reserves
        );
        device.trim(0);
        assert_empty(&device, PoolKind::BestFit);
    }
}
