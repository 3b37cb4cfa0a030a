//! Tests of ranks that wait for each other, and of the creation and the destruction of
//! communicators.

use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use cudarc::driver::sys;

use super::{
    Comm, IN_PROGRESS, Rank, SUCCESS, Status, async_error, begin, config, destroy, done, nccl,
    new_id, ranks, settle,
};
use crate::rules::device::{Code, Device, enter, enter_another, ok};

/// The time in which another thread starts its wait.
const A_WHILE: Duration = Duration::from_millis(50);

fn upload_all(device: &Device, ranks: &[Rank]) -> Vec<u64> {
    ranks.iter().map(|rank| rank.upload(device, &[7])).collect()
}

#[test]
fn a_collective_runs_as_late_as_other_work() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let before = device.control.report().pending;
    let memory = upload_all(&device, &ranks);
    for (rank, &address) in ranks.iter().zip(&memory) {
        done(rank.all_reduce(address, 1));
    }
    assert_eq!(device.control.report().pending, before + 4);
    // A wait for one rank runs the other rank's work up to the collective call, but not its later
    // work.
    assert_eq!(ranks[1].download::<i32>(memory[1], 1), [14]);
    assert_eq!(device.control.report().pending, before + 1);
    ranks[0].synchronize();
    destroy(&ranks);
}

#[test]
fn a_wait_for_a_rank_lasts_until_its_peers_have_submitted() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let memory = upload_all(&device, &ranks);
    done(ranks[0].all_reduce(memory[0], 1));
    thread::scope(|scope| {
        let first = scope.spawn(|| ranks[0].download::<i32>(memory[0], 1));
        thread::sleep(A_WHILE);
        assert!(!first.is_finished());
        done(ranks[1].all_reduce(memory[1], 1));
        assert_eq!(first.join().unwrap(), [14]);
    });
    destroy(&ranks);
}

#[test]
fn a_question_does_not_wait_for_peers() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let memory = upload_all(&device, &ranks);
    done(ranks[0].all_reduce(memory[0], 1));
    ranks[0].enter();
    // SAFETY: the stream is a stream of the emulator.
    let query = || unsafe { sys::cuStreamQuery(ranks[0].stream) };
    for _ in 0..30 {
        assert_eq!(query(), Code::CUDA_ERROR_NOT_READY);
    }
    done(ranks[1].all_reduce(memory[1], 1));
    ranks[0].enter();
    assert_eq!(query(), Code::CUDA_SUCCESS);
    destroy(&ranks);
}

#[test]
fn nonblocking_calls_are_in_progress_until_polled() {
    let device = Device::new();
    let alive = device.control.report().communicators;
    let (id, other) = (new_id(), enter_another());
    enter(device.ordinal);
    let (first, status) = begin(id, 0, 2);
    assert_eq!(status, IN_PROGRESS);
    assert_eq!(
        [(); 3].map(|()| async_error(first)),
        [IN_PROGRESS, IN_PROGRESS, IN_PROGRESS]
    );
    enter(other);
    let (second, _) = begin(id, 1, 2);
    assert_eq!([settle(first), settle(second)], [SUCCESS; 2]);
    let ranks = [(first, device.ordinal), (second, other)].map(|(comm, ordinal)| {
        enter(ordinal);
        let stream = device.stream();
        Rank {
            comm,
            ordinal,
            stream,
        }
    });
    let memory = upload_all(&device, &ranks);
    let before = device.control.report().pending;
    for (rank, &address) in ranks.iter().zip(&memory) {
        assert_eq!(rank.all_reduce(address, 1), IN_PROGRESS);
        assert_eq!(async_error(rank.comm), IN_PROGRESS);
    }
    // The call is not yet enqueued on the streams.
    assert_eq!(device.control.report().pending, before);
    for rank in &ranks {
        rank.enter();
        assert_eq!(settle(rank.comm), SUCCESS);
    }
    assert_eq!(device.control.report().pending, before + 2);
    assert_eq!(ranks[0].download::<i32>(memory[0], 1), [14]);
    ranks[1].synchronize();

    // A split is in progress on each communicator until all ranks have called it.
    let mut halves = [null_mut(); 2];
    let mut config = config(0);
    for (rank, half) in ranks.iter().zip(&mut halves) {
        let comm = rank.comm.0;
        // SAFETY: `half` and `config` are writable, and the emulator checks the handle.
        let status = unsafe { nccl::ncclCommSplit(comm, 0, 0, &raw mut *half, &raw mut config) };
        assert_eq!(status, IN_PROGRESS);
    }
    for comm in halves.map(Comm).into_iter().chain([first, second]) {
        assert_eq!(settle(comm), SUCCESS);
        // SAFETY: the emulator checks the handle.
        unsafe { nccl::ncclCommFinalize(comm.0) };
    }
    for comm in halves.map(Comm).into_iter().chain([first, second]) {
        assert_eq!(settle(comm), SUCCESS);
        // SAFETY: the emulator checks the handle.
        done(unsafe { nccl::ncclCommDestroy(comm.0) });
    }
    assert_eq!(device.control.report().communicators, alive);
}

