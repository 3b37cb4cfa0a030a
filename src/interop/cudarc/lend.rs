//! Arrays lent to other people's kernels and copies.

use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
};
use cudarc::driver::{DriverError, sys::CUresult};

use super::context::stream_of;
use crate::array::{Array, Element};
use crate::context::Device;
use crate::device::cuda::Cuda;
use crate::device::{StreamId, Use};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// The elements of an array, lent for reading: [`Array::cuda_view`] makes it.
///
/// It is an argument of cudarc's launches (`builder.arg(&view)`, a pointer to the first element) on the
/// stream that it is of, which [`stream`](DeviceSlice::stream) answers; and a
/// [`DevicePtr`] for cudarc's copies on any stream.
pub struct LentView<'a, T: Element> {
    array: &'a Array<T>,
    place: Place,
}

/// The elements of an array, lent for reading and writing: [`Array::cuda_view_mut`] makes it.
///
/// As [`LentView`], and `builder.arg(&mut view)` for a kernel that writes.
pub struct LentViewMut<'a, T: Element> {
    array: &'a mut Array<T>,
    place: Place,
}

/// Where lent elements stand, and the stream whose order their use follows.
///
/// Between ordering the stream and giving it the work foreign code holds nothing of ours. So for as long as
/// this lives, launches of graphs that collide are refused to other threads, and a view stays on its
/// thread, where a launch comes before the use of the view or after it.
struct Place {
    address: CUdeviceptr,
    id: StreamId,
    stream: Arc<CudaStream>,
    device: Device,
    lending: u64,
    of_thread: PhantomData<*const ()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        gpu_of(&self.device)
            .iter()
            .for_each(|gpu| gpu.end_export(self.lending));
    }
}

impl<T: Element> Array<T> {
    /// Lends the elements to other people's CUDA code that reads them, in the order of the thread's current
    /// stream: that comes after whatever other streams wrote. The view stays on its thread; while it lives,
    /// other threads cannot launch a [`Graph`](crate::graph::Graph) that writes to the elements. Launch none
    /// between `builder.arg(&view)` and the launch of the builder.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where the elements do not stand one after another (as
    /// in most views: copy it first, by [`detach`](Self::detach)), and as for
    /// [`Device::cuda_context`](crate::Device::cuda_context).
    ///
    /// # Examples
    ///
    /// See [`cuda`](crate::cuda).
    #[track_caller]
    pub fn cuda_view(&self) -> Result<LentView<'_, T>> {
        let place = Place::of("cuda_view", self, Use::Read)?;
        place.order(self, Use::Read)?;
        Ok(LentView { array: self, place })
    }

    /// Lends the elements to other people's CUDA code that reads and writes them, in the order of the
    /// thread's current stream: that comes after whatever other streams do with them. Where other arrays or
    /// expressions share the memory, those keep it, and this array gets a copy of its own. The view stays on
    /// its thread; while it lives, other threads cannot launch a [`Graph`](crate::graph::Graph) that uses the
    /// elements, and this one should launch none between `builder.arg(&mut view)` and the launch.
    ///
    /// # Errors
    ///
    /// As for [`cuda_view`](Self::cuda_view), and [`OutOfMemory`](ErrorKind::OutOfMemory) where there is no
    /// room for the copy.
    ///
    /// # Examples
    ///
    /// See [`cuda`](crate::cuda).
    #[track_caller]
    pub fn cuda_view_mut(&mut self) -> Result<LentViewMut<'_, T>> {
        check_contiguous("cuda_view_mut", self)?;
        if self.buffer().holders() > 1 {
            self.make_unique()?;
        }
        let place = Place::of("cuda_view_mut", self, Use::Write)?;
        place.order(self, Use::Write)?;
        Ok(LentViewMut { array: self, place })
    }
}

