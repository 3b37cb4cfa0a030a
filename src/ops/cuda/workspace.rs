//! Operations of several launches, and the memory that they need on the way.

use std::panic::Location;

use super::memory::scratch_at;
use crate::array::Buffer;
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// What an operation of several launches needs: its place in the order of streams, and temporary
/// memory.
#[derive(Clone, Copy)]
pub(super) struct Workspace<'a> {
    pub(super) order: CudaOrder<'a>,
    /// Who asked for the operation, which a closure would hide.
    call_site: &'static Location<'static>,
}

impl<'a> Workspace<'a> {
    #[track_caller]
    pub(super) fn new(order: CudaOrder<'a>) -> Self {
        Self {
            order,
            call_site: Location::caller(),
        }
    }

    /// Memory for `count` things of `bytes_each`. It may be dropped once what uses it has been
    /// launched: whoever gets it next is ordered after that.
    #[track_caller]
    pub(super) fn allocate(&self, count: usize, bytes_each: usize) -> Result<Buffer> {
        let size_bytes = count.saturating_mul(bytes_each);
        scratch_at(self.order.device, size_bytes, self.call_site)
    }

    /// As many bytes, all of them 0 once the work that is launched from here on runs.
    #[track_caller]
    pub(super) fn zeroed(&self, size_bytes: usize) -> Result<Buffer> {
        let buffer = self.allocate(size_bytes, 1)?;
        let (gpu, address) = (self.order.gpu, DevicePtr(buffer.address()));
        // SAFETY: these are the bytes of memory that was allocated just now, which nobody else has.
        let fill = |stream| unsafe { gpu.fill(stream, address, size_bytes as u64, &[0]) };
        self.order.queue(fill)?;
        Ok(buffer)
    }

    /// Compiles what is not known yet of the kernels that are going to be launched, all at the same
    /// time.
    pub(super) fn prepare(&self, kernels: &[(KernelKey, &dyn Fn() -> KernelSource)]) {
        self.order.gpu.prepare(kernels);
    }

    /// As [`launch`](super::launch::launch), in this order.
    #[track_caller]
    pub(super) fn launch(
        &self,
        key: KernelKey,
        source: &dyn Fn() -> KernelSource,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<()> {
        super::launch::launch(self.order, key, source, grid, arguments)
    }
}
