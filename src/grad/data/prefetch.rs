//! Batches that another thread prepares.

use std::fmt;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::context::Device;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::ops::{replace_thread_state, split_thread_generator};

/// The maximum number of batches that are prepared ahead.
const MOST_AHEAD: usize = 1 << 16;

/// An iterator over batches that another thread prepares while a step runs.
///
/// The thread uses the device that was current in the call of [`new`](Self::new). The thread has
/// its own stream, so that copies to a GPU overlap with the kernels of a step. The copies are from
/// page-locked memory. The thread allocates arrays outside of every cache. Random numbers on the
/// thread depend on the seed of the calling thread.
///
/// A drop waits for the batch that is being prepared.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::data::Prefetch;
///
/// let batches = (0..3).map(|batch| Array::full(2, batch as f32));
/// let mut sum = 0.0;
/// for batch in Prefetch::new(2, batches)? {
///     sum += batch?.sum()?.item()?;
/// }
/// assert_eq!(sum, 6.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub struct Prefetch<T> {
    /// The receiver of the batches, or `None` after the last batch.
    batches: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts the preparation of batches. At most `ahead` batches (at least one) are ready or in
    /// preparation at any time.
    ///
    /// # Examples
    ///
    /// Reads files on the thread:
    ///
    /// ```
    /// use cachescope::grad::data::Prefetch;
    ///
    /// let lengths = ["Cargo.toml", "no such file"].into_iter().map(|name| {
    ///     cachescope::Array::<f32>::read_npy(name) // an error is passed on
    /// });
    /// assert_eq!(Prefetch::new(1, lengths)?.filter(|batch| batch.is_err()).count(), 2);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Thread`](ErrorKind::Thread) if no thread can be started, and the errors of
    /// [`Device::new_stream`].
    #[track_caller]
    pub fn new<I>(ahead: usize, batches: I) -> Result<Self>
    where
        I: IntoIterator<Item = Result<T>> + Send + 'static,
    {
        let device = Device::current();
        let stream = device.new_stream()?;
        let generator = split_thread_generator();
        // The channel's capacity is `ahead - 1`, because the thread itself holds one more batch.
        // `MOST_AHEAD` limits the capacity, because the channel allocates all its slots at the
        // start.
        let (sender, receiver) = sync_channel(ahead.clamp(1, MOST_AHEAD) - 1);
        let prepare = move || {
            let (_device, _stream) = (device.enter(), stream.enter());
            replace_thread_state(generator);
            for batch in batches {
                // If the receiver is dropped, no more batches are needed.
                if sender.send(batch).is_err() {
                    break;
                }
            }
        };
        let thread = Builder::new().name("cachescope-prefetch".into());
        let thread = thread.spawn(prepare).map_err(|error| {
            let text = "Prefetch::new: the thread that prepares batches cannot be started";
            Error::new(ErrorKind::Thread, text).caused_by(error)
        });
        Ok(Self {
            batches: Some(receiver),
            thread: Some(thread.at_caller()?),
        })
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    /// Waits for the next batch. After a panic of the thread, the last batch is an error of the
    /// kind [`Panic`](ErrorKind::Panic).
    #[track_caller]
    fn next(&mut self) -> Option<Result<T>> {
        if let Ok(batch) = self.batches.as_ref()?.recv() {
            return Some(batch);
        }
        self.batches = None;
        let thread = self.thread.take()?;
        thread.join().is_err().then(|| Err(panicked()))
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // The thread detects the dropped receiver when it sends its next batch.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is ignored, because the thread has printed it.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Prefetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = self.batches.is_none();
        f.debug_struct("Prefetch")
            .field("is_done", &is_done)
            .finish_non_exhaustive()
    }
}

#[cold]
#[track_caller]
fn panicked() -> Error {
    let text = "Prefetch: the thread that prepares batches panicked";
    Error::new(ErrorKind::Panic, text)
}
