//! Tests of calls that NCCL refuses, and of calls with which NCCL would hang or compute wrong
//! results.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::{
    Rank, Reduction, Status, Type, async_error, begin, config, destroy, done, nccl, new_id, ranks,
    settle,
};
use crate::rules::device::{Device, enter, ok};

const MIB: usize = 1 << 20;

/// Checks that exactly one misuse was reported since `before`, and that its text contains `words`.
#[track_caller]
fn assert_reported(device: &Device, before: u64, words: &str) {
    assert_eq!(device.control.complaints(), before + 1);
    let text = device.control.last_complaint();
    assert!(text.contains(words), "{text}");
    device.control.forgive(1);
}

fn last_error() -> String {
    // SAFETY: the text is NUL-terminated, and belongs to the emulator.
    let text = unsafe { CStr::from_ptr(nccl::ncclGetLastError(null_mut())) };
    text.to_string_lossy().into_owned()
}

#[test]
fn a_communicator_that_is_gone_is_none() {
    let device = Device::new();
    let ranks = ranks(&device, 1);
    let before = device.control.complaints();
    destroy(&ranks);
    let mut count = 0;
    // SAFETY: the emulator checks the handle, and `count` is writable.
    let status = unsafe { nccl::ncclCommCount(ranks[0].comm.0, &raw mut count) };
    assert_eq!(status, Status::ncclInvalidArgument);
    assert_reported(&device, before, "does not exist, or no longer");
    assert!(last_error().starts_with("ncclCommCount"));
}

#[test]
fn ranks_must_make_equal_calls_in_one_order() {
    for case in 0..4 {
        let device = Device::new();
        let ranks = ranks(&device, 2);
        let memory: Vec<u64> = ranks
            .iter()
            .map(|rank| rank.upload(&device, &[1; 4]))
            .collect();
        let before = device.control.complaints();
        done(ranks[0].all_reduce(memory[0], 4));
        let (second, address) = (&ranks[1], memory[1]);
        let sum = Reduction::ncclSum;
        let status = match case {
            0 => second.all_reduce(address, 3),
            1 => second.all_reduce_as(address, 4, Type::ncclFloat32, sum),
            2 => second.all_reduce_as(address, 4, Type::ncclInt32, Reduction::ncclMax),
            _ => {
                second.enter();
                let memory = address as *mut c_void;
                let (comm, stream) = (second.comm.0, second.stream.cast());
                // SAFETY: the emulator checks handles and addresses.
                unsafe { nccl::ncclBroadcast(memory, memory, 4, Type::ncclInt32, 0, comm, stream) }
            }
        };
        assert_eq!(status, Status::ncclInvalidUsage, "case {case}");
        assert_reported(&device, before, "all ranks call the same, in one order");
        // After the misuse, no rank hangs.
        ranks.iter().for_each(Rank::synchronize);
        assert_eq!(async_error(ranks[0].comm), Status::ncclInvalidUsage);
        destroy(&ranks);
    }
}

#[test]
fn two_communicators_in_opposite_orders_wait_for_each_other() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let mut others = [null_mut(); 2];
    // SAFETY: the emulator checks handles, and all pointers refer to local variables.
    unsafe {
        done(nccl::ncclGroupStart());
        for (rank, other) in ranks.iter().zip(&mut others) {
            let split = nccl::ncclCommSplit(rank.comm.0, 0, 0, &raw mut *other, null_mut());
            done(split);
        }
        done(nccl::ncclGroupEnd());
    }
    let before = device.control.complaints();
    for (turned, rank) in [false, true].into_iter().zip(&ranks) {
        let address = rank.upload(&device, &[1; 4]);
        let other = super::Comm(others[usize::from(turned)]);
        let other = Rank {
            comm: other,
            ..*rank
        };
        let order = if turned {
            [&other, rank]
        } else {
            [rank, &other]
        };
        for comm in order {
            done(comm.all_reduce(address, 4));
        }
    }
    ranks.iter().for_each(Rank::synchronize);
    assert_reported(&device, before, "each waits for the other");
    destroy(&ranks);
}

