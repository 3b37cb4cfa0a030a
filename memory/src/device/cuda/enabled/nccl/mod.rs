//! Collectives by NCCL, which is loaded when the first communicator is created.

mod communicator;
#[cfg(test)]
mod tests;

use super::Opaque;
use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys::CUstream;

use super::library::{Library, LibraryError, LibraryResult, library_functions};
use crate::device::DevicePtr;
use crate::device::cuda::nccl::{NcclCall, NcclId, NcclOperation, NcclReduce, NcclType};
use crate::error::{Error, Result};
use crate::sync::plain::Mutex;
pub use communicator::Communicator;
#[cfg(test)]
use communicator::Registration;

/// The items of cudarc's module `sys` that [`library_functions!`] uses. cudarc's own looks for
/// `libnccl.so` only, but without the headers NCCL is installed as `libnccl.so.2`.
mod sys {
    pub(super) use cudarc::nccl::sys::{
        ncclComm, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId,
    };
    use libloading::Library;

    use crate::sync::plain::Mutex;

    const NAMES: [&str; 2] = ["libnccl.so", "libnccl.so.2"];

    fn find() -> Option<&'static Library> {
        static OPENED: Mutex<Option<&'static Library>> = Mutex::new(None);
        let mut opened = OPENED.lock();
        if opened.is_none() {
            // SAFETY: loading the library runs its initialisers, which NVIDIA supports at any time.
            let found = NAMES
                .iter()
                .find_map(|name| unsafe { Library::new(*name) }.ok());
            // It is never unloaded: its threads may still run.
            *opened = found.map(|library| &*Box::leak(Box::new(library)));
        }
        *opened
    }

    /// # Safety
    ///
    /// None is needed: the signature is cudarc's.
    pub(super) unsafe fn is_culib_present() -> bool {
        find().is_some()
    }

    /// # Safety
    ///
    /// None is needed: the signature is cudarc's.
    pub(super) unsafe fn culib() -> &'static Library {
        find().expect("the caller has found it")
    }
}

static LIBRARY: Library = Library {
    name: "NCCL",
    operation: "collectives",
    install: "install NCCL 2.19 or newer (libnccl.so.2)",
    statuses: &[
        (1, "ncclUnhandledCudaError"),
        (2, "ncclSystemError"),
        (3, "ncclInternalError"),
        (4, "ncclInvalidArgument"),
        (5, "ncclInvalidUsage"),
        (6, "ncclRemoteError"),
        (IN_PROGRESS, "ncclInProgress"),
        (8, "ncclTimeout"),
    ],
    unsupported: &[],
};

const IN_PROGRESS: c_uint = 7;

/// `NCCL_CONFIG_UNDEF_INT` and `NCCL_API_MAGIC`.
const UNDEFINED: c_int = c_int::MIN;
const MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_VERSION(2, 30, 0)`, the version of cudarc's structure. An older library reads the fields
/// that it knows.
const CONFIG_VERSION: c_uint = 23_000;
/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: c_int = -1;

type CommHandle = *mut sys::ncclComm;

library_functions! { LIBRARY:
    new_id = ncclGetUniqueId(id: *mut sys::ncclUniqueId);
    init = ncclCommInitRankConfig(made: *mut CommHandle, size: c_int, id: sys::ncclUniqueId, rank: c_int, config: *mut sys::ncclConfig_t);
    split = ncclCommSplit(handle: CommHandle, color: c_int, key: c_int, made: *mut CommHandle, config: *mut sys::ncclConfig_t);
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
    fn last_error(&self) -> String {
        type Called = unsafe extern "C" fn(CommHandle) -> *const c_char;
        // SAFETY: the library is present, as this table is; the type is what its header declares
        // for the name.
        let found = unsafe { sys::culib().get::<Called>(b"ncclGetLastError") };
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

    /// Enqueues a call on the stream; an all-to-all as one group of messages.
    ///
    /// # Safety
    ///
    /// As for [`communicate`](super::Cuda::communicate); `handle` is the handle of a communicator
    /// of `size` ranks.
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
    /// As for [`issue`](Self::issue).
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

/// Treats a call that is still in progress as begun: the calls do not block.
fn begun(outcome: LibraryResult) -> LibraryResult {
    match outcome {
        Err(failure) if failure.status == IN_PROGRESS => Ok(()),
        outcome => outcome,
    }
}

/// Returns an id for a new communicator; needs no device.
pub(super) fn new_id() -> Result<NcclId> {
    let functions = Functions::get()?;
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    // SAFETY: `id` is writable.
    unsafe { functions.new_id(&mut id) }
        .map_err(|failure| error("nccl", "making an id", failure, functions))?;
    Ok(NcclId(id.internal.map(|byte| byte as u8)))
}

/// Returns the error of a failed NCCL call, with the library's own text.
#[cold]
fn error(rank_name: &str, attempting: &str, failure: LibraryError, functions: &Functions) -> Error {
    let said = functions.last_error();
    if said.is_empty() {
        return failure.of(rank_name, attempting);
    }
    failure.because(format!("{rank_name}: {attempting}: {failure}: {said}"))
}

/// Returns the value of `NCCL_CONFIG_INITIALIZER`, with calls that do not block.
fn config() -> sys::ncclConfig_t {
    sys::ncclConfig_t {
        size: std::mem::size_of::<sys::ncclConfig_t>(),
        magic: MAGIC,
        version: CONFIG_VERSION,
        blocking: 0,
        cgaClusterSize: UNDEFINED,
        minCTAs: UNDEFINED,
        maxCTAs: UNDEFINED,
        netName: std::ptr::null(),
        splitShare: UNDEFINED,
        trafficClass: UNDEFINED,
        commName: std::ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
        graphUsageMode: UNDEFINED,
        numRmaCtx: UNDEFINED,
        maxP2pPeers: UNDEFINED,
    }
}

/// Returns the number of a type, and the bytes of an element.
fn type_number(element: NcclType) -> (c_uint, usize) {
    use sys::ncclDataType_t as Type;
    let (named, bytes) = match element {
        NcclType::I8 => (Type::ncclInt8, 1),
        NcclType::U8 => (Type::ncclUint8, 1),
        NcclType::I32 => (Type::ncclInt32, 4),
        NcclType::U32 => (Type::ncclUint32, 4),
        NcclType::I64 => (Type::ncclInt64, 8),
        NcclType::U64 => (Type::ncclUint64, 8),
        NcclType::F16 => (Type::ncclFloat16, 2),
        NcclType::F32 => (Type::ncclFloat32, 4),
        NcclType::F64 => (Type::ncclFloat64, 8),
        NcclType::Bf16 => (Type::ncclBfloat16, 2),
    };
    (named as c_uint, bytes)
}

fn reduce_number(reduce: NcclReduce) -> c_uint {
    use sys::ncclRedOp_t as Reduction;
    let named = match reduce {
        NcclReduce::Sum => Reduction::ncclSum,
        NcclReduce::Max => Reduction::ncclMax,
        NcclReduce::Min => Reduction::ncclMin,
        NcclReduce::Mean => Reduction::ncclAvg,
    };
    named as c_uint
}
