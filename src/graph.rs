//! CUDA graphs: work that is captured once and launched repeatedly.

use std::fmt;

use crate::array::{CaptureTracking, CapturedMemory, refuse_while_tracking};
use crate::context::{Device, Timed};
use crate::device::StreamId;
use crate::device::cuda::{Cuda, Executable};
use crate::error::{AtCaller, Error, ErrorCode, Result};

/// Captured work that can be launched.
///
/// Until it drops, a graph pins the memory of the arrays that its body used but did not make. The
/// graph also pins the slab of a scope under [`Policy::Plan`](crate::Policy::Plan). If the scope is
/// entered again, the scope gets a new slab. A graph accesses arrays by their addresses. Every
/// launch writes to the arrays that the body wrote to, and to clones that share their memory.
pub struct Graph {
    executable: Executable,
    memory: CapturedMemory,
    device: Device,
    stream: StreamId,
}

/// Captures, as a graph, the work that `body` enqueues on the thread's current stream of `device`.
/// The device is current inside of `body`. The capture executes no work.
///
/// The body must not reserve memory. Wrap the body in a scope under
/// [`Policy::Plan`](crate::Policy::Plan), and run it twice before the capture. After the two runs,
/// the scope has its slab, and kernels are compiled. Arrays that were made outside of the body are
/// read and updated in place. Arrays that outlive the body have their values only after a launch.
/// Numbers (a learning rate, the state of a generator) are fixed at capture. A
/// [capturable](crate::grad::optim::Adam::capturable) optimizer stores its rate on the device,
/// where it can change.
///
/// # Examples
///
/// ```no_run
/// use cachescope::{Array, Device, Policy, cache_scope, graph};
///
/// let device = Device::cuda(0)?;
/// let _guard = device.enter();
/// let mut w = Array::<f32>::zeros([512])?;
/// let x = Array::<f32>::ones([512])?;
/// let mut step = || {
///     cache_scope!("step", policy = Policy::Plan, {
///         let gradient = (&w - &x).eval()?;
///         w.assign(&w - 0.1 * &gradient)
///     })
/// };
/// step()?;
/// step()?;
/// let graph = graph::capture(&device, step)?;
/// for _ in 0..1000 {
///     graph.launch()?;
/// }
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) on the host device, and inside of a function
/// whose gradients are computed, such as by [`value_and_grad`](crate::grad::value_and_grad).
/// [`Unsupported`](crate::ErrorKind::Unsupported) if the body reserves memory, copies from or to
/// the host, waits, or uses another stream. Errors of the body.
/// [`Driver`](crate::ErrorKind::Driver) if the driver fails.
#[track_caller]
pub fn capture(device: &Device, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
    refuse_while_tracking("capture")?;
    let gpu = gpu_of(device)?;
    let tracking = CaptureTracking::begin()
        .ok_or_else(|| unsupported("a capture is already in progress on this thread"))
        .at_caller()?;
    // A body must not wait, so earlier work completes first.
    device.synchronize()?;
    let _entered = device.enter();
    let stream = device.stream();
    let memory = device.memory();
    memory
        .with_releases_paused(|| gpu.begin_capture(stream))
        .at_caller()?;
    let abandon = scopeguard::guard((), |()| drop(gpu.end_capture(stream)));
    let outcome = body();
    scopeguard::ScopeGuard::into_inner(abandon);
    let executable = gpu.end_capture(stream);
    outcome?;
    Ok(Graph {
        executable: executable.at_caller()?,
        memory: tracking.end(device)?,
        device: device.clone(),
        stream,
    })
}

impl Graph {
    /// Launches the graph on the stream that it was captured on. The launch is ordered between the
    /// earlier and the later work of other streams on the graph's arrays.
    ///
    /// Several threads may launch graphs and use the arrays concurrently. Each launch is atomic,
    /// and the order of launches is unspecified.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cachescope::{Array, Device, Policy, cache_scope, graph};
    ///
    /// let device = Device::cuda(0)?;
    /// let _current = device.enter();
    /// let mut x = Array::<f32>::zeros(4)?;
    /// let mut step = || -> cachescope::Result<()> {
    ///     cache_scope!("step", policy = Policy::Plan, {
    ///         x.update(|x| x + 1.0)
    ///     })
    /// };
    /// step()?;
    /// step()?;
    /// let graph = graph::capture(&device, step)?;
    /// graph.launch()?;
    /// assert_eq!(x.to_vec()?, [3.0; 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) inside another capture, and inside of a
    /// function whose gradients are computed. [`Driver`](crate::ErrorKind::Driver) if the driver
    /// fails. [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if another thread exports one
    /// of the arrays to foreign code ([`Array::cuda_view`](crate::Array::cuda_view)), and the graph
    /// or the foreign code writes to the array.
    #[track_caller]
    pub fn launch(&self) -> Result<()> {
        refuse_while_tracking("launch")?;
        let gpu = gpu_of(&self.device)?;
        let _timed = Timed::begin_on(&self.device, self.stream);
        let launched = self.memory.launch(gpu, &self.executable, self.stream);
        launched.at_caller()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[track_caller]
fn gpu_of(device: &Device) -> Result<&Cuda> {
    let gpu = device.backend().cuda();
    gpu.ok_or_else(|| unsupported("the host device has no graphs, expected a CUDA device"))
        .at_caller()
}

#[cold]
#[track_caller]
fn unsupported(why: &str) -> Error {
    Error::new(ErrorCode::Capture, format!("graph::capture: {why}"))
}
