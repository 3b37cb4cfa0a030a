//! Where operations of several launches run, and take room on the way.

use std::panic::Location;

use super::memory::scratch_at;
use crate::array::Buffer;
use crate::context::Device;
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::order::Order;

/// A device and an order, whose launches follow one another.
#[derive(Clone, Copy)]
pub(super) struct Workplace<'a> {
    pub(super) order: Order<'a>,
    device: &'a Device,
    /// Who asked for the operation, which a closure would hide.
    call_site: &'static Location<'static>,
}

impl<'a> Workplace<'a> {
    #[track_caller]
    pub(super) fn new(order: Order<'a>, device: &'a Device) -> Self {
        Self {
            order,
            device,
            call_site: Location::caller(),
        }
    }

    /// Room for `count` things of `bytes_each`. It may be dropped once what uses it has been launched:
    /// whoever gets it next is ordered after that.
    #[track_caller]
    pub(super) fn room(&self, count: usize, bytes_each: usize) -> Result<Buffer> {
        let size_bytes = count.saturating_mul(bytes_each);
        scratch_at(self.device, size_bytes, self.call_site)
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
