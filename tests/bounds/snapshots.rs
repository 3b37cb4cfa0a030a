//! Hostile snapshots, made to use more memory or time than their length justifies.

use std::time::{Duration, Instant};

use cachescope::Result;
use cachescope::record::Profile;
use cachescope_tools::trace::{Snapshot, profiles};

use crate::bounds::heap::peak_of;
use crate::bounds::pickles::{Pickler, snapshot, trace};

/// The memory limit for reading a file: a factor of the file's length, plus a constant.
const BYTES_PER_BYTE: u64 = 64;
const BYTES_FOR_ANY: u64 = 2 << 20;

/// The time limit for reading a file on a busy machine: a factor of the file's length, plus a
/// constant.
const TIME_PER_BYTE: Duration = Duration::from_micros(1);
const TIME_FOR_ANY: Duration = Duration::from_secs(3);

/// Runs `read` on `bytes`, and asserts the limits of memory and time.
#[track_caller]
pub(crate) fn bounded<R>(bytes: &[u8], read: impl FnOnce(&[u8]) -> R) -> R {
    let begin = Instant::now();
    let (result, peak) = peak_of(|| read(bytes));
    let (time, length) = (begin.elapsed(), bytes.len());
    let most = length as u64 * BYTES_PER_BYTE + BYTES_FOR_ANY;
    assert!(
        peak <= most,
        "{peak} bytes of memory for a file of {length}"
    );
    let longest = TIME_PER_BYTE * length as u32 + TIME_FOR_ANY;
    assert!(time <= longest, "{time:?} for a file of {length} bytes");
    result
}

/// Reads a file as a snapshot, and as profiles.
#[track_caller]
pub(crate) fn read(bytes: &[u8]) -> (Result<Snapshot>, Result<Vec<Profile>>) {
    let snapshot = bounded(bytes, |bytes| Snapshot::read("file", bytes));
    (snapshot, bounded(bytes, |bytes| profiles("file", bytes)))
}

/// Asserts that both readers refuse a file with too many references to values, and name `place`.
#[track_caller]
fn refused(bytes: &[u8], place: &str) {
    let (snapshot, profiles) = read(bytes);
    for error in [snapshot.unwrap_err(), profiles.unwrap_err()] {
        let text = error.to_string();
        let is_reported =
            text.contains(place) && text.contains("refers to the same values so often");
        assert!(is_reported, "{text}");
    }
}

pub(crate) fn none(pickler: &mut Pickler) {
    pickler.begin_list();
    pickler.end_list();
}

#[test]
fn a_block_may_overlap_any_number_of_freed_ones() {
    let count = 60_000;
    let bytes = trace(|pickler| {
        for number in 0..count {
            pickler.event("alloc", 0x10_0000 + 16 * number, 16);
            pickler.event("free_requested", 0x10_0000 + 16 * number, 16);
        }
        pickler.event("alloc", 0x10_0000, 16 * count);
    });
    let (snapshot, profiles) = read(&bytes);
    let device = &snapshot.unwrap().devices[0];
    assert_eq!(device.lifetimes.len() as u64, count + 1);
    assert_eq!(device.peak_live_bytes, 16 * count);
    assert_eq!(profiles.unwrap()[0].events.len() as u64, 2 * count + 1);
}

/// Writes a segment of 1 GiB on a device. `blocks` writes the segment's blocks.
pub(crate) fn segment(
    pickler: &mut Pickler,
    device: u64,
    address: u64,
    blocks: impl FnOnce(&mut Pickler),
) {
    pickler.begin_dict();
    for (key, number) in [
        ("device", device),
        ("address", address),
        ("total_size", 1 << 30),
    ] {
        pickler.text(key);
        pickler.int(number);
    }
    pickler.text("blocks");
    blocks(pickler);
    pickler.end_dict();
}

pub(crate) fn block(pickler: &mut Pickler, state: &str) {
    pickler.dict(
        &[("state", state)],
        &[("size", 512), ("requested_size", 500)],
    );
}

#[test]
fn blocks_that_segments_share_without_end_are_refused() {
    for state in ["active_allocated", "inactive"] {
        let bytes = snapshot(
            |pickler| {
                pickler.begin_list();
                segment(pickler, 0, 1 << 40, |pickler| {
                    pickler.begin_list();
                    block(pickler, state);
                    let memo = pickler.remember();
                    for _ in 1..4000 {
                        pickler.again(memo);
                    }
                    pickler.end_list();
                });
                let memo = pickler.remember();
                for _ in 1..20_000 {
                    pickler.again(memo);
                }
                pickler.end_list();
            },
            none,
        );
        refused(&bytes, "segments");
    }
}

