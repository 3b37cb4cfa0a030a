//! The one door through which every kernel of the host runs.

use std::ops::Range;

use crate::context::Device;
use crate::device::StreamId;

/// Runs `body` with what it reads and what it writes over `0..count`, in ranges that do not overlap and together cover it, in the order
/// of `stream`: at once on the calling thread, or later where the device delays its work.
///
/// So both are plain data, which is copied where it is needed later. Of memory they have addresses,
/// not handles: a handle would keep the block from being reused, which no kernel of a real device does.
/// The body may rely on three things until
/// it has run. The memory under the addresses stays reserved, because segments are released only
/// once the streams are done that used their blocks. What it reads was written before, and nothing
/// else writes there meanwhile, because the caller ordered `stream` after the other streams that use
/// its operands, and whoever gets the memory next is ordered after `stream`.
#[inline(always)]
pub(in crate::ops) fn launch<R, W>(
    device: &Device,
    stream: StreamId,
    count: usize,
    (reads, writes): (&R, &W),
    body: impl Fn(&R, &W, Range<usize>) + Send + Sync + 'static,
) where
    R: Copy + Send + Sync + 'static,
    W: Copy + Send + Sync + 'static,
{
    if count == 0 {
        return;
    }
    match device.backend().delayed() {
        None => body(reads, writes, 0..count),
        Some(delayed) => {
            let (reads, writes) = (*reads, *writes);
            delayed.push(stream, move || body(&reads, &writes, 0..count));
        }
    }
}
