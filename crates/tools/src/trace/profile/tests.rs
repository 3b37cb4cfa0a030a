//! Tests of profiles of tables. Profiles of snapshots are tested in tests/recording and
//! crates/cli/tests.

use cachescope_reports::EventKind::{Allocate, Free, Reserve};
use cachescope_reports::{EventKind, Profile};

use super::profiles;

fn profile(text: &str) -> Profile {
    let mut profiles = profiles("input", text.as_bytes()).unwrap();
    assert_eq!(profiles.len(), 1);
    profiles.remove(0)
}

/// Returns the kind, the time, the address and the bytes of each event.
fn figures(profile: &Profile) -> Vec<(EventKind, u64, u64, u64)> {
    let events = profile.events.iter();
    let figures = events.map(|event| (event.kind, event.time_ns, event.address, event.bytes));
    figures.collect()
}

#[test]
fn a_log_has_its_times_threads_and_streams() {
    let log = profile(
        "Thread,Time,Action,Pointer,Size,Stream\n\
         7,10:00:00:000001,allocate,0x1000,100,0x0\n\
         8,10:00:00.000003,allocate,0x2000,200,0x10\n\
         8,10:00:00.000002,allocate failure,0x0,900,0x0\n\
         7,10:00:01:000001,free,0x1000,100,0\n",
    );
    assert_eq!(
        figures(&log),
        [
            (Allocate, 0, 0x1000, 100),
            (Allocate, 2000, 0x2000, 200),
            (Free, 1_000_000_000, 0x1000, 100),
        ]
    );
    let threads: Vec<_> = log
        .events
        .iter()
        .map(|event| (event.thread, event.stream))
        .collect();
    assert_eq!(threads, [(7, 0), (8, 16), (7, 0)]);
    assert_eq!(log.duration_ns, 1_000_000_000);
}

#[test]
fn a_time_without_a_fraction_is_a_whole_second() {
    let log = profile(
        "Thread,Time,Action,Pointer,Size,Stream\n\
         1,10:00:00,allocate,0x1000,100,0\n\
         1,10:00:02.5,free,0x1000,100,0\n\
         1,99999999999:0:0,allocate,0x1000,100,0\n",
    );
    let times: Vec<_> = log.events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [0, 2_500_000_000, 2_500_001_000]);
}

#[test]
fn times_that_run_backwards_or_are_none_stay_in_the_order_of_the_file() {
    let log = profile(
        "Thread,Time,Action,Pointer,Size,Stream\n\
         1,10:00:00.000010,allocate,0x1000,100,0\n\
         1,09:00:00.000000,allocate,0x2000,200,0\n\
         1,soon,free,0x1000,100,0\n",
    );
    let times: Vec<_> = log.events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [0, 0, 0]);
    assert_eq!(log.events[2].kind, Free);
}

#[test]
fn a_plan_is_placed_at_its_offsets() {
    let plan = profile("id,lower,upper,size,offset\nb,5,9,300,0\na,3,5,200,0\nc,4,4,50,\n");
    assert_eq!(
        figures(&plan),
        [
            (Reserve, 0, 0, 300),
            (Allocate, 0, 0, 200),
            (Free, 2000, 0, 200),
            (Allocate, 2000, 0, 300),
            (Free, 6000, 0, 300),
        ]
    );
    assert_eq!(
        plan.call_sites[plan.events[1].call_site.unwrap() as usize].file,
        "a"
    );
}

#[test]
fn lifetimes_without_offsets_are_placed_side_by_side() {
    for text in [
        "id,lower,upper,size\na,0,4,200\nb,2,6,300\n",
        "id,lower,upper,size,offset\na,0,4,200,7\nb,2,6,300,\n",
    ] {
        let addresses: Vec<_> = profile(text)
            .events
            .iter()
            .map(|event| event.address)
            .collect();
        assert_eq!(addresses, [0, 0, 200, 0, 200]);
    }
}

#[test]
fn what_is_no_recording_is_refused_with_its_place() {
    let refused = |bytes: &[u8]| profiles("input", bytes).unwrap_err().to_string();
    assert!(refused(b"").contains("input"));
    assert!(refused(b"a,b\n1,2\n").contains("no column"));
    assert!(
        refused(b"id,lower,upper,size,offset\na,0,4,200,x\n")
            .contains("input:2: column 5 (offset)")
    );
    assert!(refused(b"\x80\x04\x95").contains("at byte"));
    assert!(
        refused(b"Thread,Time,Action,Pointer,Size,Stream\n1,1,free,0x10,1,0\n").contains("input:2")
    );
}
