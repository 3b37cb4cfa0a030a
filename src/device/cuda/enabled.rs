//! With the feature `cuda`: the driver, which is loaded at run time.

mod compiler;

#[cfg(test)]
pub(crate) use compiler::compile_for_all;

use cudarc::driver::sys;

use super::{Arguments, Grid, KernelKey, KernelSource};
use crate::device::{DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};

/// A CUDA device: its context, memory, streams, events and compiled kernels.
#[derive(Debug)]
pub(crate) enum Cuda {}

/// A compiled kernel of a [`Cuda`], which keeps it loaded for as long as it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {}

impl Cuda {
    /// The device with this ordinal.
    ///
    /// cudarc panics where a library or a symbol is absent, so that is asked first.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        // SAFETY: loading the driver library runs its initialisers, which NVIDIA supports at any time.
        if !unsafe { sys::is_culib_present() } {
            let text = format!(
                "cuda:{ordinal}: no CUDA driver was found: install NVIDIA's driver (libcuda.so.1)"
            );
            return Err(Error::new(ErrorKind::Driver, text));
        }
        let text =
            format!("cuda:{ordinal}: this version of cachescope runs on the host device only");
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    /// The kernel of that key; its source is asked for, compiled and loaded where it is not known yet.
    pub(crate) fn kernel(
        &self,
        _key: KernelKey,
        _source: &dyn Fn() -> KernelSource,
    ) -> Result<Kernel> {
        match *self {}
    }

    /// Runs a kernel in the order of `stream`.
    ///
    /// # Safety
    ///
    /// The arguments must be as many, as long and of such values that the kernel reads and writes memory
    /// of this device alone that nothing else writes, or uses at all, outside the stream's order.
    pub(crate) unsafe fn launch(
        &self,
        _stream: StreamId,
        _kernel: Kernel,
        _grid: Grid,
        _arguments: &Arguments,
    ) -> Result<()> {
        match *self {}
    }

    /// Copies `bytes` from `source` to `target` in the order of `stream`.
    ///
    /// # Safety
    ///
    /// Both must begin so many bytes of this device's reserved memory that do not overlap, and that
    /// nothing else writes, or in the target's case uses, outside the stream's order.
    pub(crate) unsafe fn copy(
        &self,
        _stream: StreamId,
        _source: DevicePtr,
        _target: DevicePtr,
        _bytes: u64,
    ) -> Result<()> {
        match *self {}
    }

    /// How many blocks of threads run at a time, at least.
    pub(crate) fn multiprocessors(&self) -> u32 {
        match *self {}
    }

    /// Where a kernel notes an index that is out of range, as three 64-bit words that the host reads too:
    /// the first is 0 where none was met, and else the number of the operation (set by compare-and-swap, so
    /// that the first one stays); then the index, then the length of the axis. What synchronises looks
    /// there, and tells.
    pub(crate) fn bad_index_address(&self) -> DevicePtr {
        match *self {}
    }
}