#[test]
fn a_segment_that_is_listed_twice_is_refused() {
    let count = 200_000;
    let bytes = snapshot(
        |pickler| {
            pickler.begin_list();
            for number in (1..count).chain([count / 2]) {
                segment(pickler, 7, number << 30, none);
            }
            pickler.end_list();
        },
        none,
    );
    let (snapshot, profiles) = read(&bytes);
    for error in [snapshot.unwrap_err(), profiles.unwrap_err()] {
        let text = error.to_string();
        let place = "segments[199999] overlaps segments[99999]";
        assert!(text.contains(place), "{text}");
    }
}

#[test]
fn lists_of_blocks_that_segments_share_without_end_are_refused() {
    let bytes = snapshot(
        |pickler| {
            let mut blocks = None;
            pickler.begin_list();
            for number in 0..2000 {
                segment(pickler, 0, number << 40, |pickler| match blocks {
                    Some(memo) => pickler.again(memo),
                    None => {
                        pickler.begin_list();
                        (0..2000).for_each(|_| block(pickler, "active_allocated"));
                        pickler.end_list();
                        blocks = Some(pickler.remember());
                    }
                });
            }
            pickler.end_list();
        },
        none,
    );
    refused(&bytes, "].blocks");
}

#[test]
fn traces_that_devices_share_without_end_are_refused() {
    let bytes = snapshot(none, |pickler| {
        pickler.begin_list();
        pickler.begin_list();
        (0..4000).for_each(|number| pickler.event("alloc", number << 20, 512));
        pickler.end_list();
        let memo = pickler.remember();
        (1..4000).for_each(|_| pickler.again(memo));
        pickler.end_list();
    });
    refused(&bytes, "device_traces[");
}

#[test]
fn entries_that_a_trace_shares_without_end_are_refused() {
    let bytes = trace(|pickler| {
        pickler.event("snapshot", 0, 0);
        let memo = pickler.remember();
        (0..200_000).for_each(|_| pickler.again(memo));
    });
    refused(&bytes, "device_traces[0]");
}

#[test]
fn sharing_within_reason_is_read() {
    let bytes = snapshot(
        |pickler| {
            let mut blocks = None;
            pickler.begin_list();
            for number in 0..3 {
                segment(pickler, number % 2, number << 30, |pickler| match blocks {
                    Some(memo) => pickler.again(memo),
                    None => {
                        pickler.begin_list();
                        (0..10).for_each(|_| block(pickler, "active_allocated"));
                        pickler.end_list();
                        blocks = Some(pickler.remember());
                    }
                });
            }
            pickler.end_list();
        },
        |pickler| {
            pickler.begin_list();
            pickler.begin_list();
            // The file contains the texts, the frame and the list of frames only once.
            let mut frames = None;
            for number in 0..5000u64 {
                pickler.begin_dict();
                for (key, text) in [("action", "alloc"), ("category", "model")] {
                    pickler.text(key);
                    pickler.text(text);
                }
                pickler.text("addr");
                pickler.int((1 << 50) + 512 * number);
                pickler.text("size");
                pickler.int(512);
                pickler.text("frames");
                match frames {
                    Some(memo) => pickler.again(memo),
                    None => {
                        pickler.begin_list();
                        let texts = [("name", "step"), ("filename", "train.py")];
                        pickler.dict(&texts, &[("line", 88)]);
                        let frame = pickler.remember();
                        (1..100).for_each(|_| pickler.again(frame));
                        pickler.end_list();
                        frames = Some(pickler.remember());
                    }
                }
                pickler.end_dict();
            }
            pickler.end_list();
            pickler.end_list();
        },
    );
    let (snapshot, profiles) = read(&bytes);
    let snapshot = snapshot.unwrap();
    let lifetimes: Vec<usize> = snapshot
        .devices
        .iter()
        .map(|device| device.lifetimes.len())
        .collect();
    assert_eq!(lifetimes, [5020, 10]);
    let profiles = profiles.unwrap();
    assert_eq!(
        (profiles[0].stacks.len(), profiles[0].stacks[0].len()),
        (1, 100)
    );
    assert_eq!(profiles[0].call_sites[0].file, "train.py");
    assert_eq!(profiles[0].scopes, ["model"]);
}

