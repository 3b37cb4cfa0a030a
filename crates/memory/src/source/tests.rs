//! The sources over the host, and every stack of adaptors over them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::direct::DirectSource;
use super::expandable::Expandable;
use super::fault::{Fault, FaultPlan};
use super::limit::Limit;
use super::logging::Logging;
use super::reservation_log::ReservationLog;
use super::testing::{TestSource, release, release_on, reserve, reserve_none};
use super::*;
use crate::device::Backend;
use crate::device::host::{HostBackend, host_pointer};
use crate::error::ErrorKind;
use crate::sync::Arc;

fn host() -> Arc<dyn Backend> {
    Arc::new(HostBackend::new())
}

/// A file path for the test `name`, removed on drop.
struct TempLog(PathBuf);

impl TempLog {
    fn new(name: &str) -> Self {
        let file = format!("cachescope-{}-{name}.csv", std::process::id());
        Self(std::env::temp_dir().join(file))
    }

    fn log(&self) -> Arc<ReservationLog> {
        ReservationLog::open(&self.0).unwrap()
    }

    fn text(&self) -> String {
        self.log().flush();
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TempLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Replays a log. Returns the numbers of rows that allocate, fail and free.
fn replayed(text: &str) -> [u32; 3] {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("Thread,Time,Action,Pointer,Size,Stream"));
    let mut live = BTreeMap::new();
    let mut counts = [0; 3];
    for line in lines {
        let fields: Vec<_> = line.split(',').collect();
        let [thread, time, action, pointer, size, stream] = fields[..] else {
            panic!("{line}");
        };
        thread.parse::<u64>().unwrap();
        assert_eq!(
            (time.len(), &time[2..3], &time[8..9]),
            (15, ":", "."),
            "{line}"
        );
        assert!(stream.starts_with("0x"), "{line}");
        match action {
            "allocate" => {
                counts[0] += 1;
                assert_eq!(live.insert(pointer, size), None, "{line}: is live");
            }
            "allocate failure" => {
                counts[1] += 1;
                assert_eq!(pointer, "0x0", "{line}");
            }
            "free" => {
                counts[2] += 1;
                assert_eq!(live.remove(pointer), Some(size), "{line}: is not live");
            }
            _ => panic!("{line}"),
        }
    }
    counts
}

#[test]
fn the_direct_source_gives_memory_of_the_device() {
    let source = DirectSource::new(host());
    let first = reserve(&source, 4096);
    let second = reserve(&source, 512);
    assert!(first.0.is_multiple_of(512) && second.0.is_multiple_of(512));
    assert!(first.0 + 4096 <= second.0 || second.0 + 512 <= first.0);
    release(&source, first, 4096);
    release(&source, second, 512);
    reserve_none(&source, u64::MAX);
    let error = source
        .reserve(ReserveAt::Address(first), 4096, StreamId(0))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
}

#[test]
fn the_expandable_source_gives_pages_where_they_are_wanted_and_segments_beside() {
    let Some(source) = Expandable::new(&host(), None) else {
        return;
    };
    let page = source.page_bytes();
    let range = source.add_range(page).unwrap().unwrap();
    assert!(range.bytes >= 2 * host().total_bytes() && range.bytes.is_multiple_of(page));
    let segment = reserve(&source, 4096);
    let at = range.address.offset(5 * page);
    let pages = source.reserve(ReserveAt::Address(at), 3 * page, StreamId(0));
    assert_eq!(pages.unwrap(), Some(at));
    // SAFETY: reserved above.
    unsafe { host_pointer(at).write_bytes(1, 3 * page as usize) };
    release(&source, at.offset(page), page);
    release(&source, at, page);
    release(&source, segment, 4096);
    release(&source, at.offset(2 * page), page);

    assert_eq!(
        source.add_range(u64::MAX).unwrap(),
        None,
        "more than the device"
    );
    let outside = [
        (range.address.offset(range.bytes), page),
        (range.address.offset(range.bytes - page), 2 * page),
        (range.address.offset(512), page),
        (range.address, 512),
    ];
    for (address, bytes) in outside {
        let error = source.reserve(ReserveAt::Address(address), bytes, StreamId(0));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Driver);
    }
}

/// Both orders of two adaptors over a source of 2000 bytes: a limit of 1000, and a fault at the
/// second reservation that reaches it.
#[test]
fn adaptors_compose_in_both_orders() {
    let plan = FaultPlan::Nth(2);

    let source = Limit::new(Fault::new(TestSource::new(2000), plan).unwrap(), Some(1000));
    let first = reserve(&source, 600);
    // The limit refuses first, so the fault does not count this one.
    reserve_none(&source, 500);
    reserve_none(&source, 400);
    assert_eq!(source.reserved_bytes(), 600);
    reserve(&source, 400);
    release(&source, first, 600);
    assert_eq!(source.reserved_bytes(), 400);

    let source = Fault::new(Limit::new(TestSource::new(2000), Some(1000)), plan).unwrap();
    let first = reserve(&source, 600);
    reserve_none(&source, 400);
    reserve_none(&source, 500);
    reserve(&source, 400);
    reserve_none(&source, 1);
    release(&source, first, 600);
    reserve(&source, 600);
}

