//! Walks a snapshot like PyTorch's viewer, and fails in the same cases.

use std::collections::HashMap;

use crate::unpickle::Value;

/// A segment: its first address, its end and its stream.
type Segment = (u64, u64, u64);

/// Checks that blocks tile their segments, and that segments do not overlap. Returns the segments.
/// Also returns, by address, the end and the state of each block that is not idle.
pub(crate) fn check_tiles(snapshot: &Value) -> (Vec<Segment>, HashMap<u64, (u64, String)>) {
    let mut segments = Vec::new();
    let mut blocks = HashMap::new();
    for segment in snapshot.list("segments") {
        let (start, bytes) = (segment.int("address"), segment.int("total_size"));
        let mut at = start;
        let mut allocated_bytes = 0;
        for block in segment.list("blocks") {
            assert_eq!(block.int("address"), at);
            let (size, state) = (block.int("size"), block.text("state"));
            assert!(size > 0 && block.int("requested_size") <= size);
            at += size;
            if state != "inactive" {
                blocks.insert(block.int("address"), (at, state.to_owned()));
            }
            allocated_bytes += u64::from(state == "active_allocated") * size;
        }
        assert_eq!(at, start + bytes, "the blocks tile the segment");
        assert_eq!(segment.int("allocated_size"), allocated_bytes);
        segments.push((start, start + bytes, segment.int("stream")));
    }
    let mut sorted = segments.clone();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    (segments, blocks)
}

/// Walks the entries back from the final state. Before each entry, all blocks must lie in segments.
pub(crate) fn walk_back(snapshot: &Value, device: usize) {
    let (mut segments, mut blocks) = check_tiles(snapshot);
    let trace = snapshot.list("device_traces")[device].items();
    for (number, entry) in trace.iter().enumerate().rev() {
        let span = || (entry.int("addr"), entry.int("addr") + entry.int("size"));
        match entry.text("action") {
            "alloc" => {
                let block = blocks.remove(&span().0);
                assert_eq!(block.map(|(end, _)| end), Some(span().1), "entry {number}");
            }
            "free_requested" => {
                let block = blocks.get_mut(&span().0).expect("the block that is freed");
                assert_eq!(block.1, "active_pending_free", "entry {number}");
                "active_allocated".clone_into(&mut block.1);
            }
            "free_completed" => {
                let (start, end) = span();
                let former = blocks.insert(start, (end, "active_pending_free".to_owned()));
                assert!(former.is_none(), "entry {number}");
            }
            "segment_map" => unmap(&mut segments, span()),
            "segment_unmap" => map(&mut segments, span(), entry.int("stream")),
            "oom" => assert_eq!(entry.int("device_free"), 0),
            action => assert_eq!(action, "snapshot"),
        }
        for (&start, &(end, _)) in &blocks {
            let covered = covered(&segments, start, end);
            assert!(
                covered,
                "entry {number}: {start:#x} to {end:#x} in {segments:x?}"
            );
        }
    }
}

fn covered(segments: &[Segment], mut start: u64, end: u64) -> bool {
    while let Some(around) = segments.iter().find(|own| own.0 <= start && start < own.1) {
        start = around.1;
        if start >= end {
            return true;
        }
    }
    false
}

/// Maps a span, and merges it with adjacent segments of its stream.
fn map(segments: &mut Vec<Segment>, (mut start, mut end): (u64, u64), stream: u64) {
    assert!(segments.iter().all(|own| own.1 <= start || end <= own.0));
    segments.retain(|own| {
        let is_before = (own.1, own.2) == (start, stream);
        let is_after = (own.0, own.2) == (end, stream);
        start = if is_before { own.0 } else { start };
        end = if is_after { own.1 } else { end };
        !is_before && !is_after
    });
    segments.push((start, end, stream));
}

/// Unmaps a span. Fails if no single segment contains the span.
fn unmap(segments: &mut Vec<Segment>, (start, end): (u64, u64)) {
    let around = segments
        .iter()
        .position(|own| own.0 <= start && end <= own.1);
    let (first, last, stream) = segments.swap_remove(around.expect("a segment around it"));
    let rest = [(first, start, stream), (end, last, stream)];
    segments.extend(rest.into_iter().filter(|own| own.0 < own.1));
}

/// Returns the sorted, distinct categories of the entries.
pub(crate) fn categories(snapshot: &Value, device: usize) -> Vec<&str> {
    let trace = snapshot.list("device_traces")[device].items();
    let with_category = trace.iter().filter(|entry| entry.get("category").is_some());
    let mut categories: Vec<&str> = with_category.map(|entry| entry.text("category")).collect();
    categories.sort_unstable();
    categories.dedup();
    categories
}
