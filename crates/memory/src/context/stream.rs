//! Streams.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::cache::{Entered, StreamLease, scope};
use crate::context::Device;
use crate::device::StreamId;
use crate::error::{AtCaller, Result};
use crate::sync::Arc;

/// A queue of work on a device. The work of one stream runs in order. Different streams may run
/// concurrently.
///
/// Operations are submitted to the thread's current stream, which is initially the device's default
/// stream. If another stream wrote memory, a read is automatically ordered after the write. If
/// another stream uses memory, a write is ordered after this use. An array may be used and dropped
/// on any stream, even after the last handle on its stream has dropped.
///
/// A handle is cheap to clone and equal to every other handle on the same stream. A handle keeps
/// its device alive.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device};
///
/// let device = Device::host();
/// let copies = device.new_stream()?;
/// let batch = {
///     let _guard = copies.enter();
///     Buffer::new(&device, 4096)? // its first use is on `copies`
/// };
/// copies.synchronize()?;
/// assert_eq!(batch.device(), &device);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<StreamLease>);

/// A guard that keeps a stream entered until the guard drops. The guard belongs to its thread.
///
/// ```compile_fail
/// # extern crate cachescope_memory as cachescope;
/// fn send<T: Send>(_: T) {}
/// send(cachescope::Device::host().default_stream().enter());
/// ```
#[must_use = "the stream is current until this guard drops"]
#[derive(Debug)]
pub struct StreamGuard {
    _entered: Entered,
}

impl Stream {
    fn of(device: &Device, id: StreamId) -> Self {
        Self(Arc::new(StreamLease::new(device.caches().clone(), id)))
    }

    /// Makes the stream and its device current for this thread until the guard drops.
    ///
    /// The thread's scopes stay active. A block allocated on a stream is reused on this stream.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Device, DeviceConfig};
    ///
    /// let device = Device::host_with(DeviceConfig::default())?;
    /// let stream = device.new_stream()?;
    /// {
    ///     let _guard = stream.enter();
    ///     assert_eq!(Device::current(), device);
    /// }
    /// assert_ne!(Device::current(), device);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn enter(&self) -> StreamGuard {
        StreamGuard {
            _entered: scope::enter_stream(&self.0),
        }
    }

    /// Waits until all work submitted to the stream is done.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::{Buffer, Device};
    ///
    /// let stream = Device::host().new_stream()?;
    /// let guard = stream.enter();
    /// let buffer = Buffer::new(stream.device(), 4096)?;
    /// drop(guard);
    /// assert!(stream.synchronize().is_ok());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Device::synchronize`].
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let device = self.device();
        device.backend().synchronize(self.0.id()).at_caller()?;
        device.caches().memory().finish_kernels();
        device.caches().memory().take_deferred_error().at_caller()
    }

    /// Returns the identifier of the stream.
    #[doc(hidden)]
    pub fn id(&self) -> StreamId {
        self.0.id()
    }

    /// Returns the device of the stream.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// assert_eq!(Device::host().new_stream()?.device(), &Device::host());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        Device::from_caches(self.0.device())
    }
}

impl Device {
    /// Creates a stream, or reuses a stream without handles. So it is cheap to create a stream in a
    /// loop.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// let device = Device::host();
    /// let (first, second) = (device.new_stream()?, device.new_stream()?);
    /// assert_ne!(first, second);
    /// assert_eq!(first.clone(), first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Driver`](crate::ErrorKind::Driver) if the device fails, and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for more than about sixty thousand streams at
    /// a time.
    #[track_caller]
    pub fn new_stream(&self) -> Result<Stream> {
        let id = self.backend().new_stream().at_caller()?;
        Ok(Stream::of(self, id))
    }

    /// Returns the default stream, which executes work outside any entered stream. The default
    /// stream can itself be entered, even inside another stream.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_memory as cachescope;
    /// use cachescope::Device;
    ///
    /// let device = Device::host();
    /// assert_eq!(device.default_stream(), device.default_stream());
    /// assert_ne!(device.default_stream(), device.new_stream()?);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn default_stream(&self) -> Stream {
        Stream::of(self, StreamId::default())
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        // An identifier belongs to one stream as long as the stream has a handle.
        self.device() == other.device() && self.0.id() == other.0.id()
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    /// Hashes the stream's identity, which `eq` compares.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.device().hash(state);
        self.0.id().hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} of {})", self.0.id().0, self.device())
    }
}
