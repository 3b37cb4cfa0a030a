//! Export: arrays as arguments of foreign kernels and copies.

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};
use cudarc::driver::{DriverError, sys::CUresult};

use crate::array::{AnyElement, Array, refuse_tracked};
use crate::context::Device;
use crate::context::stream_of;
use crate::device::cuda::Cuda;
use crate::device::{StreamId, Use};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, OfThisThread};

/// The elements of an array, exported for reading by [`Array::cuda_view`].
///
/// Pass the view to cudarc's launches on the view's [`stream`](DeviceSlice::stream), by
/// `builder.arg(&view)`. The kernel gets a pointer to the first element. For cudarc's copies on any
/// stream, a view is a [`DevicePtr`].
pub struct ExportedView<'a, T: AnyElement> {
    array: &'a Array<T>,
    export: Export,
}

/// The elements of an array, exported for reading and writing by [`Array::cuda_view_mut`].
///
/// Use it like [`ExportedView`]. For a kernel that writes, pass the view by
/// `builder.arg(&mut view)`.
pub struct ExportedViewMut<'a, T: AnyElement> {
    array: &'a mut Array<T>,
    export: Export,
}

/// An export in progress: the address, and the stream that orders the uses of the address.
///
/// Between the ordering of the stream and the launch of foreign work, no lock of this crate is
/// held. Therefore, if another thread launches a graph that conflicts with a live export, the
/// launch returns an error. A view is not `Send`, so this thread launches graphs only before or
/// after a use of the view.
struct Export {
    address: CUdeviceptr,
    id: StreamId,
    stream: Arc<CudaStream>,
    device: Device,
    number: u64,
    of_thread: OfThisThread,
}

impl Drop for Export {
    fn drop(&mut self) {
        gpu_of(&self.device)
            .iter()
            .for_each(|gpu| gpu.end_export(self.number));
    }
}

impl<T: AnyElement> Array<T> {
    /// Exports the elements to foreign CUDA code that reads them. The reads are ordered on the
    /// thread's current stream, after all writes of other streams. The view is not `Send`. While
    /// the view lives, other threads cannot launch a [`Graph`](crate::graph::Graph) that writes to
    /// the elements. Between `builder.arg(&view)` and the launch of the builder, this thread must
    /// not launch a graph that writes to the elements.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the array is not contiguous, like most
    /// views (copy it first, by [`to_uncached`](Self::to_uncached)).
    /// [`Unsupported`](ErrorKind::Unsupported) if the array is tracked for gradients (export
    /// [`stop_gradient(&array)`](crate::grad::stop_gradient)). The errors of
    /// [`Device::cuda_context`](crate::Device::cuda_context).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, ErrorKind};
    ///
    /// let x = Array::<f32>::ones(3)?;
    /// let address = x.address();
    /// match x.cuda_view() {
    ///     Ok(view) => assert_eq!(view.address(), address),
    ///     Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported), // On the host.
    /// }
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn cuda_view(&self) -> Result<ExportedView<'_, T>> {
        let export = Export::of("cuda_view", self, Use::Read)?;
        export.order(self, Use::Read)?;
        Ok(ExportedView {
            array: self,
            export,
        })
    }

    /// Exports the elements to foreign CUDA code that reads and writes them. The accesses are
    /// ordered on the thread's current stream, after all accesses of other streams. If other arrays
    /// or expressions share the memory, this array first gets its own copy. The view is not `Send`.
    /// While the view lives, other threads cannot launch a [`Graph`](crate::graph::Graph) that uses
    /// the elements. Between `builder.arg(&mut view)` and the launch of the builder, this thread
    /// must not launch a graph that uses the elements.
    ///
    /// # Errors
    ///
    /// The errors of [`cuda_view`](Self::cuda_view), and [`OutOfMemory`](ErrorKind::OutOfMemory) if
    /// there is not enough memory for the copy.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, ErrorKind};
    ///
    /// let mut x = Array::<f32>::ones(3)?;
    /// let address = x.address();
    /// match x.cuda_view_mut() {
    ///     Ok(view) => assert_eq!(view.address(), address),
    ///     Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported), // On the host.
    /// }
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[track_caller]
    pub fn cuda_view_mut(&mut self) -> Result<ExportedViewMut<'_, T>> {
        check_contiguous("cuda_view_mut", self)?;
        if self.buffer_to_write().holders() > 1 {
            self.erased_mut().make_unique()?;
        }
        let export = Export::of("cuda_view_mut", self, Use::Write)?;
        export.order(self, Use::Write)?;
        Ok(ExportedViewMut {
            array: self,
            export,
        })
    }
}

impl Export {
    #[track_caller]
    fn of<T: AnyElement>(what: &str, array: &Array<T>, used: Use) -> Result<Self> {
        refuse_tracked(what, array.buffer().value_id())?;
        let device = array.device();
        let id = device.stream();
        let stream = stream_of(device, id)?;
        check_contiguous(what, array)?;
        let address = array.address();
        let range = address..address + array.size_bytes() as u64;
        let number = gpu_of(device).map_or(0, |gpu| gpu.begin_export(range, used));
        Ok(Self {
            address,
            id,
            stream,
            device: device.clone(),
            number,
            of_thread: PhantomData,
        })
    }

