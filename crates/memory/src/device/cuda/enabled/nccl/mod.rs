//! Collectives by NCCL, which is loaded when the first communicator is created.

mod communicator;
#[cfg(test)]
mod tests;

use super::Opaque;
use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys::CUstream;

use super::headers::nccl::{self, Config, IN_PROGRESS, UniqueId};
use super::library::{Library, LibraryError, LibraryResult, library_functions};
use crate::device::DevicePtr;
use crate::device::cuda::nccl::{NcclCall, NcclId, NcclOperation, NcclReduce, NcclType};
use crate::error::{Error, Result};
use crate::sync::plain::Mutex;
pub use communicator::Communicator;
#[cfg(test)]
use communicator::Registration;

static LIBRARY: Library = Library {
    name: "NCCL",
    file: "nccl",
    versions: &["2"],
    operation: "collectives",
    install: "install NCCL 2.19 or newer (libnccl.so.2)",
    statuses: nccl::STATUSES,
    unsupported: &[],
};

type CommHandle = Opaque;

library_functions! { LIBRARY:
    new_id = ncclGetUniqueId(id: *mut UniqueId);
    init = ncclCommInitRankConfig(made: *mut CommHandle, size: c_int, id: UniqueId, rank: c_int, config: *mut Config);
    split = ncclCommSplit(handle: CommHandle, color: c_int, key: c_int, made: *mut CommHandle, config: *mut Config);
    destroy = ncclCommDestroy(handle: CommHandle);
    abort = ncclCommAbort(handle: CommHandle);
    async_error = ncclCommGetAsyncError(handle: CommHandle, status: *mut c_uint);
    count = ncclCommCount(handle: CommHandle, count: *mut c_int);
    user_rank = ncclCommUserRank(handle: CommHandle, rank: *mut c_int);
    register = ncclCommRegister(handle: CommHandle, address: Opaque, bytes: usize, registration: *mut Opaque);
    deregister = ncclCommDeregister(handle: CommHandle, registration: Opaque);
    group_start = ncclGroupStart();
    group_end = ncclGroupEnd();
    all_reduce = ncclAllReduce(source: Opaque, target: Opaque, count: usize, element: c_uint, reduce: c_uint, handle: CommHandle, stream: CUstream);
    reduce = ncclReduce(source: Opaque, target: Opaque, count: usize, element: c_uint, reduce: c_uint, root: c_int, handle: CommHandle, stream: CUstream);
    broadcast = ncclBroadcast(source: Opaque, target: Opaque, count: usize, element: c_uint, root: c_int, handle: CommHandle, stream: CUstream);
    all_gather = ncclAllGather(source: Opaque, target: Opaque, count: usize, element: c_uint, handle: CommHandle, stream: CUstream);
    reduce_scatter = ncclReduceScatter(source: Opaque, target: Opaque, count: usize, element: c_uint, reduce: c_uint, handle: CommHandle, stream: CUstream);
    send = ncclSend(source: Opaque, count: usize, element: c_uint, peer: c_int, handle: CommHandle, stream: CUstream);
    receive = ncclRecv(target: Opaque, count: usize, element: c_uint, peer: c_int, handle: CommHandle, stream: CUstream);
}

impl Functions {
    /// Returns the library's text for the last failure; empty if there is none.
    #[cold]
    fn last_error() -> String {
        type Called = unsafe extern "C" fn(CommHandle) -> *const c_char;
        let Some(library) = LIBRARY.open() else {
            return String::new();
        };
        // SAFETY: the type is what the header declares for the name.
        let found = unsafe { library.get::<Called>(b"ncclGetLastError") };
        // SAFETY: the handle is not used, as the library's documentation states.
        let text = found.map_or(std::ptr::null(), |function| unsafe {
            function(std::ptr::null_mut())
        });
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the text is the library's own: zero-terminated, and never freed.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().trim().to_owned()
    }

