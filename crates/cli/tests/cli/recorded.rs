//! Tests with recorded programs: tensors of real networks, and logs of `cachescope_memory`'s
//! devices.

use std::path::Path;

use cachescope_memory::{Buffer, Device, DeviceConfig, PoolKind, RecordOptions};

use crate::oracle::{self, POOLS};
use crate::{Numbers, number, place, replayed, replayed_once, text};

#[test]
fn the_lifetimes_of_networks_are_placed_apart_and_best_fit_is_tight_on_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/peers/data");
    for (name, load, ratio) in [
        ("resnet50.csv", 1_515_472_556, 1.02),
        ("G_1.csv", 3_030_937_746, 1.02),
        ("A.1048576.csv", 1 << 20, 2.2),
    ] {
        let trace = text(&folder.join(name));
        for (pool, round) in POOLS {
            let out = place(&format!("recorded-{pool}-{name}"));
            let figures = replayed_once(&[&trace, "--pool", pool, "--output", &text(&out)]);
            let placed = oracle::read(&out);
            oracle::check_disjoint(&placed, 512, round);
            assert_eq!(number(&figures, "peak_live_bytes"), load);
            let reserved = number(&figures, "peak_reserved_bytes");
            assert_eq!(reserved, oracle::peak_reserved(&placed, 512, round));
            if pool == "best-fit" {
                assert!(
                    (reserved as f64) < load as f64 * ratio,
                    "{name}: {reserved}"
                );
            }
        }
    }
}

/// Runs a random program on a separate device, and writes its log of reservations. Returns the peak
/// of the reserved bytes.
fn record(pool: PoolKind, expandable_segments: bool, log: &Path) -> u64 {
    let config = DeviceConfig {
        pool,
        expandable_segments,
        ..DeviceConfig::default()
    };
    let device = Device::host_with(config).unwrap();
    let recording = device.record(RecordOptions::default()).unwrap();
    let mut numbers = Numbers(3);
    let mut live = Vec::new();
    for _ in 0..2000 {
        if live.len() < 100 && numbers.below(5) < 3 {
            let bytes = numbers.below(1 << 18) as usize;
            live.push(Buffer::new(&device, bytes).unwrap());
        } else if !live.is_empty() {
            live.swap_remove(numbers.below(live.len() as u64) as usize);
        }
        if numbers.below(500) == 0 {
            device.trim(0);
        }
    }
    recording.write(log).unwrap();
    device.memory_stats().peak_reserved_bytes
}

#[test]
fn what_a_device_logged_is_what_it_reserved() {
    for (pool, expandable) in [
        (PoolKind::BestFit, true),
        (PoolKind::BestFit, false),
        (PoolKind::Binned, false),
        (PoolKind::Direct, false),
    ] {
        let log = place(&format!("recorded-{pool}-{expandable}.csv"));
        let peak_bytes = record(pool, expandable, &log);
        for replayed in replayed(&[&text(&log), "--pool", "all"]) {
            assert!(number(&replayed, "events") > 0);
            assert_eq!(number(&replayed, "failures"), 0);
            assert_eq!(number(&replayed, "peak_live_bytes"), peak_bytes, "{pool}");
        }
    }
}
