//! The context and the streams of a device as cudarc types.

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use crate::context::{Device, Stream};
use crate::device::cuda::Cuda;
use crate::device::{DeviceId, StreamId};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// The cudarc context of one ordinal. The context orders cudarc slices across streams, so all
/// slices of a device must belong to it.
struct Shared {
    context: Arc<CudaContext>,
    /// A stream that cudarc created. Before cudarc has created a stream, cudarc does not order
    /// slices. It does not count the streams of this crate.
    #[expect(dead_code, reason = "held so that cudarc counts it")]
    counted: Arc<CudaStream>,
}

impl Shared {
    #[track_caller]
    fn of(device: &Device, ordinal: usize) -> Result<Arc<CudaContext>> {
        static CONTEXTS: Mutex<Vec<Shared>> = Mutex::new(Vec::new());
        let mut contexts = CONTEXTS.lock();
        let known = contexts
            .iter()
            .find(|shared| shared.context.ordinal() == ordinal);
        if let Some(known) = known {
            return Ok(Arc::clone(&known.context));
        }
        if device.backend().is_capturing() {
            return Err(unsupported(
                device,
                "cudarc's context cannot be created during a capture: call this function once \
                 before the capture",
            ));
        }
        let fresh = Self::open(ordinal)
            .map_err(|error| driver_error(error).of(&device.to_string()))
            .at_caller()?;
        let context = Arc::clone(&fresh.context);
        contexts.push(fresh);
        Ok(context)
    }

    fn open(ordinal: usize) -> std::result::Result<Self, DriverError> {
        let context = CudaContext::new(ordinal)?;
        let counted = context.new_stream()?;
        Ok(Self { context, counted })
    }
}

/// Converts an error of cudarc. A `From` impl would prevent the compiler from inferring the error
/// type of closures that use `?`.
#[track_caller]
pub fn driver_error(error: DriverError) -> Error {
    Error::new(ErrorKind::Driver, error.to_string()).caused_by(error)
}

impl Device {
    /// Returns the device's primary context as a cudarc context. The context can load modules, and
    /// create cudarc streams and memory for use with this device's arrays.
    ///
    /// Every call returns one shared context, so that cudarc orders its slices across streams.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) on a host device, and if the first call is during a
    /// capture of this thread. [`Driver`](ErrorKind::Driver) if the driver fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, cuda::cudarc::nvrtc::compile_ptx};
    ///
    /// let device = Device::cuda(0)?;
    /// let ptx = compile_ptx("extern \"C\" __global__ void idle() {}")?;
    /// let module = device.cuda_context()?.load_module(ptx)?;
    /// let kernel = module.load_function("idle")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn cuda_context(&self) -> Result<Arc<CudaContext>> {
        gpu_of(self)?;
        match self.backend().id() {
            DeviceId::Cuda(ordinal) => Shared::of(self, ordinal),
            DeviceId::Host => Err(host(self)),
        }
    }
}

impl Stream {
    /// Returns this stream as a cudarc stream. The cudarc stream may outlive this handle. All work
    /// enqueued on the two handles runs in one order.
    ///
    /// Operations of this library order their operands automatically. For foreign work on the
    /// stream, export arrays while the stream is entered. To export, call `Array::cuda_view` or
    /// `Array::cuda_view_mut` of the crate `cachescope`.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::cuda_context`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// let stream = Device::cuda(0)?.new_stream()?;
    /// stream.cuda_stream()?.synchronize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn cuda_stream(&self) -> Result<Arc<CudaStream>> {
        stream_of(self.device(), self.id())
    }
}

/// Returns a stream of the device as a cudarc stream.
#[track_caller]
pub fn stream_of(device: &Device, stream: StreamId) -> Result<Arc<CudaStream>> {
    let context = device.cuda_context()?;
    let raw = gpu_of(device)?.export_stream(stream)?;
    // SAFETY: the stream belongs to the device's primary context, which `context` wraps. An
    // exported stream is never destroyed. The export of an array orders its uses on the stream.
    Ok(unsafe { context.wrap_borrowed_stream(raw) })
}

#[track_caller]
fn gpu_of(device: &Device) -> Result<&Cuda> {
    if device.backend().is_meta() {
        return Err(unsupported(
            device,
            "CUDA code cannot use a device without data",
        ));
    }
    let gpu = device.backend().cuda();
    gpu.ok_or_else(|| host(device)).at_caller()
}

#[cold]
#[track_caller]
fn host(device: &Device) -> Error {
    unsupported(device, "CUDA code needs a CUDA device")
}

#[cold]
#[track_caller]
fn unsupported(device: &Device, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{device}: {why}"))
}