    /// Orders the stream before it uses the elements. If the thread captures a graph, also tracks
    /// the use.
    #[track_caller]
    fn order<T: AnyElement>(&self, array: &Array<T>, used: Use) -> Result<()> {
        // The lock excludes launches of graphs while the use is recorded, because a launch in
        // progress was checked earlier.
        let _no_launches = gpu_of(&self.device).map(Cuda::lock_launches_shared);
        if !self.device.backend().uses_streams() {
            return Ok(());
        }
        array.buffer().use_on(self.id, used)
    }

    /// Orders the stream again at each use. A graph that was launched since the export may have
    /// written to the elements. On failure, cudarc and this crate each return an error at their
    /// next call.
    fn order_again<T: AnyElement>(&self, array: &Array<T>, used: Use) {
        if let Err(error) = self.order(array, used) {
            array.device().memory().defer(error);
            let failed = DriverError(CUresult::CUDA_ERROR_UNKNOWN);
            self.stream.context().record_err::<()>(Err(failed));
        }
    }

    /// Returns the address for work on `stream`, and makes `stream` wait for the export's stream.
    /// If the streams differ, the host waits for `stream` when the returned guard drops. This
    /// crate's streams do not wait for `stream`.
    fn pointer<'a, T: AnyElement>(
        &'a self,
        array: &Array<T>,
        used: Use,
        stream: &'a CudaStream,
    ) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.order_again(array, used);
        if *stream == *self.stream {
            return (self.address, SyncOnDrop::Sync(None));
        }
        stream.context().record_err(stream.join(&self.stream));
        (self.address, SyncOnDrop::Sync(Some(stream)))
    }
}

fn gpu_of(device: &Device) -> Option<&Cuda> {
    device.backend().cuda()
}

#[track_caller]
fn check_contiguous<T: AnyElement>(what: &str, array: &Array<T>) -> Result<()> {
    if array.layout().is_contiguous() {
        return Ok(());
    }
    let text = format!(
        "{what}: the view of shape {} is not contiguous: copy it first with `to_uncached`",
        array.layout().shape()
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

macro_rules! exported {
    ($($type:ident)+) => {
        $(
            impl<T: AnyElement> $type<'_, T> {
                /// Returns the address of the first element on the device, for work on
                /// [`stream`](DeviceSlice::stream).
                ///
                /// # Examples
                ///
                /// ```
                /// use cachescope::{Array, Device};
                ///
                /// let x = Array::<f32>::ones(3)?;
                /// match x.cuda_view() {
                ///     Ok(view) => assert_eq!(view.address(), x.address()),
                ///     Err(_) => assert_eq!(x.device(), &Device::host()),
                /// }
                /// # Ok::<(), cachescope::Error>(())
                /// ```
                pub fn address(&self) -> u64 {
                    self.export.address
                }
            }

            impl<T: AnyElement> DeviceSlice<T> for $type<'_, T> {
                fn len(&self) -> usize {
                    self.array.len()
                }

                fn stream(&self) -> &Arc<CudaStream> {
                    &self.export.stream
                }
            }

            impl<T: AnyElement> DevicePtr<T> for $type<'_, T> {
                fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                    self.export.pointer(self.array, Use::Read, stream)
                }
            }

            // SAFETY: to a kernel, a pointer to the elements is a `u64`. The pointer is stored in
            // the view. The view and its array are borrowed until the launch, so nothing frees or
            // moves the elements.
            unsafe impl<'a, 'b: 'a, 'c: 'b, T: AnyElement> PushKernelArg<&'b $type<'c, T>> for LaunchArgs<'a> {
                #[inline(always)]
                fn arg(&mut self, view: &'b $type<'c, T>) -> &mut Self {
                    view.export.order_again(view.array, Use::Read);
                    self.arg(&view.export.address)
                }
            }

            impl<T: AnyElement> fmt::Debug for $type<'_, T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($type))
                        .field("address", &format_args!("{:#x}", self.export.address))
                        .field("shape", &self.array.shape())
                        .finish_non_exhaustive()
                }
            }
        )+
    };
}

exported!(ExportedView ExportedViewMut);

impl<T: AnyElement> DevicePtrMut<T> for ExportedViewMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.export.pointer(self.array, Use::Write, stream)
    }
}

// SAFETY: the pointer is valid, as for a view for reading. The view is borrowed exclusively, and no
// other array shares the memory.
unsafe impl<'a, 'b: 'a, 'c: 'b, T: AnyElement> PushKernelArg<&'b mut ExportedViewMut<'c, T>>
    for LaunchArgs<'a>
{
    #[inline(always)]
    fn arg(&mut self, view: &'b mut ExportedViewMut<'c, T>) -> &mut Self {
        view.export.order_again(view.array, Use::Write);
        self.arg(&view.export.address)
    }
}