#[test]
fn keys_of_large_dictionaries_are_found_fast() {
    let count = 60_000;
    let bytes = trace(|pickler| {
        pickler.begin_dict();
        pickler.text("action");
        pickler.text("snapshot");
        for number in 0..count {
            pickler.text(&format!("key {number}"));
            pickler.int(number);
        }
        pickler.end_dict();
        let memo = pickler.remember();
        (1..count).for_each(|_| pickler.again(memo));
    });
    let (snapshot, profiles) = read(&bytes);
    assert_eq!(snapshot.unwrap().devices.len(), 1);
    assert!(profiles.unwrap()[0].events.is_empty());
}

#[test]
fn long_keys_are_not_compared_to_their_end() {
    let count = 300_000;
    let bytes = trace(|pickler| {
        let long = |last: char| format!("{}{last}", "k".repeat(1_000_000));
        pickler.begin_dict();
        let keys = ['a', 'b'].map(|last| {
            pickler.text(&long(last));
            let memo = pickler.remember();
            pickler.int(0);
            memo
        });
        for number in 0..count {
            pickler.again(keys[number as usize % 2]);
            pickler.int(number);
        }
        pickler.text("action");
        pickler.text("snapshot");
        pickler.end_dict();
    });
    let (snapshot, profiles) = read(&bytes);
    assert_eq!(snapshot.unwrap().devices.len(), 1);
    assert!(profiles.unwrap()[0].events.is_empty());
}

#[test]
fn segments_of_the_last_device_are_not_sought_for_each() {
    let count = 60_000;
    let bytes = snapshot(
        |pickler| {
            pickler.begin_list();
            for number in 0..count {
                segment(pickler, 65_535, number << 30, none);
            }
            pickler.end_list();
        },
        none,
    );
    let (snapshot, profiles) = read(&bytes);
    assert_eq!(snapshot.unwrap().devices[0].ordinal, 65_535);
    assert_eq!(profiles.unwrap()[0].segments.len() as u64, count);
}

#[test]
fn texts_that_frames_share_without_end_are_refused() {
    let long = "f".repeat(200_000);
    let bytes = trace(|pickler| {
        pickler.begin_dict();
        pickler.text("action");
        pickler.text("alloc");
        pickler.text("addr");
        pickler.int(1 << 40);
        pickler.text("size");
        pickler.int(512);
        pickler.text("frames");
        pickler.begin_list();
        pickler.dict(&[("name", &long), ("filename", &long)], &[("line", 1)]);
        let memo = pickler.remember();
        (0..20_000).for_each(|_| pickler.again(memo));
        pickler.end_list();
        pickler.end_dict();
    });
    let (snapshot, profiles) = read(&bytes);
    assert_eq!(snapshot.unwrap().devices[0].lifetimes.len(), 1);
    let error = profiles.unwrap_err().to_string();
    assert!(
        error.contains("device_traces[0][0]: frames: the file refers"),
        "{error}"
    );
}

#[test]
fn a_category_that_entries_share_is_copied_once() {
    let long = "c".repeat(1_000_000);
    let bytes = trace(|pickler| {
        let mut category = None;
        for number in 0..20_000 {
            pickler.begin_dict();
            pickler.text("action");
            pickler.text("alloc");
            for (key, number) in [("addr", number << 20), ("size", 512)] {
                pickler.text(key);
                pickler.int(number);
            }
            pickler.text("category");
            match category {
                Some(memo) => pickler.again(memo),
                None => {
                    pickler.text(&long);
                    category = Some(pickler.remember());
                }
            }
            pickler.end_dict();
        }
    });
    let (_, profiles) = read(&bytes);
    assert_eq!(profiles.unwrap()[0].scopes, [long]);
}

#[test]
fn segments_that_span_many_reserved_ranges_are_decided_once() {
    let count = 10_000;
    let bytes = snapshot(
        |pickler| {
            pickler.begin_list();
            for number in 0..count {
                pickler.begin_dict();
                let (address, bytes) = (number << 44, 1 << 44);
                for (key, number) in [("device", 0), ("address", address), ("total_size", bytes)] {
                    pickler.text(key);
                    pickler.int(number);
                }
                pickler.text("blocks");
                none(pickler);
                pickler.end_dict();
            }
            pickler.end_list();
        },
        |pickler| {
            pickler.begin_list();
            pickler.begin_list();
            (0..count).for_each(|number| pickler.event("segment_alloc", number << 30, 1 << 20));
            (0..count).for_each(|_| pickler.event("segment_free", 0, 1 << 60));
            pickler.end_list();
            pickler.end_list();
        },
    );
    let profile = read(&bytes).1.unwrap().remove(0);
    // The profile counts the gaps between the ranges as reserved from the beginning.
    let bytes: u64 = profile.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(profile.segments.len() as u64, count);
    assert_eq!(bytes, (1 << 60) - (count << 20));
}
