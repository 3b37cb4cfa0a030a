//! Models of [`RemoteFreeList`], the blocks that other threads freed.

use super::*;
use crate::cache::shard::RemoteFreeList;
use crate::memory::Block;
use crate::memory::header::{Header, Home, List};

fn header(bytes: u64) -> Box<Header> {
    // The header is never handed out, so its home is not accessed.
    let mut header = Header::new(Block::EMPTY, 0, Home::NONE);
    header.requested_bytes = bytes;
    header
}

fn bytes(list: List) -> u64 {
    list.map(|header| header.requested_bytes).sum()
}

#[test]
fn what_two_threads_push_is_drained_once() {
    check(|| {
        let list = Arc::new(RemoteFreeList::new());
        let threads = [1, 10].map(|bytes| {
            let list = Arc::clone(&list);
            thread::spawn(move || assert!(list.push(header(bytes)).is_ok()))
        });
        let mut drained = bytes(list.drain());
        drained += bytes(list.drain());
        join(threads);
        drained += bytes(list.drain());
        assert_eq!(drained, 11);
    });
}

#[test]
fn a_header_that_is_removed_and_pushed_again_is_safe() {
    check(|| {
        let list = Arc::new(RemoteFreeList::new());
        assert!(list.push(header(1)).is_ok());
        let other = Arc::clone(&list);
        let pusher = thread::spawn(move || assert!(other.push(header(10)).is_ok()));
        // This is the ABA case: the header has an unchanged address, but another successor.
        for header in list.drain() {
            assert!(list.push(header).is_ok());
        }
        pusher.join().unwrap();
        assert_eq!(bytes(list.drain()), 11);
    });
}

#[test]
fn a_closed_list_has_earlier_headers_and_refuses_later_ones() {
    check(|| {
        let list = Arc::new(RemoteFreeList::new());
        let threads = [1, 10].map(|bytes| {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                let refused = list.push(header(bytes)).err();
                refused.map_or(0, |header| header.requested_bytes)
            })
        });
        let closed = bytes(list.close());
        let refused: u64 = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(closed + refused, 11);
        assert!(list.push(header(0)).is_err());
        assert_eq!(bytes(list.drain()), 0);
    });
}
