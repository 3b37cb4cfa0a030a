//! Operations of several launches, and their temporary memory.

use std::panic::Location;

use super::memory::scratch_at;
use crate::array::Buffer;
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::order::CudaOrder;

/// The resources of an operation of several launches: its position in the order of streams, and
/// temporary memory.
#[derive(Clone, Copy)]
pub(super) struct Workspace<'a> {
    pub(super) order: CudaOrder<'a>,
    /// The call site of the operation, which a closure would hide.
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

    /// Allocates memory for `count` items of `bytes_each`. The memory may be dropped once the
    /// kernels that use it have been launched, because its next use is ordered after these kernels.
    #[track_caller]
    pub(super) fn allocate(&self, count: usize, bytes_each: usize) -> Result<Buffer> {
        let size_bytes = count.saturating_mul(bytes_each);
        scratch_at(self.order.device, size_bytes, self.call_site)
    }

    /// Allocates `size_bytes` bytes, which are 0 for all work that is launched after this call.
    #[track_caller]
    pub(super) fn zeroed(&self, size_bytes: usize) -> Result<Buffer> {
        let buffer = self.allocate(size_bytes, 1)?;
        let (gpu, address) = (self.order.gpu, DevicePtr(buffer.address()));
        // SAFETY: these are the bytes of memory that was allocated just now, which nothing else
        // uses.
        let fill = |stream| unsafe { gpu.fill(stream, address, size_bytes as u64, &[0]) };
        self.order.queue(fill)?;
        Ok(buffer)
    }

    /// Compiles concurrently those kernels of the operation that are not compiled yet.
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
