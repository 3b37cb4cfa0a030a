//! Stubs for a build without the feature `cuda`, in which no CUDA device can exist.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

#[cfg(feature = "fft")]
use super::fft::{FftCall, FftPlan};
use super::nccl::{NcclCall, NcclId};
#[cfg(feature = "linalg")]
use super::solver::SolverCall;
use super::{Arguments, Gemm, Grid, KernelKey, KernelSource};
use crate::costs::DriverLedger;
use crate::device::host_streams::{HostStream, StealWork};
use crate::device::{Backend, DeviceId, DevicePtr, Event, StreamId, Use};
use crate::error::{Error, ErrorCode, Result};
use crate::sync::{Arc, Weak};

/// A CUDA device; uninhabited.
#[derive(Debug)]
pub enum Cuda {}

/// A compiled kernel; uninhabited.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {}

/// A memory pool of the driver; uninhabited.
#[derive(Debug)]
pub enum OrderedPool {}

/// An executable graph; uninhabited.
#[derive(Debug)]
pub enum Executable {}

/// One rank of a communicator; uninhabited.
#[derive(Debug)]
pub enum Communicator {}

/// Memory that is registered with a communicator; uninhabited.
#[derive(Debug)]
pub enum Registration {}

/// A stub of the guard that restores a thread's current context.
#[derive(Debug)]
pub struct CurrentContext;

impl CurrentContext {
    pub fn get() -> Self {
        Self
    }
}

impl Communicator {
    uninhabited! {
        pub fn split(&self, _color: Option<usize>, _key: usize) -> Result<Option<Self>>;
        pub fn rank(&self) -> usize;
        pub fn size(&self) -> usize;
        pub fn async_error(&self) -> Result<()>;
        pub fn abort(&self);
        pub fn register(&self, _address: DevicePtr, _bytes: u64) -> Result<Registration>;
    }
}

/// The shared side of the launch lock; uninhabited.
#[derive(Debug)]
pub struct SharedLaunchGuard<'a>(PhantomData<&'a ()>);

/// The exclusive side of the launch lock; uninhabited.
#[derive(Debug)]
pub struct ExclusiveLaunchGuard<'a>(Infallible, PhantomData<&'a ()>);

impl ExclusiveLaunchGuard<'_> {
    pub fn check(&self, _used: impl Iterator<Item = (Range<u64>, Use)>) -> Result<()> {
        match self.0 {}
    }
}

impl Cuda {
    /// Fails, because the crate is built without the feature `cuda`.
    pub fn open(ordinal: usize) -> Result<Self> {
        let text = format!(
            r#"cuda:{ordinal}: built without the feature `cuda`: add `features = ["cuda"]` in Cargo.toml"#
        );
        Err(Error::new(ErrorCode::Feature, text))
    }

    /// Fails, because the imitated driver is compiled only with the feature `cuda`.
    pub fn meta(_: DriverLedger, _: u64, _: Option<usize>) -> Result<Self> {
        let text = r#"MetaKind::Cuda: built without the feature `cuda`: add `features = ["cuda"]` in Cargo.toml"#;
        Err(Error::new(ErrorCode::Feature, text))
    }

    /// Returns 0, because there are no CUDA devices.
    pub fn count() -> usize {
        0
    }

    /// Fails, because there are no communicators.
    pub fn new_nccl_id() -> Result<NcclId> {
        let text = r#"collectives: built without the feature `cuda`: add `features = ["cuda"]` in Cargo.toml"#;
        Err(Error::new(ErrorCode::Feature, text))
    }

    pub fn allow_tf32(&mut self, _allow: bool) {
        match *self {}
    }

