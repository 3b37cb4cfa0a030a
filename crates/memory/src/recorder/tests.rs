//! Tests of rings: a written event is read completely or not at all.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::event::{EventRecord, Recorded};
use super::ring::Ring;
use super::{EventKind, NO_SCOPE, Recorder};
use crate::device::StreamId;

/// Returns an event whose fields are all computed from `number`.
fn event(number: u64, call_site: &'static Location<'static>) -> EventRecord {
    EventRecord {
        kind: EventKind::ALL[number as usize % EventKind::ALL.len()],
        stream: StreamId(number as u16),
        stack: !number as u16,
        scope: number & 0xff_ffff,
        call_site: number.is_multiple_of(2).then_some(call_site),
        address: number.wrapping_mul(0x1001),
        bytes: number.wrapping_mul(3),
        block_bytes: u64::MAX - number,
    }
}

fn check(recorded: &Recorded, number: u64, call_site: &'static Location<'static>) {
    let (found, expected) = (recorded.event, event(number, call_site));
    assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    assert_eq!(recorded.time_ns, number);
}

#[test]
fn events_are_read_as_they_were_written() {
    let here = Location::caller();
    let ring = Ring::new(64).unwrap();
    ring.adopt(7);
    for number in 0..50 {
        ring.write(number, &event(number, here));
    }
    let mut read = Vec::new();
    assert_eq!(ring.read(10, &mut read), 0);
    assert_eq!(read.len(), 40);
    for (number, recorded) in (10..).zip(&read) {
        check(recorded, number, here);
        assert_eq!(recorded.thread, 7);
    }
}

#[test]
fn a_reader_never_sees_half_an_event() {
    const EVENTS: u64 = 300_000;
    let here = Location::caller();
    let ring = Ring::new(256).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for number in 0..EVENTS {
                ring.write(number, &event(number, here));
            }
            done.store(true, Ordering::Release);
        });
        let mut reads = 0;
        while !done.load(Ordering::Acquire) || reads == 0 {
            let mut read = Vec::new();
            let lost = ring.read(0, &mut read);
            for (number, recorded) in (lost..).zip(&read) {
                check(recorded, number, here);
            }
            reads += 1;
        }
    });
    let mut read = Vec::new();
    assert_eq!(ring.read(0, &mut read), EVENTS - 255);
    assert_eq!(read.len(), 255);
}

#[test]
fn lines_of_the_library_are_not_reported() {
    let recorder = Recorder::new();
    let mark = recorder.begin(1 << 12, false);
    recorder.record(|| EventRecord {
        call_site: Some(Location::caller()),
        ..EventRecord::of(EventKind::Uncached, 8)
    });
    let profile = recorder.profile(&mark, String::new(), Vec::new(), || (0, 0));
    assert_eq!(
        (profile.events.len(), profile.events[0].call_site),
        (1, None)
    );
    assert!(profile.call_sites.is_empty());
}

#[test]
fn a_ring_takes_no_more_than_it_may() {
    assert_eq!(Ring::events_in(48 * 64), 64);
    assert_eq!(Ring::events_in(48 * 64 - 1), 32);
    assert_eq!(Ring::events_in(0), 2);
}

#[test]
fn a_later_recording_may_request_longer_rings() {
    let recorder = Recorder::new();
    let write = |count: u64| {
        for bytes in 0..count {
            recorder.record(|| EventRecord::of(EventKind::Trim, bytes));
        }
    };
    let sizes = |mark| {
        let profile = recorder.profile(mark, String::new(), Vec::new(), || (0, 0));
        let sizes = profile.events.iter().map(|event| event.bytes);
        (sizes.collect::<Vec<_>>(), profile.lost_events)
    };
    let short = recorder.begin(48 * 8, false);
    write(5);
    let long = recorder.begin(48 * 64, false);
    write(50);
    assert_eq!(sizes(&long), ((0..50).collect(), 0));
    assert_eq!(sizes(&short), ((0..5).chain(0..50).collect(), 0));
    let shorter = recorder.begin(48 * 8, false);
    write(10);
    assert_eq!(sizes(&shorter), ((0..10).collect(), 0));
}

#[test]
fn a_recording_is_complete_after_the_last_event_without_a_ring() {
    let recorder = Recorder::new();
    let mark = recorder.begin(1 << 12, false);
    let profile = |mark| recorder.profile(mark, String::new(), Vec::new(), || (0, 0));
    let write = || recorder.record(|| EventRecord::of(EventKind::Trim, 1));
    write();
    assert_eq!(profile(&mark).complete_from_ns, 0);
    recorder.lose();
    std::thread::sleep(Duration::from_millis(1));
    write();
    let incomplete = profile(&mark);
    let [before, after] = &incomplete.events[..] else {
        panic!("two events");
    };
    assert!((before.time_ns + 1..=after.time_ns).contains(&incomplete.complete_from_ns));
    let later = recorder.begin(1 << 12, false);
    assert_eq!(profile(&later).complete_from_ns, 0);
}

