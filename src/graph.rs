//! Captured graphs: a body of work that is recorded once, and then launched as one, as often as wanted.

use std::fmt;

use crate::array::{CaptureTracking, CapturedMemory};
use crate::context::Device;
use crate::device::StreamId;
use crate::device::cuda::{Cuda, Executable};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Work that was recorded, and can be launched.
///
/// It keeps the memory that it uses reserved until it drops: that of arrays from outside, and the slab of a
/// scope under [`Policy::Plan`](crate::Policy::Plan), in whose stead the scope gets another if it is entered
/// again. It writes by address: an array that the body wrote to is written to by every launch, and so is a
/// clone of it that shares its memory.
pub struct Graph {
    executable: Executable,
    memory: CapturedMemory,
    device: Device,
    stream: StreamId,
}

/// Records what `body` does on the thread's current stream of `device`, which is current inside, and answers
/// it as a graph; nothing of it is done yet.
///
/// The body's own memory has to be there: wrap it in a scope under [`Policy::Plan`](crate::Policy::Plan), and
/// run it twice before, so that the scope has its slab, and kernels are compiled. Arrays from outside it
/// reads and updates where they stand; what it computes and hands out holds its values once the graph was
/// launched. Numbers that it is given (a learning rate, the state of a generator) are those of the capture in
/// every launch.
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
/// [`Unsupported`](ErrorKind::Unsupported) on the host device, and where the body allocates what is not there
/// yet, copies from or to the host, waits, or works on another stream; the body's own;
/// [`Driver`](ErrorKind::Driver) where the driver fails.
#[track_caller]
pub fn capture(device: &Device, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
    let gpu = gpu_of(device)?;
    let tracking = CaptureTracking::begin()
        .ok_or_else(|| unsupported("a capture within another"))
        .at_caller()?;
    // So that nothing before has to be waited for inside.
    device.synchronize()?;
    let _entered = device.enter();
    let stream = device.stream();
    let memory = device.caches().memory();
    memory
        .between_releases(|| gpu.begin_capture(stream))
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
    /// Does the work once more, on the stream that it was captured on, after what other streams do with
    /// the arrays that it uses, and before what they do with them later.
    ///
    /// Several threads may launch, beside others that use the arrays: which of them comes first is theirs
    /// to say, and each comes wholly before the other.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) inside of another capture;
    /// [`Driver`](ErrorKind::Driver) where the driver fails;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where another thread has exported one of the arrays to
    /// foreign code ([`Array::cuda_view`](crate::Array::cuda_view)), and the view or the graph writes to it.
    #[track_caller]
    pub fn launch(&self) -> Result<()> {
        let gpu = gpu_of(&self.device)?;
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
    gpu.ok_or_else(|| unsupported("the host device has no graphs"))
        .at_caller()
}

#[cold]
#[track_caller]
fn unsupported(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("graph::capture: {why}"))
}