#[test]
fn messages_that_both_send_first_wait_for_each_other() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let before = device.control.complaints();
    for (peer, rank) in [1, 0].into_iter().zip(&ranks) {
        let address = rank.upload(&device, &[1; 4]);
        done(rank.send(address, 4, peer));
        done(rank.receive(address, 4, peer));
    }
    ranks[0].synchronize();
    assert_reported(&device, before, "each waits for the other");
    destroy(&ranks);
}

#[test]
fn buffers_are_memory_of_the_rank_s_own_device() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let [own, others] = [0, 1].map(|rank: usize| ranks[rank].upload(&device, &[1; 4]));
    for (address, count) in [(others, 4), (own, 5), (own + 2, 1)] {
        let before = device.control.complaints();
        let status = ranks[0].all_reduce(address, count);
        assert_eq!(status, Status::ncclInvalidArgument);
        assert_reported(&device, before, "all memory of device");
    }
    // The source and the target overlap without being equal.
    let before = device.control.complaints();
    ranks[0].enter();
    let [from, to] = [own, own + 4].map(|address| address as *mut c_void);
    let (comm, stream) = (ranks[0].comm.0, ranks[0].stream.cast());
    let (word, sum) = (Type::ncclInt32, Reduction::ncclSum);
    // SAFETY: the emulator checks handles and addresses.
    let status = unsafe { nccl::ncclAllReduce(from, to, 3, word, sum, comm, stream) };
    assert_eq!(status, Status::ncclInvalidArgument);
    assert_reported(&device, before, "overlap");
    // The stream must belong to the communicator's device.
    let before = device.control.complaints();
    let mixed = Rank {
        stream: ranks[1].stream,
        ..ranks[0]
    };
    assert_eq!(mixed.all_reduce(own, 4), Status::ncclUnhandledCudaError);
    assert_reported(&device, before, "is given a part of device");
    destroy(&ranks);
}

#[test]
fn two_ranks_on_one_device_are_refused() {
    let device = Device::new();
    let id = new_id();
    let before = device.control.complaints();
    let (first, _) = begin(id, 0, 2);
    let (second, _) = begin(id, 1, 2);
    for comm in [first, second] {
        assert_eq!(settle(comm), Status::ncclInvalidUsage);
        // SAFETY: the emulator checks the handle.
        done(unsafe { nccl::ncclCommAbort(comm.0) });
    }
    assert_reported(&device, before, "both on device");
}

#[test]
fn a_configuration_is_initialized_and_an_id_is_one() {
    let device = Device::new();
    let mut comm = null_mut();
    for case in 0..3 {
        let before = device.control.complaints();
        let (mut id, mut config) = (new_id(), config(0));
        match case {
            0 => config.magic = 0,
            1 => config.blocking = 2,
            _ => id.internal[0] = !id.internal[0],
        }
        // SAFETY: all pointers refer to local variables.
        let status =
            unsafe { nccl::ncclCommInitRankConfig(&raw mut comm, 1, id, 0, &raw mut config) };
        assert_eq!(status, Status::ncclInvalidArgument);
        assert!(comm.is_null());
        let words = [
            "was not initialized",
            "`blocking` is 2",
            "an id that nobody made",
        ];
        assert_reported(&device, before, words[case]);
    }
}

#[test]
fn a_call_waits_until_the_last_one_is_no_longer_in_progress() {
    let device = Device::new();
    let (comm, _) = begin(new_id(), 0, 1);
    let rank = Rank {
        comm,
        ordinal: device.ordinal,
        stream: device.stream(),
    };
    let address = rank.upload(&device, &[1; 4]);
    let before = device.control.complaints();
    let status = rank.all_reduce(address, 4);
    assert_eq!(status, Status::ncclInvalidArgument);
    assert_reported(&device, before, "still in progress");
    done(settle(comm));
    rank.destroy();
}

