//! Snapshots with the highest density of values, up to the memory limit.

use crate::bounds::pickles::{Pickler, snapshot};
use crate::bounds::snapshots::{block, none, read, segment};

#[test]
fn opcodes_of_one_byte_take_little_memory() {
    let with = |before: &[u8], repeated: &[u8], after: &[u8]| {
        let mut bytes = b"\x80\x04".to_vec();
        bytes.extend(before);
        bytes.extend(repeated.repeat(1_000_000 / repeated.len()));
        bytes.extend(after);
        bytes.push(b'.');
        bytes
    };
    let cases: [(&[u8], &[u8], &[u8]); 14] = [
        (b"](", b"N", b"e"),
        (b"](", b"]", b"e"),
        (b"](", b"}", b"l"),
        (b"", b"]", b""),
        (b"", b"(", b"N"),
        (b"N", b"2", b""),
        (b"]", b"\x94", b""),
        (b"]", b"Na", b""),
        (b"", b"]Na", b""),
        (b"", b"]\x94", b""),
        (b"", b"(N", b"N"),
        (b"}", b"NNs", b""),
        (b"](", b"\x8c\0\x94", b"e"),
        (b"N", b"\x85", b""),
    ];
    for (before, repeated, after) in cases {
        let (snapshot, profiles) = read(&with(before, repeated, after));
        // An empty list is a snapshot without segments.
        match snapshot {
            Ok(own) => assert!(own.devices.is_empty() && profiles.unwrap().is_empty()),
            Err(_) => assert!(profiles.is_err()),
        }
    }
    // Each of the lists is appended to the list before it.
    let mut bytes = b"\x80\x04".to_vec();
    bytes.extend(b"]".repeat(500_000));
    bytes.extend(b"a".repeat(499_999));
    bytes.push(b'.');
    assert!(read(&bytes).0.is_err());
}

#[test]
fn frames_of_one_byte_take_little_memory() {
    for repeated in [&b"2"[..], b"h\0"] {
        let mut bytes =
            b"\x80\x04}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}(X\x06\0\0\0action\
            X\x05\0\0\0allocX\x04\0\0\0addrK\x01X\x04\0\0\0sizeK\x01X\x06\0\0\0frames\
            (}(X\x08\0\0\0filenameX\0\0\0\0uq\0"
                .to_vec();
        bytes.extend(repeated.repeat(500_000));
        bytes.extend(b"lueeu.");
        let (snapshot, profiles) = read(&bytes);
        assert_eq!(snapshot.unwrap().devices[0].lifetimes.len(), 1);
        drop(profiles);
    }
}

/// A function that writes `count` values of one kind into the segments and traces of a snapshot.
type Many = fn(segments: bool, pickler: &mut Pickler, count: usize);

/// Writes the values of `items` as the only trace. For the segments, writes an empty list.
fn one_trace(segments: bool, pickler: &mut Pickler, items: impl FnOnce(&mut Pickler)) {
    if segments {
        return none(pickler);
    }
    pickler.begin_list();
    pickler.begin_list();
    items(pickler);
    pickler.end_list();
    pickler.end_list();
}

fn shared_events(segments: bool, pickler: &mut Pickler, count: usize) {
    one_trace(segments, pickler, |pickler| {
        let memos = ["alloc", "free_requested"].map(|action| {
            pickler.event(action, 1 << 40, 512);
            pickler.remember()
        });
        (0..count).for_each(|number| pickler.again(memos[number % 2]));
    });
}

fn shared_blocks(segments: bool, pickler: &mut Pickler, count: usize) {
    if !segments {
        return none(pickler);
    }
    pickler.begin_list();
    segment(pickler, 0, 1 << 40, |pickler| {
        pickler.begin_list();
        block(pickler, "active_allocated");
        let memo = pickler.remember();
        (0..count).for_each(|_| pickler.again(memo));
        pickler.end_list();
    });
    pickler.end_list();
}

fn short_segments(segments: bool, pickler: &mut Pickler, count: usize) {
    if !segments {
        return none(pickler);
    }
    pickler.begin_list();
    (0..count as u64).for_each(|number| segment(pickler, 3, number << 30, none));
    pickler.end_list();
}

fn shared_traces(segments: bool, pickler: &mut Pickler, count: usize) {
    if segments {
        return none(pickler);
    }
    pickler.begin_list();
    pickler.begin_list();
    pickler.event("oom", 1 << 40, 512);
    pickler.end_list();
    let memo = pickler.remember();
    (0..count).for_each(|_| pickler.again(memo));
    pickler.end_list();
}

fn shared_frames(segments: bool, pickler: &mut Pickler, count: usize) {
    one_trace(segments, pickler, |pickler| {
        pickler.begin_dict();
        for (key, text) in [("action", "alloc"), ("category", "\u{fffd}")] {
            pickler.text(key);
            pickler.text(text);
        }
        pickler.text("addr");
        pickler.int(1);
        pickler.text("size");
        pickler.int(1);
        pickler.text("frames");
        pickler.begin_list();
        pickler.dict(&[("name", "f"), ("filename", "a")], &[("line", 1)]);
        let memo = pickler.remember();
        (0..count).for_each(|_| pickler.again(memo));
        pickler.end_list();
        pickler.end_dict();
    });
}

fn short_entries(segments: bool, pickler: &mut Pickler, count: usize) {
    one_trace(segments, pickler, |pickler| {
        for number in 0..count as u64 {
            pickler.begin_dict();
            for key in ["action", "frames", "addr", "size"] {
                pickler.text(key);
                match key {
                    "action" => pickler.text("alloc"),
                    "frames" => {
                        pickler.begin_list();
                        let name = format!("{number}");
                        pickler.dict(&[("filename", &name)], &[("line", 1)]);
                        pickler.end_list();
                    }
                    "addr" => pickler.int(1 << 12 | number << 20),
                    _ => pickler.int(512),
                }
            }
            pickler.end_dict();
        }
    });
}

#[test]
fn as_much_as_is_read_takes_no_more_than_the_limit() {
    let cases: [Many; 6] = [
        shared_events,
        shared_blocks,
        short_segments,
        shared_traces,
        shared_frames,
        short_entries,
    ];
    for many in cases {
        let file = |count| {
            snapshot(
                |pickler| many(true, pickler, count),
                |pickler| {
                    many(false, pickler, count);
                    // The long text raises the memory limit, which grows with the file's length.
                    pickler.text(&"padding".repeat(20_000));
                    pickler.bytes.push(b'N');
                },
            )
        };
        let mut counts = 0..1 << 17;
        while counts.len() > 4000 {
            let count = counts.start + counts.len() / 2;
            let (snapshot, profiles) = read(&file(count));
            if snapshot.is_ok() || profiles.is_ok() {
                counts.start = count;
            } else {
                counts.end = count;
            }
        }
        assert!(counts.start > 0);
    }
}
