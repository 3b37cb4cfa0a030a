//! Tests of the simulator against a naive list of live blocks, the reader with arbitrary input, and
//! contradictory snapshots.

use proptest::prelude::*;

use super::reader::Trace;
use super::replay::{Replay, ReplayOptions};
use super::simulator::{Allocation, Simulator};
use super::{Snapshot, profiles};
use crate::PoolKind;

/// The live allocations, with the sizes of their blocks.
#[derive(Default)]
struct LiveBlocks(Vec<(Allocation, u64)>);

impl LiveBlocks {
    fn end(&self) -> u64 {
        let ends = self.0.iter().map(|(block, bytes)| block.offset + bytes);
        ends.max().unwrap_or(0)
    }

    /// Returns whether `bytes` bytes fit between two blocks, or between the last block and
    /// `limit_bytes`.
    fn leave_room(&self, bytes: u64, limit_bytes: u64) -> bool {
        let mut taken: Vec<_> = self
            .0
            .iter()
            .map(|(block, bytes)| (block.offset, block.offset + bytes))
            .chain([(limit_bytes, limit_bytes)])
            .collect();
        taken.sort_unstable();
        let mut free_from = 0;
        taken.into_iter().any(|(begin, end)| {
            let fits = begin >= free_from + bytes;
            free_from = end;
            fits
        })
    }

    /// Returns whether the range `begin..end` is free.
    fn miss(&self, begin: u64, end: u64) -> bool {
        let mut blocks = self.0.iter();
        blocks.all(|(block, bytes)| end <= block.offset || block.offset + bytes <= begin)
    }
}

/// Returns the block size for a request of `bytes` bytes.
fn rounded(kind: PoolKind, bytes: u64, unit_bytes: u64) -> u64 {
    let units = bytes.div_ceil(unit_bytes);
    match kind {
        PoolKind::Binned => units.next_power_of_two() * unit_bytes,
        _ => units * unit_bytes,
    }
}

/// Returns a row of either format that may be valid, or arbitrary text.
fn any_row() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "1,x,(allocate|free),0x[0-3],[0-9]{1,5},0",
        8 => "[a-z]{3},[0-9],1[0-9],[0-9]{1,18}",
        1 => "[^\n]{0,12}",
        1 => "[0-9\",-]{0,12}",
    ]
}

fn any_pool() -> impl Strategy<Value = PoolKind> {
    prop::sample::select(Simulator::POOLS.to_vec())
}

proptest! {
    /// A request that fits is placed in free memory. A request is refused only if it does not fit.
    /// Before the refusal, each pool releases its idle memory.
    #[test]
    fn what_fits_is_placed_apart_and_what_does_not_is_refused(
        kind in any_pool(),
        unit_bytes in prop::sample::select(vec![1u64, 3, 256, 512, 4096]),
        limit_units in 1u64..60,
        steps in prop::collection::vec((any::<bool>(), 1u64..20_000, any::<prop::sample::Index>()), 1..200)
    ) {
        let limit_bytes = limit_units * unit_bytes + unit_bytes / 2;
        let mut simulator = Simulator::new(kind, unit_bytes, Some(limit_bytes)).unwrap();
        let (mut blocks, mut peak_end) = (LiveBlocks::default(), 0);
        for (allocates, size, pick) in steps {
            if !allocates && !blocks.0.is_empty() {
                let (block, _) = blocks.0.swap_remove(pick.index(blocks.0.len()));
                simulator.free(block);
                continue;
            }
            let bytes = 1 + size % (20 * unit_bytes);
            let block_bytes = rounded(kind, bytes, unit_bytes);
            match simulator.allocate(bytes) {
                Some(block) => {
                    prop_assert!(block.offset.is_multiple_of(unit_bytes));
                    prop_assert!(blocks.miss(block.offset, block.offset + block_bytes));
                    blocks.0.push((block, block_bytes));
                    peak_end = peak_end.max(blocks.end());
                    prop_assert!(blocks.end() <= limit_bytes);
                }
                None => prop_assert!(!blocks.leave_room(block_bytes, limit_units * unit_bytes)),
            }
            prop_assert_eq!(simulator.peak_reserved_bytes(), peak_end);
        }
    }

    #[test]
    fn no_file_panics_and_what_is_read_can_be_run(
        is_log: bool,
        rows in prop::collection::vec(any_row(), 0..20)
    ) {
        let header = if is_log { "Thread,Time,Action,Pointer,Size,Stream" } else { "id,lower,upper,size" };
        let content = format!("{header}\n{}", rows.join("\n"));
        let Ok(mut trace) = Trace::new("any", content.as_bytes()) else {
            return Ok(());
        };
        let settings = ReplayOptions { pool: PoolKind::BestFit, unit_bytes: 512, limit_bytes: None };
        let (mut run, mut batch) = (Replay::new(settings).unwrap(), Vec::new());
        while let Ok(is_last) = trace.read(&mut batch) {
            run.apply(&batch);
            if is_last {
                break;
            }
        }
        prop_assert!(run.outcome().failures <= run.outcome().events);
    }
}