#[test]
fn a_finalization_waits_for_the_work_of_all_ranks() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let memory = upload_all(&device, &ranks);
    done(ranks[0].all_reduce(memory[0], 1));
    thread::scope(|scope| {
        // SAFETY: the emulator checks the handle.
        let first = scope.spawn(|| unsafe { nccl::ncclCommFinalize(ranks[0].comm.0) });
        thread::sleep(A_WHILE);
        done(ranks[1].all_reduce(memory[1], 1));
        thread::sleep(A_WHILE);
        assert!(!first.is_finished());
        // SAFETY: the emulator checks the handle.
        done(unsafe { nccl::ncclCommFinalize(ranks[1].comm.0) });
        done(first.join().unwrap());
    });
    destroy(&ranks);
}

#[test]
fn an_abort_ends_all_waits_with_an_error() {
    let device = Device::new();
    let ranks = ranks(&device, 3);
    let memory = upload_all(&device, &ranks);
    done(ranks[0].all_reduce(memory[0], 1));
    done(ranks[1].all_reduce(memory[1], 1));
    thread::scope(|scope| {
        let waits = scope.spawn(|| ranks[0].synchronize());
        thread::sleep(A_WHILE);
        assert!(!waits.is_finished());
        // SAFETY: the emulator checks the handle.
        done(unsafe { nccl::ncclCommAbort(ranks[1].comm.0) });
        waits.join().unwrap();
    });
    ranks[1].synchronize();
    ranks[2].synchronize();
    for rank in [&ranks[0], &ranks[2]] {
        assert_eq!(async_error(rank.comm), Status::ncclRemoteError);
        assert_eq!(rank.all_reduce(memory[0], 1), Status::ncclRemoteError);
        // SAFETY: the emulator checks the handle.
        done(unsafe { nccl::ncclCommAbort(rank.comm.0) });
    }
    // The aborted call must not have written.
    assert_eq!(ranks[0].download::<i32>(memory[0], 1), [7]);
}

#[test]
fn an_abort_ends_the_wait_for_missing_ranks() {
    let device = Device::new();
    let alive = device.control.report().communicators;
    let id = new_id();
    let (comm, _) = begin(id, 0, 2);
    assert_eq!(async_error(comm), IN_PROGRESS);
    // SAFETY: the emulator checks the handle.
    done(unsafe { nccl::ncclCommAbort(comm.0) });
    assert_eq!(device.control.report().communicators, alive);
    // A rank that joins later must get an error.
    enter(enter_another());
    let (late, status) = begin(id, 1, 2);
    assert_eq!(status, IN_PROGRESS);
    assert_eq!(settle(late), Status::ncclRemoteError);
    // SAFETY: the emulator checks the handle.
    done(unsafe { nccl::ncclCommAbort(late.0) });
}

#[test]
fn a_failed_device_does_not_block_its_peers() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let memory = upload_all(&device, &ranks);
    ranks[1].enter();
    let kernel = device.kernel("extern \"C\" __global__ void kernel(int* a) { a[0] = 1; }");
    assert_eq!(
        device.launch(kernel, [1, 1, 0], &[0], ranks[1].stream),
        Code::CUDA_SUCCESS
    );
    for (rank, &address) in ranks.iter().zip(&memory) {
        done(rank.all_reduce(address, 1));
    }
    // The rank with the failed device ends last.
    let event = device.event();
    // SAFETY: the event and the streams are from the emulator.
    unsafe {
        ok(sys::cuEventRecord(event, ranks[1].stream));
        ok(sys::cuStreamWaitEvent(ranks[0].stream, event, 0));
    }
    ranks[0].synchronize();
    assert_eq!(async_error(ranks[0].comm), Status::ncclRemoteError);
    device.control.forgive(2);
    destroy(&ranks);
}
