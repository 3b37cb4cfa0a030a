//! Tests of the sources over the host, and of every stack of adaptors over them.

use super::direct::DirectSource;
use super::expandable::Expandable;
use super::fault::{Fault, FaultPlan};
use super::limit::Limit;
use super::testing::{TestSource, release, reserve, reserve_none};
use super::*;
use crate::device::Backend;
use crate::device::host::{HostBackend, host_pointer};
use crate::error::ErrorKind;
use crate::sync::Arc;

fn host() -> Arc<dyn Backend> {
    Arc::new(HostBackend::new())
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
    // SAFETY: the pages were reserved above.
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

/// Wraps a source of 2000 bytes in two adaptors, in both orders. The limit is 1000 bytes, and the
/// second reservation that reaches the fault fails.
#[test]
fn adaptors_compose_in_both_orders() {
    let plan = FaultPlan::Nth(2);

    let source = Limit::new(Fault::new(TestSource::new(2000), plan).unwrap(), Some(1000));
    let first = reserve(&source, 600);
    // The limit refuses first, so the fault does not count this reservation.
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

type Adaptor = fn(Box<dyn Source>) -> Box<dyn Source>;

/// Reserves and releases segments and pages with every stack of up to four adaptors over the host,
/// repetitions included.
#[test]
fn every_stack_of_adaptors_reserves_and_releases() {
    let adaptors: [Adaptor; 3] = [
        |source| Box::new(Limit::new(source, Some(8192 + 2 * PAGE))),
        |source| Box::new(Fault::new(source, FaultPlan::Nth(4)).unwrap()),
        |source| source,
    ];
    for number in 0..3usize.pow(4) {
        let order = [0, 1, 2, 3].map(|digit| number / 3usize.pow(digit) % 3);
        let pages = Expandable::new(&host(), None).map(Arc::new);
        let bottom: Box<dyn Source> = match &pages {
            Some(pages) => Box::new(Arc::clone(pages)),
            None => Box::new(DirectSource::new(host())),
        };
        let source = order
            .iter()
            .fold(bottom, |source, &at| adaptors[at](source));
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
}
