//! Tests with ranks as threads. If there are too few devices, a test is skipped.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::*;
use crate::device::cuda::Cuda;
use crate::device::{Backend, StreamId};
use crate::error::ErrorKind;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

/// Runs a function on `count` ranks at once. Returns `None` if there are fewer devices, or no NCCL.
fn on_ranks<T: Send>(
    count: usize,
    run: impl Fn(&Cuda, Communicator) -> Result<T> + Sync,
) -> Option<Vec<T>> {
    if Cuda::count() < count || Functions::get().is_err() {
        println!("skipped: there are no {count} CUDA devices, or there is no NCCL");
        return None;
    }
    // The tests run one at a time. A release of memory waits for all streams of the device. In
    // these streams, ranks of another test may wait for their peers.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let id = Cuda::new_nccl_id().unwrap();
    let all_have_joined = Barrier::new(count);
    let of_rank = &|rank| {
        let cuda = Cuda::open(rank)?;
        let communicator = cuda.join(&id, rank, count, LONG);
        // If a rank ended early, its drop would abort the joins of the other ranks.
        all_have_joined.wait();
        run(&cuda, communicator?)
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|rank| scope.spawn(move || of_rank(rank)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect::<Result<Vec<T>>>()
    });
    Some(results.unwrap())
}

/// Allocates memory, and copies `words` to it in the order of stream 0.
fn upload(cuda: &Cuda, words: &[i32]) -> Result<DevicePtr> {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let memory = cuda.reserve(bytes.len() as u64)?.expect("there is room");
    // SAFETY: the memory has the length of `bytes`, and nothing else uses it.
    unsafe { cuda.upload(StreamId(0), memory, bytes) }?;
    Ok(memory)
}

fn download(cuda: &Cuda, memory: DevicePtr, count: usize) -> Result<Vec<i32>> {
    let mut words = vec![0; count];
    // SAFETY: the memory has `count` elements.
    unsafe { cuda.download(StreamId(0), memory, bytemuck::cast_slice_mut(&mut words)) }?;
    Ok(words)
}

fn communicate(
    cuda: &Cuda,
    communicator: &Communicator,
    operation: NcclOperation,
    [source, target]: [DevicePtr; 2],
    count: usize,
) -> Result<()> {
    let call = NcclCall {
        operation,
        element: NcclType::I32,
        source,
        target,
        count,
    };
    // SAFETY: the tests' memory is as long as the call says, and only stream 0 uses it.
    unsafe { cuda.communicate(communicator, StreamId(0), &call) }
}

/// The layers above share communicators and registrations among threads.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Communicator>();
    shared::<Registration>();
};

#[test]
fn every_operation_moves_its_elements() {
    on_ranks(2, |cuda, communicator| {
        let rank = communicator.rank() as i32;
        let own = upload(cuda, &[10 * rank, 10 * rank + 1])?;
        let run = |operation, count, wanted: [[i32; 4]; 2]| {
            let target = upload(cuda, &[-1; 4])?;
            communicate(cuda, &communicator, operation, [own, target], count)?;
            let got = download(cuda, target, 4)?;
            assert_eq!(got, wanted[rank as usize], "{operation:?}");
            cuda.release(target, 16)
        };
        use NcclOperation as Operation;
        run(Operation::AllGather, 2, [[0, 1, 10, 11]; 2])?;
        let sums = [[10, 12, -1, -1]; 2];
        run(Operation::AllReduce(NcclReduce::Sum), 2, sums)?;
        let means = [[-1; 4], [5, 6, -1, -1]];
        run(Operation::Reduce(NcclReduce::Mean, 1), 2, means)?;
        run(Operation::Broadcast(1), 2, [[10, 11, -1, -1]; 2])?;
        let most = [[10, -1, -1, -1], [11, -1, -1, -1]];
        run(Operation::ReduceScatter(NcclReduce::Max), 1, most)?;
        let turned = [[0, 10, -1, -1], [1, 11, -1, -1]];
        run(Operation::AllToAll, 1, turned)?;
        let message = match rank {
            0 => Operation::Send(1),
            _ => Operation::Receive(0),
        };
        run(message, 2, [[-1; 4], [0, 1, -1, -1]])?;
        communicator.async_error()?;
        cuda.synchronize(StreamId(0))?;
        cuda.release(own, 8)
    });
}

