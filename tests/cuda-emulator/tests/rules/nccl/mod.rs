//! Tests of NCCL communicators. The ranks are threads, each with a separate device.

mod collectives;
mod misuse;
mod waiting;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::thread;

use cudarc::driver::sys;
use cudarc::nccl::sys::{
    self as nccl, ncclDataType_t as Type, ncclRedOp_t as Reduction, ncclResult_t as Status,
};

use crate::rules::device::{Device, enter, enter_another, ok};

const SUCCESS: Status = Status::ncclSuccess;
const IN_PROGRESS: Status = Status::ncclInProgress;

#[track_caller]
fn done(status: Status) {
    assert_eq!(status, SUCCESS);
}

/// The handle of a communicator, usable on any thread.
#[derive(Clone, Copy)]
struct Comm(nccl::ncclComm_t);

// SAFETY: the handle is only passed to the emulator, which checks it.
unsafe impl Send for Comm {}
// SAFETY: the handle is only passed to the emulator, which checks it.
unsafe impl Sync for Comm {}

fn new_id() -> nccl::ncclUniqueId {
    let mut id = nccl::ncclUniqueId { internal: [0; 128] };
    // SAFETY: `id` is writable.
    done(unsafe { nccl::ncclGetUniqueId(&raw mut id) });
    id
}

/// Returns the value of `NCCL_CONFIG_INITIALIZER`, with the given value of `blocking`.
fn config(blocking: i32) -> nccl::ncclConfig_t {
    // SAFETY: the structure is plain data, for which zeros are valid.
    let mut config: nccl::ncclConfig_t = unsafe { std::mem::zeroed() };
    config.size = size_of::<nccl::ncclConfig_t>();
    config.magic = 0xcafe_beef;
    config.version = 23_000;
    config.blocking = blocking;
    config
}

/// Begins to create a nonblocking communicator on the current device.
fn begin(id: nccl::ncclUniqueId, rank: usize, size: usize) -> (Comm, Status) {
    let mut comm = null_mut();
    let mut config = config(0);
    // SAFETY: `comm` and `config` are local variables.
    let status = unsafe {
        nccl::ncclCommInitRankConfig(&raw mut comm, size as i32, id, rank as i32, &raw mut config)
    };
    (Comm(comm), status)
}

fn async_error(comm: Comm) -> Status {
    let mut status = SUCCESS;
    // SAFETY: the emulator checks the handle, and `status` is writable.
    done(unsafe { nccl::ncclCommGetAsyncError(comm.0, &raw mut status) });
    status
}

/// Polls until no call is in progress. Returns the status.
fn settle(comm: Comm) -> Status {
    loop {
        match async_error(comm) {
            IN_PROGRESS => thread::yield_now(),
            status => return status,
        }
    }
}

/// A rank of a blocking communicator, with a separate stream.
#[derive(Clone, Copy)]
struct Rank {
    comm: Comm,
    ordinal: i32,
    stream: sys::CUstream,
}

// SAFETY: the handles are only passed to the emulator, which checks them.
unsafe impl Send for Rank {}
// SAFETY: the handles are only passed to the emulator, which checks them.
unsafe impl Sync for Rank {}

impl Rank {
    fn enter(&self) {
        enter(self.ordinal);
    }

    /// Allocates memory of this rank. The rank's stream fills it with `values`.
    fn upload<T>(&self, device: &Device, values: &[T]) -> u64 {
        self.enter();
        let bytes = size_of_val(values);
        let address = device.memory(bytes);
        // SAFETY: `values` and the memory at `address` have `bytes` bytes each.
        ok(unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, values.as_ptr().cast(), bytes, self.stream)
        });
        address
    }

    fn download<T: Clone + Default>(&self, address: u64, count: usize) -> Vec<T> {
        self.enter();
        let mut values = vec![T::default(); count];
        let bytes = size_of_val(&values[..]);
        // SAFETY: `values` and the memory at `address` have at least `bytes` bytes each.
        ok(unsafe {
            sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), address, bytes, self.stream)
        });
        values
    }

    /// Enqueues an all-reduce of 32-bit integers.
    fn all_reduce(&self, address: u64, count: usize) -> Status {
        self.all_reduce_as(address, count, Type::ncclInt32, Reduction::ncclSum)
    }

    fn all_reduce_as(
        &self,
        address: u64,
        count: usize,
        element: Type,
        reduction: Reduction,
    ) -> Status {
        self.enter();
        let memory = address as *mut c_void;
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            nccl::ncclAllReduce(
                memory,
                memory,
                count,
                element,
                reduction,
                self.comm.0,
                self.stream.cast(),
            )
        }
    }

    fn send(&self, address: u64, count: usize, peer: usize) -> Status {
        let (memory, element) = (address as *const c_void, Type::ncclInt32);
        self.enter();
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            nccl::ncclSend(
                memory,
                count,
                element,
                peer as i32,
                self.comm.0,
                self.stream.cast(),
            )
        }
    }

    fn receive(&self, address: u64, count: usize, peer: usize) -> Status {
        let (memory, element) = (address as *mut c_void, Type::ncclInt32);
        self.enter();
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            nccl::ncclRecv(
                memory,
                count,
                element,
                peer as i32,
                self.comm.0,
                self.stream.cast(),
            )
        }
    }

    fn synchronize(&self) {
        self.enter();
        // SAFETY: the emulator checks the handle.
        ok(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// Runs the stream's pending work, and destroys the communicator. Otherwise, other tests would
    /// count the pending work.
    fn destroy(&self) {
        self.enter();
        // SAFETY: the emulator checks handles.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            done(nccl::ncclCommDestroy(self.comm.0));
        }
    }
}

/// Creates `count` ranks. The first rank uses the test's device. The threads of the ranks start
/// sequentially.
fn ranks(device: &Device, count: usize) -> Vec<Rank> {
    let id = new_id();
    let others = (1..count).map(|_| enter_another());
    let ordinals: Vec<i32> = std::iter::once(device.ordinal).chain(others).collect();
    let join = |(rank, ordinal): (usize, i32)| {
        enter(ordinal);
        let mut comm = null_mut();
        let (size, rank) = (count as i32, rank as i32);
        // SAFETY: `comm` is writable, and the emulator checks the other arguments.
        done(unsafe { nccl::ncclCommInitRank(&raw mut comm, size, id, rank) });
        Comm(comm)
    };
    let comms: Vec<Comm> = thread::scope(|scope| {
        let numbered = ordinals.iter().copied().enumerate();
        let threads: Vec<_> = numbered.map(|of| scope.spawn(move || join(of))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let rank = |(comm, ordinal)| {
        enter(ordinal);
        let stream = device.stream();
        Rank {
            comm,
            ordinal,
            stream,
        }
    };
    let made = comms.into_iter().zip(ordinals).map(rank).collect();
    enter(device.ordinal);
    made
}

fn destroy(ranks: &[Rank]) {
    ranks.iter().for_each(Rank::destroy);
}
