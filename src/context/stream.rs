//! Streams as people enter them.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::cache::{Entered, KeptStream, stack};
use crate::context::Device;
use crate::device::StreamId;
use crate::error::{AtCaller, Result};
use crate::sync::Arc;

/// A queue of a device's work: what is given to one stream is done in that order, while different
/// streams may run side by side.
///
/// Operations go to the stream that their thread is inside of, at first the device's default
/// stream. An operation that reads what another stream wrote waits for it without being told, and
/// so does one that writes what another stream reads; an array may be used, and dropped, on any
/// stream and after its stream's last handle is gone.
///
/// A handle is cheap to clone, and equal to every other handle on the same stream. Handles keep
/// their device.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Device};
///
/// let device = Device::host();
/// let copies = device.new_stream()?;
/// let batch = {
///     let _guard = copies.enter();
///     Array::from_slice(&[1.0, 2.0, 3.0], 3)?
/// };
/// let doubled = (&batch * 2.0).eval()?; // on the default stream, after the upload
/// assert_eq!(doubled.to_vec()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream(Arc<KeptStream>);

/// Keeps a stream entered until it drops; it belongs to its thread.
///
/// ```compile_fail
/// fn send<T: Send>(_: T) {}
/// send(cachescope::Device::host().default_stream().enter());
/// ```
#[must_use = "the stream is left when this guard drops"]
#[derive(Debug)]
pub struct StreamGuard {
    _entered: Entered,
}

impl Stream {
    fn of(device: &Device, id: StreamId) -> Self {
        Self(Arc::new(KeptStream::new(device.caches().clone(), id)))
    }

    /// Sends this thread's work on the stream's device to this stream, and makes the device
    /// current, until the guard drops.
    ///
    /// Scopes keep serving inside: what was allocated on a stream is found again on that stream.
    pub fn enter(&self) -> StreamGuard {
        StreamGuard {
            _entered: stack::enter_stream(&self.0),
        }
    }

    /// Waits until everything that the stream was given is done.
    ///
    /// # Errors
    ///
    /// As [`Device::synchronize`].
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let device = self.device();
        device.backend().synchronize(self.0.id()).at_caller()?;
        device.caches().memory().flush_deferred_error().at_caller()
    }

    /// Its number.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "nobody else's code runs on it")
    )]
    pub(crate) fn id(&self) -> StreamId {
        self.0.id()
    }

    /// The device that the stream is of.
    pub fn device(&self) -> &Device {
        Device::from_caches(self.0.device())
    }
}

impl Device {
    /// A new stream of this device. The number of a stream whose handles are all gone is used
    /// again, so that making one in a loop costs nothing.
    ///
    /// # Errors
    ///
    /// [`Driver`](crate::ErrorKind::Driver) where the device fails to make one, and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for more than about sixty thousand at a time.
    #[track_caller]
    pub fn new_stream(&self) -> Result<Stream> {
        let id = self.backend().new_stream().at_caller()?;
        Ok(Stream::of(self, id))
    }

    /// The stream that work goes to where no other was entered; entered itself, it takes work back
    /// from the one around it.
    ///
    /// # Examples
    ///
    /// ```
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
        // A number is one stream's for as long as it has a handle.
        self.device() == other.device() && self.0.id() == other.0.id()
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    /// By identity, as equality is.
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
