//! Export: arrays as arguments of foreign kernels and copies.

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};
use cudarc::driver::{DriverError, sys::CUresult};

use crate::array::{AnyElement, Array, refuse_followed};
use crate::context::Device;
use crate::context::stream_of;
use crate::device::cuda::Cuda;
use crate::device::{StreamId, Use};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// The elements of an array, exported for reading: [`Array::cuda_view`] makes it.
///
/// It is an argument of cudarc's launches (`builder.arg(&view)`, a pointer to the first element) on
/// the stream that it is of, which [`stream`](DeviceSlice::stream) answers; and a [`DevicePtr`] for
/// cudarc's copies on any stream.
pub struct ExportedView<'a, T: AnyElement> {
    array: &'a Array<T>,
    export: Export,
}

/// The elements of an array, exported for reading and writing: [`Array::cuda_view_mut`] makes it.
///
/// As [`ExportedView`], and `builder.arg(&mut view)` for a kernel that writes.
pub struct ExportedViewMut<'a, T: AnyElement> {
    array: &'a mut Array<T>,
    export: Export,
}

/// An export while it lasts: the address, and the stream that uses of it are ordered on.
///
/// Foreign code holds no lock of ours between ordering the stream and queueing its work. So while
/// this lives, launches of graphs that collide are refused to other threads. A view stays on its
/// thread, where a launch comes before or after its use.
struct Export {
    address: CUdeviceptr,
    id: StreamId,
    stream: Arc<CudaStream>,
    device: Device,
    number: u64,
    of_thread: PhantomData<*const ()>,
}

impl Drop for Export {
    fn drop(&mut self) {
        gpu_of(&self.device)
            .iter()
            .for_each(|gpu| gpu.end_export(self.number));
    }
}

impl<T: AnyElement> Array<T> {
    /// Exports the elements to foreign CUDA code that reads them, in the order of the thread's
    /// current stream, after all that other streams wrote. The view stays on its thread; while it
    /// lives, other threads cannot launch a [`Graph`](crate::graph::Graph) that writes to the
    /// elements. Launch none between `builder.arg(&view)` and the launch of the builder.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where the elements do not stand one after
    /// another (as in most views: copy it first, by [`detach`](Self::detach)),
    /// [`Unsupported`](ErrorKind::Unsupported) if gradients are computed through the array (export
    /// [`stop_gradient(&array)`](crate::grad::stop_gradient)), and as for
    /// [`Device::cuda_context`](crate::Device::cuda_context).
    ///
    /// # Examples
    ///
    /// See [`cuda`](crate::cuda).
    #[track_caller]
    pub fn cuda_view(&self) -> Result<ExportedView<'_, T>> {
        let export = Export::of("cuda_view", self, Use::Read)?;
        export.order(self, Use::Read)?;
        Ok(ExportedView {
            array: self,
            export,
        })
    }

    /// Exports the elements to foreign CUDA code that reads and writes them, in the order of the
    /// thread's current stream, after all that other streams do with them. Where other arrays or
    /// expressions share the memory, those keep it, and this array gets a copy of its own. The view
    /// stays on its thread; while it lives, other threads cannot launch a
    /// [`Graph`](crate::graph::Graph) that uses the elements, and this one should launch none
    /// between `builder.arg(&mut view)` and the launch.
    ///
    /// # Errors
    ///
    /// As for [`cuda_view`](Self::cuda_view), and [`OutOfMemory`](ErrorKind::OutOfMemory) where
    /// there is no room for the copy.
    ///
    /// # Examples
    ///
    /// See [`cuda`](crate::cuda).
    #[track_caller]
    pub fn cuda_view_mut(&mut self) -> Result<ExportedViewMut<'_, T>> {
        check_contiguous("cuda_view_mut", self)?;
        if self.buffer().holders() > 1 {
            self.make_unique(&[])?;
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
        refuse_followed(what, array.buffer().node())?;
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

    /// Orders the stream before it uses the elements, and tracks the use where the thread captures
    /// a graph.
    #[track_caller]
    fn order<T: AnyElement>(&self, array: &Array<T>, used: Use) -> Result<()> {
        // Until this is done no graph is launched: a launch that has begun was not refused.
        let _kept_off = gpu_of(&self.device).map(Cuda::lock_launches_shared);
        if !self.device.backend().uses_streams() {
            return Ok(());
        }
        array.buffer().use_on(self.id, used)
    }

    /// Orders again at each use, because a graph that was launched since may have written to the
    /// elements. cudarc and this crate each return an error at their next call.
    fn order_again<T: AnyElement>(&self, array: &Array<T>, used: Use) {
        if let Err(error) = self.order(array, used) {
            array.device().memory().defer(error);
            let failed = DriverError(CUresult::CUDA_ERROR_UNKNOWN);
            self.stream.context().record_err::<()>(Err(failed));
        }
    }

    /// The address for work on `stream`, which waits for ours. Where it is another stream, the host
    /// waits for it in turn, because our streams do not.
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
        "{what}: the elements of the view of shape {} do not stand one after another: copy it first, by \
         `detach`",
        array.layout().shape()
    );
    Err(Error::new(ErrorKind::InvalidArgument, text))
}

macro_rules! exported {
    ($($type:ident)+) => {
        $(
            impl<T: AnyElement> $type<'_, T> {
                /// The address of the first element on the device, for work on
                /// [`stream`](DeviceSlice::stream).
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

            // SAFETY: a pointer to the elements is a `u64` to a kernel; it stands in the view,
            // which is borrowed until the launch, and the array with it, so nobody frees or moves
            // the elements.
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

// SAFETY: as for reading; the view is borrowed exclusively, and its array is the only one with its
// memory.
unsafe impl<'a, 'b: 'a, 'c: 'b, T: AnyElement> PushKernelArg<&'b mut ExportedViewMut<'c, T>>
    for LaunchArgs<'a>
{
    #[inline(always)]
    fn arg(&mut self, view: &'b mut ExportedViewMut<'c, T>) -> &mut Self {
        view.export.order_again(view.array, Use::Write);
        self.arg(&view.export.address)
    }
}