impl Place {
    #[track_caller]
    fn of<T: Element>(what: &str, array: &Array<T>, used: Use) -> Result<Self> {
        let device = array.device();
        let id = device.stream();
        let stream = stream_of(device, id)?;
        check_contiguous(what, array)?;
        let address = array.address();
        let range = address..address + array.size_bytes() as u64;
        let lending = gpu_of(device).map_or(0, |gpu| gpu.begin_export(range, used));
        Ok(Self {
            address,
            id,
            stream,
            device: device.clone(),
            lending,
            of_thread: PhantomData,
        })
    }

    /// Orders the stream, which is about to use the elements, after other streams that do; and notes the
    /// use, where the thread captures a graph.
    #[track_caller]
    fn order<T: Element>(&self, array: &Array<T>, wanted: Use) -> Result<()> {
        // Nothing is launched until this is done: who is in the middle of it was not refused.
        let _kept_off = gpu_of(&self.device).map(Cuda::lock_launches_shared);
        if !self.device.backend().uses_streams() {
            return Ok(());
        }
        array.buffer().use_on(self.id, wanted)
    }

    /// The same once more as the elements are used, because a graph may have been launched since, which
    /// writes to arrays by their addresses. An error goes to cudarc, which tells of it at its next call,
    /// and to ours.
    fn order_again<T: Element>(&self, array: &Array<T>, wanted: Use) {
        if let Err(error) = self.order(array, wanted) {
            array.device().caches().memory().defer(error);
            let failed = DriverError(CUresult::CUDA_ERROR_UNKNOWN);
            self.stream.context().record_err::<()>(Err(failed));
        }
    }

    /// The address for work on `stream`, which waits for ours; and if it is another, that the host waits for
    /// it in turn, because nobody else would.
    fn pointer<'a, T: Element>(
        &'a self,
        array: &Array<T>,
        wanted: Use,
        stream: &'a CudaStream,
    ) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.order_again(array, wanted);
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
fn check_contiguous<T: Element>(what: &str, array: &Array<T>) -> Result<()> {
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

macro_rules! lent {
    ($($type:ident)+) => {
        $(
            impl<T: Element> $type<'_, T> {
                /// The address of the first element on the device, for work on [`stream`](DeviceSlice::stream).
                pub fn address(&self) -> u64 {
                    self.place.address
                }
            }

            impl<T: Element> DeviceSlice<T> for $type<'_, T> {
                fn len(&self) -> usize {
                    self.array.len()
                }

                fn stream(&self) -> &Arc<CudaStream> {
                    &self.place.stream
                }
            }

            impl<T: Element> DevicePtr<T> for $type<'_, T> {
                fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                    self.place.pointer(self.array, Use::Read, stream)
                }
            }

            // SAFETY: a pointer to the elements is a `u64` to a kernel; it stands in the view, which is
            // borrowed until the launch, and the array with it, so nobody frees or moves the elements.
            unsafe impl<'a, 'b: 'a, 'c: 'b, T: Element> PushKernelArg<&'b $type<'c, T>> for LaunchArgs<'a> {
                #[inline(always)]
                fn arg(&mut self, view: &'b $type<'c, T>) -> &mut Self {
                    view.place.order_again(view.array, Use::Read);
                    self.arg(&view.place.address)
                }
            }

            impl<T: Element> fmt::Debug for $type<'_, T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($type))
                        .field("address", &format_args!("{:#x}", self.place.address))
                        .field("shape", &self.array.shape())
                        .finish_non_exhaustive()
                }
            }
        )+
    };
}

lent!(LentView LentViewMut);

impl<T: Element> DevicePtrMut<T> for LentViewMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.place.pointer(self.array, Use::Write, stream)
    }
}

// SAFETY: as for reading; the view is borrowed exclusively, and its array is the only one with its memory.
unsafe impl<'a, 'b: 'a, 'c: 'b, T: Element> PushKernelArg<&'b mut LentViewMut<'c, T>>
    for LaunchArgs<'a>
{
    #[inline(always)]
    fn arg(&mut self, view: &'b mut LentViewMut<'c, T>) -> &mut Self {
        view.place.order_again(view.array, Use::Write);
        self.arg(&view.place.address)
    }
}
