//! The one door through which every kernel of the host runs.

use std::ops::Range;

use crate::context::Device;
use crate::device::StreamId;

/// Runs `body` over `0..count`, in ranges that do not overlap and together cover it, in the order
/// of `stream`: at once on the calling thread, or later where the device delays its work.
///
/// So a body owns what it needs. Of memory it has addresses, not handles: a handle would keep the
/// block from being reused, which no kernel of a real device does. It may rely on three things until
/// it has run. The memory under the addresses stays reserved, because segments are released only
/// once the streams are done that used their blocks. What it reads was written before, and nothing
/// else writes there meanwhile, because the caller ordered `stream` after the other streams that use
/// its operands, and whoever gets the memory next is ordered after `stream`.
#[inline(always)]
pub(in crate::ops) fn launch(
    device: &Device,
    stream: StreamId,
    count: usize,
    body: impl Fn(Range<usize>) + Send + Sync + 'static,
) {
    if count == 0 {
        return;
    }
    match device.backend().delayed() {
        None => body(0..count),
        Some(delayed) => delayed.push(stream, move || body(0..count)),
    }
}
