//! Operations of several launches, and their temporary memory.

use std::panic::Location;

use super::memory::scratch_at;
use crate::array::Buffer;
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// The resources of an operation with several launches: its stream order, and temporary memory.
#[derive(Clone, Copy)]
pub(super) struct Workspace<'a> {
    pub(super) order: CudaOrder<'a>,
    /// The call site of the operation. `track_caller` does not find it in a closure.
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

    /// Allocates memory for `count` items of `bytes_each`. The caller may drop the memory after it
    /// launches the kernels that use the memory. The next use of the memory is ordered after these
    /// kernels.
    #[track_caller]
    pub(super) fn allocate(&self, count: usize, bytes_each: usize) -> Result<Buffer> {
        let size_bytes = count.saturating_mul(bytes_each);
        scratch_at(self.order.device, size_bytes, self.call_site)
    }

    /// Allocates `size_bytes` bytes, and enqueues a fill with zeros.
    #[track_caller]
    pub(super) fn zeroed(&self, size_bytes: usize) -> Result<Buffer> {
        let buffer = self.allocate(size_bytes, 1)?;
        let (gpu, address) = (self.order.gpu, DevicePtr(buffer.address()));
        // SAFETY: `buffer` has `size_bytes` bytes. It was allocated just now, so nothing else uses
        // it.
        let fill = |stream| unsafe { gpu.fill(stream, address, size_bytes as u64, &[0]) };
        self.order.queue(fill)?;
        Ok(buffer)
    }

    /// Compiles the kernels of the operation that are not compiled yet, concurrently.
    pub(super) fn prepare(&self, kernels: &[(KernelKey, &dyn Fn() -> KernelSource)]) {
        self.order.gpu.prepare(kernels);
    }

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
