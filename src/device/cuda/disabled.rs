//! Without the feature `cuda` there is no such device.

use super::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};

/// A CUDA device that can be used: none.
#[derive(Debug)]
pub(crate) enum Cuda {}

/// A compiled kernel: none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {}

impl Cuda {
    /// The device with this ordinal.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        let text = format!("cuda:{ordinal}: built without the feature `cuda`");
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    /// How many devices there are: none.
    pub(crate) fn count() -> usize {
        0
    }

    pub(crate) fn kernel(
        &self,
        _key: KernelKey,
        _source: &dyn Fn() -> KernelSource,
    ) -> Result<Kernel> {
        match *self {}
    }

    pub(crate) unsafe fn launch(
        &self,
        _stream: StreamId,
        _kernel: Kernel,
        _grid: Grid,
        _arguments: &Arguments,
    ) -> Result<()> {
        match *self {}
    }

    pub(crate) unsafe fn copy(
        &self,
        _stream: StreamId,
        _source: DevicePtr,
        _target: DevicePtr,
        _bytes: u64,
    ) -> Result<()> {
        match *self {}
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn bad_index_address(&self) -> DevicePtr {
        match *self {}
    }
}