#[test]
fn a_recording_is_complete_from_no_operation_on() {
    let recorder = Recorder::new();
    let mark = recorder.begin(48 * 4, false);
    let write = || recorder.record(|| EventRecord::of(EventKind::Trim, 1));
    for _ in 0..10 {
        write();
    }
    let operation = EventRecord {
        address: mark.time_ns,
        ..EventRecord::of(EventKind::Kernel, 1)
    };
    recorder.write(mark.time_ns, &operation);
    let profile = |mark| recorder.profile(mark, String::new(), Vec::new(), || (0, 0));
    for _ in 0..2 {
        write();
    }
    let mixed = profile(&mark);
    assert_eq!(mixed.events[0].kind, EventKind::Kernel);
    assert_eq!(mixed.complete_from_ns, mixed.events[1].time_ns);
    for _ in 0..3 {
        recorder.write(mark.time_ns, &operation);
    }
    let operations = profile(&mark);
    assert!(operations.complete_from_ns > mixed.events[2].time_ns);
}

#[test]
fn a_ring_knows_the_threads_that_had_it() {
    let here = Location::caller();
    let ring = Ring::new(64).unwrap();
    let mut number = 0;
    for thread in 1..40 {
        ring.adopt(thread);
        for _ in 0..thread {
            ring.write(thread, &event(number, here));
            number += 1;
        }
        ring.release();
    }
    let mut read = Vec::new();
    assert_eq!(ring.read(0, &mut read), number - 63);
    assert_eq!(read.len(), 63);
    assert!(
        read.iter()
            .all(|recorded| recorded.thread == recorded.time_ns)
    );
}

/// A value whose drop records an event. As the first thread-local of a thread, it is destroyed
/// after the recorder's thread-locals.
struct LastEvent(RefCell<Option<Arc<Recorder>>>);

impl Drop for LastEvent {
    fn drop(&mut self) {
        let recorder = self.0.take();
        recorder
            .unwrap()
            .record(|| EventRecord::of(EventKind::Trim, 2));
    }
}

thread_local! {
    static LAST: LastEvent = const { LastEvent(RefCell::new(None)) };
}

#[test]
fn threads_that_end_leave_their_rings_to_others() {
    const THREADS: u64 = 100;
    let recorder = Arc::new(Recorder::new());
    let mark = recorder.begin(48 * 1024, false);
    for _ in 0..THREADS {
        let recorder = Arc::clone(&recorder);
        let thread = std::thread::spawn(move || {
            // `LAST` is destroyed after the locals that the first event registers.
            LAST.with(|last| last.0.replace(Some(Arc::clone(&recorder))));
            recorder.record(|| EventRecord::of(EventKind::Trim, 1));
        });
        thread.join().unwrap();
    }
    assert_eq!(recorder.rings.lock().len(), 1);
    let profile = recorder.profile(&mark, String::new(), Vec::new(), || (0, 0));
    assert_eq!(
        (profile.events.len() as u64, profile.lost_events),
        (2 * THREADS, 0)
    );
    let mut threads: Vec<u32> = profile.events.iter().map(|event| event.thread).collect();
    threads.dedup();
    assert_eq!(threads.len() as u64, THREADS, "each thread has its events");
    for events in profile.events.chunks(2) {
        assert_eq!(events.iter().map(|event| event.bytes).sum::<u64>(), 3);
    }
}

#[test]
fn scopes_are_numbered_by_name() {
    let recorder = Recorder::new();
    let [a, b, again] = ["a", "b", "a"].map(|name| recorder.scope_number(name));
    assert_eq!(a, again);
    assert!(a != b && a != NO_SCOPE && b != NO_SCOPE);
}

#[test]
fn two_recorders_of_one_thread_keep_their_own() {
    let recorders = [Recorder::new(), Recorder::new()];
    let marks = recorders
        .each_ref()
        .map(|recorder| recorder.begin(1 << 12, false));
    for number in 0..10 {
        let bytes = number as u64;
        recorders[number % 2].record(|| EventRecord::of(EventKind::Trim, bytes));
    }
    for (own, (recorder, mark)) in recorders.iter().zip(&marks).enumerate() {
        let profile = recorder.profile(mark, String::new(), Vec::new(), || (0, 0));
        let bytes = profile.events.iter().map(|event| event.bytes as usize);
        assert!(bytes.eq((own..10).step_by(2)));
    }
}
