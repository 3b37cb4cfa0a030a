//! The one door through which every kernel of the host runs.

use std::ops::Range;

use crate::context::Device;

/// Runs `body` over `0..count`, in ranges that do not overlap and together cover it, and returns
/// when all of it is done.
///
/// The host device runs everything in the order of the program, on the calling thread.
pub(in crate::ops) fn launch(
    _device: &Device,
    count: usize,
    body: impl Fn(Range<usize>) + Send + Sync,
) {
    if count > 0 {
        body(0..count);
    }
}