#[test]
fn a_split_has_the_ranks_of_its_color() {
    let places = on_ranks(3, |_, communicator| {
        let rank = communicator.rank();
        let color = (rank != 1).then_some(4);
        let part = communicator.split(color, 10 - rank)?;
        Ok(part.map(|part| (part.rank(), part.size())))
    });
    let wanted = vec![Some((1, 2)), None, Some((0, 2))];
    assert!(places.is_none_or(|places| places == wanted));
}

#[test]
fn a_missing_peer_is_an_error_with_the_deadline() {
    if Cuda::count() == 0 || Functions::get().is_err() {
        println!("skipped: there is no CUDA device, or no NCCL");
        return;
    }
    let cuda = Cuda::open(0).unwrap();
    let id = Cuda::new_nccl_id().unwrap();
    let error = cuda.join(&id, 0, 2, SHORT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Driver);
    let text = error.to_string();
    let begins = "cuda:0: rank 0 of 2: joining a communicator: still in progress after 50ms";
    assert!(text.starts_with(begins), "{text}");
}

#[test]
fn an_abort_ends_the_wait_of_a_peer_with_an_error() {
    on_ranks(2, |cuda, communicator| {
        let memory = upload(cuda, &[1, 2])?;
        if communicator.rank() == 0 {
            let sum = NcclOperation::AllReduce(NcclReduce::Sum);
            communicate(cuda, &communicator, sum, [memory; 2], 2)?;
            cuda.synchronize(StreamId(0))?;
            let error = communicator.async_error().unwrap_err().to_string();
            assert!(error.starts_with("cuda:0: rank 0 of 2: "), "{error}");
            assert!(error.contains("ncclRemoteError"), "{error}");
        } else {
            thread::sleep(SHORT);
            communicator.abort();
        }
        let error = communicator
            .split(None, 0)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the communicator has ended: "), "{error}");
        cuda.release(memory, 8)
    });
}

#[test]
fn a_drop_with_work_left_aborts() {
    on_ranks(2, |cuda, communicator| {
        let memory = upload(cuda, &[1, 2])?;
        if communicator.rank() == 0 {
            let sum = NcclOperation::AllReduce(NcclReduce::Sum);
            communicate(cuda, &communicator, sum, [memory; 2], 2)?;
        } else {
            thread::sleep(SHORT);
        }
        drop(communicator);
        cuda.synchronize(StreamId(0))?;
        cuda.release(memory, 8)
    });
}

#[test]
fn memory_stays_registered_until_the_registration_or_the_communicator_is_dropped() {
    on_ranks(2, |cuda, communicator| {
        let memory = upload(cuda, &[0; 1024])?;
        let first = communicator.register(memory, 4096)?;
        drop(first);
        let second = communicator.register(memory, 4096)?;
        cuda.synchronize(StreamId(0))?;
        drop(communicator);
        drop(second);
        cuda.release(memory, 4096)
    });
}

#[test]
fn a_graph_joins_its_peers_at_each_launch() {
    let sums = on_ranks(2, |cuda, communicator| {
        let memory = upload(cuda, &[1 + communicator.rank() as i32])?;
        cuda.begin_capture(StreamId(0))?;
        let sum = NcclOperation::AllReduce(NcclReduce::Sum);
        let captured = communicate(cuda, &communicator, sum, [memory; 2], 1);
        let graph = cuda.end_capture(StreamId(0))?;
        captured?;
        for _ in 0..2 {
            let alone = cuda.lock_launches_exclusive(StreamId(0))?;
            // SAFETY: the memory lives, and nothing else uses it.
            unsafe { cuda.launch_graph(&graph, StreamId(0), &alone) }?;
        }
        let sums = download(cuda, memory, 1)?;
        cuda.synchronize(StreamId(0))?;
        cuda.release(memory, 4)?;
        Ok(sums)
    });
    assert!(sums.is_none_or(|sums| sums == [[6], [6]]));
}