    /// Enqueues a call on the stream. An all-to-all becomes one group of messages.
    ///
    /// # Safety
    ///
    /// The conditions of [`communicate`](super::Cuda::communicate) must hold. `handle` must be the
    /// handle of a communicator of `size` ranks.
    unsafe fn issue(
        &self,
        (handle, size): (CommHandle, usize),
        stream: CUstream,
        call: &NcclCall,
    ) -> LibraryResult {
        let [source, target] = [call.source, call.target].map(|address| address.0 as Opaque);
        let (element, _) = type_number(call.element);
        let count = call.count;
        // SAFETY: by this function's contract.
        unsafe {
            match call.operation {
                NcclOperation::AllReduce(by) => {
                    let by = reduce_number(by);
                    self.all_reduce(source, target, count, element, by, handle, stream)
                }
                NcclOperation::Reduce(by, root) => {
                    let (by, root) = (reduce_number(by), root as c_int);
                    self.reduce(source, target, count, element, by, root, handle, stream)
                }
                NcclOperation::Broadcast(root) => {
                    let root = root as c_int;
                    self.broadcast(source, target, count, element, root, handle, stream)
                }
                NcclOperation::AllGather => {
                    self.all_gather(source, target, count, element, handle, stream)
                }
                NcclOperation::ReduceScatter(by) => {
                    let by = reduce_number(by);
                    self.reduce_scatter(source, target, count, element, by, handle, stream)
                }
                NcclOperation::AllToAll => self.all_to_all((handle, size), stream, call),
                NcclOperation::Send(peer) => {
                    self.send(source, count, element, peer as c_int, handle, stream)
                }
                NcclOperation::Receive(peer) => {
                    self.receive(target, count, element, peer as c_int, handle, stream)
                }
            }
        }
    }

    /// # Safety
    ///
    /// The conditions of [`issue`](Self::issue) must hold.
    unsafe fn all_to_all(
        &self,
        (handle, size): (CommHandle, usize),
        stream: CUstream,
        call: &NcclCall,
    ) -> LibraryResult {
        let (element, bytes) = type_number(call.element);
        let share_bytes = (call.count * bytes) as u64;
        let messages = || {
            for peer in 0..size {
                let place = |all: DevicePtr| all.offset(share_bytes * peer as u64).0 as Opaque;
                let (source, target) = (place(call.source), place(call.target));
                let (count, peer) = (call.count, peer as c_int);
                // SAFETY: by this function's contract, source and target have `size` parts of
                // `count` elements.
                unsafe {
                    self.send(source, count, element, peer, handle, stream)?;
                    self.receive(target, count, element, peer, handle, stream)?;
                }
            }
            Ok(())
        };
        // SAFETY: a group may begin at any time, and ends on the thread that began it.
        unsafe {
            self.group_start()?;
            // Even if a message fails, the thread must leave the group.
            let sent = messages();
            let ended = self.group_end();
            sent.and(ended)
        }
    }
}

/// Treats a call in progress as a success, because the calls do not block.
fn begun(outcome: LibraryResult) -> LibraryResult {
    match outcome {
        Err(failure) if failure.status == IN_PROGRESS => Ok(()),
        outcome => outcome,
    }
}

/// Returns an id for a new communicator. Needs no device.
pub(super) fn new_id() -> Result<NcclId> {
    let functions = Functions::get()?;
    let mut id = UniqueId { internal: [0; 128] };
    // SAFETY: `id` is writable.
    unsafe { functions.new_id(&mut id) }
        .map_err(|failure| error("nccl", "making an id", failure))?;
    Ok(NcclId(id.internal.map(|byte| byte as u8)))
}

/// Returns the error of a failed NCCL call, with the library's own text.
#[cold]
fn error(rank_name: &str, attempting: &str, failure: LibraryError) -> Error {
    let said = Functions::last_error();
    if said.is_empty() {
        return failure.of(rank_name, attempting);
    }
    failure.because(format!("{rank_name}: {attempting}: {failure}: {said}"))
}

/// Returns the value of `NCCL_CONFIG_INITIALIZER`, with calls that do not block.
fn config() -> Config {
    Config {
        blocking: 0,
        ..Config::INITIALIZER
    }
}

fn type_number(element: NcclType) -> (c_uint, usize) {
    match element {
        NcclType::I8 => (nccl::INT8, 1),
        NcclType::U8 => (nccl::UINT8, 1),
        NcclType::I32 => (nccl::INT32, 4),
        NcclType::U32 => (nccl::UINT32, 4),
        NcclType::I64 => (nccl::INT64, 8),
        NcclType::U64 => (nccl::UINT64, 8),
        NcclType::F16 => (nccl::FLOAT16, 2),
        NcclType::F32 => (nccl::FLOAT32, 4),
        NcclType::F64 => (nccl::FLOAT64, 8),
        NcclType::Bf16 => (nccl::BFLOAT16, 2),
    }
}

fn reduce_number(reduce: NcclReduce) -> c_uint {
    match reduce {
        NcclReduce::Sum => nccl::SUM,
        NcclReduce::Max => nccl::MAX,
        NcclReduce::Min => nccl::MIN,
        NcclReduce::Mean => nccl::AVG,
    }
}