const PAGE: u64 = 2 << 20;

/// Wraps a source in an adaptor, at this depth of a stack.
type Adaptor<'a> = Box<dyn Fn(Box<dyn Source>, usize) -> Box<dyn Source> + 'a>;

/// Every stack of up to four adaptors over the host, repetitions included: it reserves and releases
/// segments and pages, and its logs can be replayed.
#[test]
fn every_stack_of_adaptors_reserves_and_releases() {
    // A log belongs to one source.
    let logs = [0, 1, 2, 3].map(|depth| TempLog::new(&format!("stack-{depth}")));
    let adaptors: [Adaptor<'_>; 4] = [
        Box::new(|source, _| Box::new(Limit::new(source, Some(8192 + 2 * PAGE)))),
        Box::new(|source, _| Box::new(Fault::new(source, FaultPlan::Nth(4)).unwrap())),
        Box::new(|source, depth| Box::new(Logging::new(source, PAGE, logs[depth].log()))),
        Box::new(|source, _| source),
    ];
    for number in 0..4usize.pow(4) {
        let order = [0, 1, 2, 3].map(|digit| number / 4usize.pow(digit) % 4);
        let pages = Expandable::new(&host(), None).map(Arc::new);
        let bottom: Box<dyn Source> = match &pages {
            Some(pages) => Box::new(Arc::clone(pages)),
            None => Box::new(DirectSource::new(host())),
        };
        let stack = order.iter().zip(0..);
        let source = stack.fold(bottom, |source, (&at, depth)| adaptors[at](source, depth));
        let first = reserve(&source, 4096);
        let second = reserve(&source, 4096);
        assert_ne!(first, second);
        if let Some(pages) = pages {
            let at = pages.add_range(PAGE).unwrap().unwrap().address;
            let reserved = source.reserve(ReserveAt::Address(at), 2 * PAGE, StreamId(3));
            assert_eq!(reserved.unwrap(), Some(at), "{order:?}");
            release(&source, at.offset(PAGE), PAGE);
            release(&source, at, PAGE);
        }
        reserve_none(&source, 1 << 60);
        release(&source, first, 4096);
        release(&source, second, 4096);
    }
    for log in &logs {
        let [allocated, failed, freed] = replayed(&log.text());
        assert_eq!(allocated, freed);
        assert!(allocated > 100 && failed > 0, "{allocated} {failed}");
    }
}

#[test]
fn a_log_has_a_row_for_each_page_and_each_segment() {
    let scratch = TempLog::new("rows");
    let source = Logging::new(TestSource::new(4 * PAGE), PAGE, scratch.log());
    let segment = source
        .reserve(ReserveAt::Anywhere, 700, StreamId(2))
        .unwrap()
        .unwrap();
    let pages = source.reserve(ReserveAt::Address(DevicePtr(PAGE)), 2 * PAGE, StreamId(0));
    let pages = pages.unwrap().unwrap();
    assert_eq!(
        source
            .reserve(ReserveAt::Anywhere, 9 * PAGE, StreamId(1))
            .unwrap(),
        None
    );
    release_on(&source, segment, 700, StreamId(2));
    release_on(&source, pages, 2 * PAGE, StreamId(17));
    // The first two columns are thread and time.
    let text = scratch.text();
    let rows: Vec<_> = text
        .lines()
        .map(|line| line.splitn(3, ',').nth(2).unwrap())
        .collect();
    let (segment, first, second) = (segment.0, pages.0, pages.0 + PAGE);
    let expected = [
        "Action,Pointer,Size,Stream".to_owned(),
        format!("allocate,{segment:#x},700,0x2"),
        format!("allocate,{first:#x},{PAGE},0x0"),
        format!("allocate,{second:#x},{PAGE},0x0"),
        format!("allocate failure,0x0,{},0x1", 9 * PAGE),
        format!("free,{segment:#x},700,0x2"),
        format!("free,{first:#x},{PAGE},0x11"),
        format!("free,{second:#x},{PAGE},0x11"),
    ];
    assert_eq!(rows, expected);
    replayed(&text);
}

#[test]
fn devices_that_name_one_log_share_it() {
    let scratch = TempLog::new("shared");
    let threads = [1, 2, 3].map(|_| {
        let source = Logging::new(DirectSource::new(host()), PAGE, scratch.log());
        std::thread::spawn(move || {
            for bytes in 1..500 {
                let address = reserve(&source, bytes);
                release(&source, address, bytes);
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(replayed(&scratch.text()), [1497, 0, 1497]);
}