    uninhabited! {
        pub fn begin_capture(&self, _stream: StreamId) -> Result<()>;
        pub fn end_capture(&self, _stream: StreamId) -> Result<Executable>;
        pub unsafe fn launch_graph(
            &self, _graph: &Executable, _stream: StreamId, _alone: &ExclusiveLaunchGuard<'_>
        ) -> Result<()>;
        pub fn lock_launches_shared(&self) -> SharedLaunchGuard<'_>;
        pub fn lock_launches_exclusive(
            &self, _stream: StreamId
        ) -> Result<ExclusiveLaunchGuard<'_>>;
        pub fn kernel(
            &self, _key: KernelKey, _source: &dyn Fn() -> KernelSource
        ) -> Result<Kernel>;
        pub fn prepare(&self, _wanted: &[(KernelKey, &dyn Fn() -> KernelSource)]);
        pub unsafe fn launch(
            &self, _stream: StreamId, _kernel: Kernel, _grid: Grid, _arguments: &Arguments
        ) -> Result<()>;
        pub unsafe fn copy(
            &self, _stream: StreamId, _source: DevicePtr, _target: DevicePtr, _bytes: u64
        ) -> Result<()>;
        pub fn new_pool(&self) -> Result<OrderedPool>;
        pub fn reserve_ordered(
            &self, _pool: &OrderedPool, _bytes: u64, _stream: StreamId
        ) -> Result<Option<DevicePtr>>;
        pub fn release_ordered(&self, _address: DevicePtr, _stream: StreamId) -> Result<()>;
        pub fn pool_bytes(&self, _pool: &OrderedPool) -> Result<u64>;
        pub fn trim_pool(&self, _pool: &OrderedPool, _keep_bytes: u64) -> Result<()>;
        pub unsafe fn gemm(&self, _stream: StreamId, _gemm: &Gemm) -> Result<()>;
        pub unsafe fn gemm_with_bias(
            &self, _stream: StreamId, _gemm: &Gemm, _bias: DevicePtr
        ) -> Result<bool>;
        #[cfg(feature = "linalg")]
        pub unsafe fn solver_workspace(
            &self, _stream: StreamId, _call: &SolverCall
        ) -> Result<usize>;
        #[cfg(feature = "linalg")]
        pub unsafe fn factorize(
            &self, _stream: StreamId, _call: &SolverCall, _workspace: (DevicePtr, usize)
        ) -> Result<()>;
        #[cfg(feature = "fft")]
        pub fn fft_workspace(&self, _plan: &FftPlan) -> Result<usize>;
        #[cfg(feature = "fft")]
        pub unsafe fn transform(
            &self, _stream: StreamId, _call: &FftCall, _workspace: DevicePtr
        ) -> Result<()>;
        pub fn join(
            &self, _id: &NcclId, _rank: usize, _size: usize, _timeout: Duration
        ) -> Result<Communicator>;
        pub unsafe fn communicate(
            &self, _communicator: &Communicator, _stream: StreamId, _call: &NcclCall
        ) -> Result<()>;
        pub unsafe fn import_stream(&self, _raw: usize) -> Result<StreamId>;
        pub fn fail_communication(&self, _key: u64, _error: Error);
        pub fn forget_communication(&self, _key: u64);
        pub fn multiprocessors(&self) -> u32;
        pub fn bad_index_address(&self) -> DevicePtr;
    }
}

impl Backend for Cuda {
    uninhabited! {
        fn id(&self) -> DeviceId;
        fn total_bytes(&self) -> u64;
        fn reserve(&self, _bytes: u64) -> Result<Option<DevicePtr>>;
        fn release(&self, _address: DevicePtr, _bytes: u64) -> Result<()>;
        unsafe fn upload(
            &self, _stream: StreamId, _target: DevicePtr, _source: &[u8]
        ) -> Result<()>;
        unsafe fn download(
            &self, _stream: StreamId, _source: DevicePtr, _target: &mut [u8]
        ) -> Result<()>;
        unsafe fn fill(
            &self, _stream: StreamId, _target: DevicePtr, _bytes: u64, _pattern: &[u8]
        ) -> Result<()>;
        fn synchronize(&self, _stream: StreamId) -> Result<()>;
        fn new_stream(&self) -> Result<StreamId>;
        fn new_host_stream(&self, _executor: Weak<dyn StealWork>) -> Result<Arc<HostStream>>;
        fn retire_stream(&self, _stream: StreamId);
        fn streams(&self) -> u16;
        fn uses_streams(&self) -> bool;
        fn record_event(&self, _stream: StreamId) -> Result<Event>;
        fn stream_wait_event(&self, _stream: StreamId, _event: &Event) -> Result<()>;
        fn query_event(&self, _event: &Event) -> Result<bool>;
        fn synchronize_event(&self, _event: &Event) -> Result<()>;
    }
}

/// Compiles nothing.
pub fn compile_for_all(_sources: &[KernelSource]) {
    println!("skipped: built without the feature `cuda`");
}