fn register(rank: &Rank, address: u64, bytes: usize) -> Result<*mut c_void, Status> {
    let mut handle = null_mut();
    let memory = address as *mut c_void;
    // SAFETY: the emulator checks the arguments, and `handle` is writable.
    match unsafe { nccl::ncclCommRegister(rank.comm.0, memory, bytes, &raw mut handle) } {
        Status::ncclSuccess => Ok(handle),
        status => Err(status),
    }
}

#[test]
fn memory_is_registered_as_long_as_it_is_there() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let alive = device.control.report().registrations;
    enter(device.ordinal);
    let address = device.memory(4096);
    let handle = register(&ranks[0], address + 512, 1024).unwrap();
    assert_eq!(device.control.report().registrations, alive + 1);
    let before = device.control.complaints();
    // SAFETY: the emulator reports misuses instead of executing them.
    unsafe {
        ok(sys::cuMemFree_v2(address));
        assert_reported(&device, before, "registered with a communicator");
        done(nccl::ncclCommDeregister(ranks[0].comm.0, handle));
        let again = nccl::ncclCommDeregister(ranks[0].comm.0, handle);
        assert_eq!(again, Status::ncclInvalidArgument);
        assert_reported(&device, before, "nothing is registered");
    }
    let gone = register(&ranks[0], address, 4096);
    assert_eq!(gone, Err(Status::ncclInvalidArgument));
    assert_reported(&device, before, "not all memory of device");
    // The memory belongs to another rank.
    let address = device.memory(4096);
    assert_eq!(
        register(&ranks[1], address, 4096),
        Err(Status::ncclInvalidArgument)
    );
    assert_reported(&device, before, "not all memory of device");
    // A communicator's registrations end with it.
    register(&ranks[0], address, 4096).unwrap();
    destroy(&ranks);
    assert_eq!(device.control.report().registrations, alive);
}

#[test]
fn a_range_of_several_handles_is_not_registered() {
    let device = Device::new();
    let ranks = ranks(&device, 1);
    let page = 2 * MIB;
    // SAFETY: the structures are plain data, for which zeros are valid. All pointers refer to local
    // variables.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = device.ordinal;
        let access = sys::CUmemAccessDesc {
            location: properties.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let mut range = 0;
        ok(sys::cuMemAddressReserve(&raw mut range, 2 * page, 0, 0, 0));
        for at in [range, range + page as u64] {
            let mut handle = 0;
            ok(sys::cuMemCreate(
                &raw mut handle,
                page,
                &raw const properties,
                0,
            ));
            ok(sys::cuMemMap(at, page, 0, handle, 0));
            ok(sys::cuMemSetAccess(at, page, &raw const access, 1));
        }
        let before = device.control.complaints();
        let both = register(&ranks[0], range + 512, page);
        assert_eq!(both, Err(Status::ncclInvalidUsage));
        assert_reported(&device, before, "of 2 handles");
        register(&ranks[0], range, page).unwrap();
        ok(sys::cuMemUnmap(range + page as u64, page));
        assert_eq!(device.control.complaints(), before);
        ok(sys::cuMemUnmap(range, page));
        assert_reported(&device, before, "registered with a communicator");
    }
    destroy(&ranks);
}

#[test]
fn a_graph_outlives_no_communicator() {
    let device = Device::new();
    let ranks = ranks(&device, 1);
    let address = ranks[0].upload(&device, &[1; 4]);
    ranks[0].synchronize();
    let (mut graph, mut executable) = (null_mut(), null_mut());
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let before = device.control.complaints();
    // SAFETY: all pointers refer to local variables, and the emulator checks the handles.
    unsafe {
        ok(sys::cuStreamBeginCapture_v2(ranks[0].stream, mode));
        done(ranks[0].all_reduce(address, 4));
        ok(sys::cuStreamEndCapture(ranks[0].stream, &raw mut graph));
        ok(sys::cuGraphInstantiateWithFlags(
            &raw mut executable,
            graph,
            0,
        ));
        destroy(&ranks);
        ok(sys::cuGraphLaunch(executable, ranks[0].stream));
    }
    assert_reported(&device, before, "a communicator that is gone");
    ranks[0].synchronize();
}