#[test]
fn a_request_of_nothing_takes_nothing_at_any_limit() {
    for kind in Simulator::POOLS {
        let mut simulator = Simulator::new(kind, 512, Some(1)).unwrap();
        let nothing = simulator.allocate(0).unwrap();
        assert_eq!(nothing.offset, 0);
        assert!(simulator.allocate(1).is_none());
        simulator.free(nothing);
        assert_eq!(simulator.peak_reserved_bytes(), 0);
    }
}

#[test]
fn the_largest_units_and_sizes_overflow_nothing() {
    for kind in Simulator::POOLS {
        for unit_bytes in [1, 512, (1 << 40) + 1, 1 << 62, 1 << 63] {
            let mut simulator = Simulator::new(kind, unit_bytes, None).unwrap();
            for bytes in [u64::MAX, 1 << 63, (1 << 63) + 1, 1] {
                let _ = simulator.allocate(bytes);
            }
            assert!(simulator.peak_reserved_bytes() <= 1 << 63, "{unit_bytes}");
        }
    }
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    for (kind, unit_bytes) in [
        (PoolKind::StreamOrdered, 512),
        (PoolKind::BestFit, 0),
        (PoolKind::BestFit, (1 << 63) + 1),
    ] {
        assert!(Simulator::new(kind, unit_bytes, None).is_err());
    }
}

/// Returns a snapshot of one device with a block of 512 bytes, and with the given actions.
fn snapshot(actions: &[&str]) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.push(b'X');
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = b"\x80\x02}(".to_vec();
    text(&mut out, "segments");
    out.push(b']');
    text(&mut out, "device_traces");
    out.extend(b"](](");
    for action in actions {
        out.extend(b"}(");
        text(&mut out, "action");
        text(&mut out, action);
        for key in ["addr", "size"] {
            text(&mut out, key);
            out.extend(b"M\x00\x02");
        }
        out.push(b'u');
    }
    out.extend(b"eeu.");
    out
}

#[test]
fn a_free_is_requested_once() {
    for first in [&["alloc"][..], &[]] {
        for second in ["free_requested", "free"] {
            let actions = [first, &["free_requested", second]].concat();
            let (bytes, number) = (snapshot(&actions), first.len() + 1);
            let expected = format!(
                "input: device_traces[0][{number}]: the free of 0x200 was requested already, by \
                 entry {number} [CS0801]"
            );
            let read = Snapshot::read("input", &*bytes);
            assert_eq!(read.unwrap_err().to_string(), expected);
            let profiles = profiles("input", &*bytes);
            assert_eq!(profiles.unwrap_err().to_string(), expected);
        }
    }
    for actions in [&["free_requested", "free_completed"][..], &["free"]] {
        let bytes = snapshot(&[actions, &["alloc"], actions].concat());
        let device = Snapshot::read("input", &*bytes).unwrap().devices.remove(0);
        assert_eq!((device.lifetimes.len(), device.peak_live_bytes), (2, 512));
        assert_eq!(profiles("input", &*bytes).unwrap()[0].events.len(), 3);
    }
}
