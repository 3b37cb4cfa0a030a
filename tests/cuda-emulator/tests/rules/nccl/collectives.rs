//! Tests of the results of NCCL calls, in the order of the rank's stream.

use std::ffi::{CStr, c_void};
use std::fmt::Debug;
use std::ptr::null_mut;

use cudarc::driver::sys;
use half::{bf16, f16};

use super::{Rank, Reduction, Status, Type, destroy, done, nccl, ranks};
use crate::rules::device::{Device, ok};

const REDUCTIONS: [Reduction; 5] = [
    Reduction::ncclSum,
    Reduction::ncclProd,
    Reduction::ncclMax,
    Reduction::ncclMin,
    Reduction::ncclAvg,
];

/// Reduces two elements over three ranks with all reductions, and checks the results. The elements
/// are 2, 3, 4 and 1, 1, 7.
fn check_type<T>(device: &Device, ranks: &[Rank], element: Type, make: impl Fn(f64) -> T)
where
    T: Clone + Default + Debug + PartialEq,
{
    let given = [[2.0, 1.0], [3.0, 1.0], [4.0, 7.0]];
    let wanted = [[9.0, 9.0], [24.0, 7.0], [4.0, 7.0], [2.0, 1.0], [3.0, 3.0]];
    for (reduction, wanted) in REDUCTIONS.into_iter().zip(wanted) {
        let upload = |(rank, pair): (&Rank, [f64; 2])| rank.upload(device, &pair.map(&make));
        let memory: Vec<u64> = ranks.iter().zip(given).map(upload).collect();
        for (rank, &address) in ranks.iter().zip(&memory) {
            done(rank.all_reduce_as(address, 2, element, reduction));
        }
        for (rank, &address) in ranks.iter().zip(&memory) {
            let got: Vec<T> = rank.download(address, 2);
            assert_eq!(got, wanted.map(&make), "{element:?} {reduction:?}");
        }
    }
}

#[test]
fn every_type_is_reduced_by_every_reduction() {
    let device = Device::new();
    let ranks = ranks(&device, 3);
    check_type(&device, &ranks, Type::ncclInt8, |x| x as i8);
    check_type(&device, &ranks, Type::ncclUint8, |x| x as u8);
    check_type(&device, &ranks, Type::ncclInt32, |x| x as i32);
    check_type(&device, &ranks, Type::ncclUint32, |x| x as u32);
    check_type(&device, &ranks, Type::ncclInt64, |x| x as i64);
    check_type(&device, &ranks, Type::ncclUint64, |x| x as u64);
    check_type(&device, &ranks, Type::ncclFloat16, f16::from_f64);
    check_type(&device, &ranks, Type::ncclFloat32, |x| x as f32);
    check_type(&device, &ranks, Type::ncclFloat64, |x| x);
    check_type(&device, &ranks, Type::ncclBfloat16, bf16::from_f64);
    destroy(&ranks);
}

#[test]
fn half_precision_is_summed_in_floats_and_rounded_once() {
    let device = Device::new();
    let ranks = ranks(&device, 3);
    // A half-precision sum would lose the two ones. The other numbers have all magnitudes.
    let sizes = [
        2048.0, 65504.0, 6.1e-5, 3.0e-7, 5.96e-8, -1.5, 0.0, 1023.0e-7,
    ];
    let given = [sizes, [1.0; 8], [1.0; 8]].map(|row| row.map(f16::from_f64));
    let wanted: Vec<f16> = (0..8)
        .map(|at| f16::from_f32(given.iter().map(|row| row[at].to_f32()).sum()))
        .collect();
    let memory: Vec<u64> = (0..3)
        .map(|rank| ranks[rank].upload(&device, &given[rank]))
        .collect();
    for (rank, &address) in ranks.iter().zip(&memory) {
        done(rank.all_reduce_as(address, 8, Type::ncclFloat16, Reduction::ncclSum));
    }
    assert_eq!(ranks[2].download::<f16>(memory[2], 8), wanted);
    // With zeros from the other ranks, each bit pattern must be unchanged.
    let alone: Vec<f16> = (0..=u16::MAX)
        .map(f16::from_bits)
        .filter(|x| !x.is_nan())
        .collect();
    let zeros = vec![f16::from_f32(-0.0); alone.len()];
    let rows = [&alone, &zeros, &zeros];
    let memory: Vec<u64> = (0..3)
        .map(|rank| ranks[rank].upload(&device, rows[rank]))
        .collect();
    for (rank, &address) in ranks.iter().zip(&memory) {
        done(rank.all_reduce_as(address, alone.len(), Type::ncclFloat16, Reduction::ncclSum));
    }
    let got: Vec<u16> = ranks[0].download(memory[0], alone.len());
    let kept = alone.iter().zip(got).find(|(x, bits)| x.to_bits() != *bits);
    assert_eq!(kept, None);
    destroy(&ranks);
}

#[test]
fn the_other_collectives_move_their_elements() {
    let device = Device::new();
    let ranks = ranks(&device, 3);
    let (word, sum) = (Type::ncclInt32, Reduction::ncclSum);
    let memory: Vec<[u64; 4]> = (0..3)
        .map(|rank| {
            let at = 10 * rank as i32;
            let own = [at, at + 1, at + 2];
            let places = [(); 3].map(|()| ranks[rank].upload(&device, &[-1; 9]));
            [
                ranks[rank].upload(&device, &own),
                places[0],
                places[1],
                places[2],
            ]
        })
        .collect();
    for (rank, &[own, gathered, copied, scattered]) in ranks.iter().zip(&memory) {
        rank.enter();
        let [own, gathered, copied, scattered] =
            [own, gathered, copied, scattered].map(|address| address as *mut c_void);
        let (comm, stream) = (rank.comm.0, rank.stream.cast());
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            done(nccl::ncclAllGather(own, gathered, 3, word, comm, stream));
            done(nccl::ncclBroadcast(own, copied, 3, word, 2, comm, stream));
            done(nccl::ncclReduceScatter(
                own, scattered, 1, word, sum, comm, stream,
            ));
            // The reduction is in place. Only rank 1 receives the result.
            done(nccl::ncclReduce(own, own, 3, word, sum, 1, comm, stream));
        }
    }
    for (number, (rank, &[own, gathered, copied, scattered])) in
        ranks.iter().zip(&memory).enumerate()
    {
        let words = |address, count| rank.download::<i32>(address, count);
        assert_eq!(words(gathered, 9), [0, 1, 2, 10, 11, 12, 20, 21, 22]);
        assert_eq!(words(copied, 4), [20, 21, 22, -1]);
        assert_eq!(words(scattered, 2), [30 + 3 * number as i32, -1]);
        let at = 10 * number as i32;
        let wanted = if number == 1 {
            [30, 33, 36]
        } else {
            [at, at + 1, at + 2]
        };
        assert_eq!(words(own, 3), wanted);
    }
    destroy(&ranks);
}

#[test]
fn an_in_place_share_is_at_its_destination() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let rows = [[1, -1], [-1, 2]];
    let memory: Vec<u64> = (0..2)
        .map(|rank| ranks[rank].upload(&device, &rows[rank]))
        .collect();
    for (number, (rank, &all)) in ranks.iter().zip(&memory).enumerate() {
        rank.enter();
        let (all, share) = (all as *mut c_void, (all + 4 * number as u64) as *mut c_void);
        let (comm, stream) = (rank.comm.0, rank.stream.cast());
        let (word, sum) = (Type::ncclInt32, Reduction::ncclSum);
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            done(nccl::ncclAllGather(share, all, 1, word, comm, stream));
            done(nccl::ncclReduceScatter(
                all, share, 1, word, sum, comm, stream,
            ));
        }
    }
    assert_eq!(ranks[0].download::<i32>(memory[0], 2), [2, 2]);
    assert_eq!(ranks[1].download::<i32>(memory[1], 2), [1, 4]);
    destroy(&ranks);
}

#[test]
fn messages_of_a_group_are_sent_both_ways_and_to_oneself() {
    let device = Device::new();
    let ranks = ranks(&device, 3);
    let memory: Vec<[u64; 2]> = (0..3)
        .map(|rank| {
            let own = [0, 1, 2].map(|peer| 10 * rank as i32 + peer);
            [
                ranks[rank].upload(&device, &own),
                ranks[rank].upload(&device, &[-1; 3]),
            ]
        })
        .collect();
    for (rank, &[from, to]) in ranks.iter().zip(&memory) {
        // SAFETY: the emulator checks handles and addresses.
        unsafe {
            done(nccl::ncclGroupStart());
            for peer in 0..3 {
                done(rank.send(from + 4 * peer as u64, 1, peer));
                done(rank.receive(to + 4 * peer as u64, 1, peer));
            }
            done(nccl::ncclGroupEnd());
        }
    }
    for (number, (rank, &[_, to])) in ranks.iter().zip(&memory).enumerate() {
        let wanted = [0, 10, 20].map(|of| of + number as i32);
        assert_eq!(rank.download::<i32>(to, 3), wanted);
    }
    destroy(&ranks);
}

#[test]
fn a_split_makes_communicators_of_its_colors_in_the_order_of_the_keys() {
    let device = Device::new();
    let alive = device.control.report().communicators;
    let ranks = ranks(&device, 3);
    // SAFETY: the emulator checks handles. In a group, one thread may call for several ranks.
    let split: Vec<_> = unsafe {
        done(nccl::ncclGroupStart());
        let mut made = [null_mut(); 3];
        for (number, rank) in ranks.iter().enumerate() {
            // Ranks 0 and 2 join the new communicator in reverse order. Rank 1 does not join.
            let color = if number == 1 { -1 } else { 5 };
            let (key, child) = (-(number as i32), &raw mut made[number]);
            done(nccl::ncclCommSplit(
                rank.comm.0,
                color,
                key,
                child,
                null_mut(),
            ));
        }
        done(nccl::ncclGroupEnd());
        made.into()
    };
    assert!(split[1].is_null());
    for (comm, of, device) in [(split[0], 1, 0), (split[2], 0, 2)] {
        let (mut rank, mut count, mut ordinal) = (0, 0, 0);
        // SAFETY: the emulator checks handles, and all pointers refer to local variables.
        unsafe {
            done(nccl::ncclCommUserRank(comm, &raw mut rank));
            done(nccl::ncclCommCount(comm, &raw mut count));
            done(nccl::ncclCommCuDevice(comm, &raw mut ordinal));
            done(nccl::ncclCommDestroy(comm));
        }
        let wanted: (i32, i32, i32) = (of, 2, ranks[device as usize].ordinal);
        assert_eq!((rank, count, ordinal), wanted);
    }
    destroy(&ranks);
    assert_eq!(device.control.report().communicators, alive);
}

#[test]
fn a_graph_joins_the_others_at_each_launch() {
    let device = Device::new();
    let ranks = ranks(&device, 2);
    let memory: Vec<u64> = (1..3)
        .map(|value| ranks[value - 1].upload(&device, &[value as i32]))
        .collect();
    ranks.iter().for_each(Rank::synchronize);
    let mut executables = Vec::new();
    for (rank, &address) in ranks.iter().zip(&memory) {
        rank.enter();
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the emulator checks handles, and all pointers refer to local variables.
        unsafe {
            ok(sys::cuStreamBeginCapture_v2(rank.stream, mode));
            done(rank.all_reduce(address, 1));
            ok(sys::cuStreamEndCapture(rank.stream, &raw mut graph));
            ok(sys::cuGraphInstantiateWithFlags(
                &raw mut executable,
                graph,
                0,
            ));
        }
        executables.push(executable);
    }
    for _ in 0..2 {
        for (rank, &executable) in ranks.iter().zip(&executables) {
            rank.enter();
            // SAFETY: the emulator checks handles.
            ok(unsafe { sys::cuGraphLaunch(executable, rank.stream) });
        }
    }
    for (rank, &address) in ranks.iter().zip(&memory) {
        assert_eq!(rank.download::<i32>(address, 1), [6]);
    }
    destroy(&ranks);
}

#[test]
fn memory_of_the_library_is_memory_of_the_device() {
    let device = Device::new();
    let ranks = ranks(&device, 1);
    let (mut version, mut memory) = (0, null_mut());
    // SAFETY: all pointers refer to local variables. The text is NUL-terminated, and belongs to the
    // emulator.
    unsafe {
        done(nccl::ncclGetVersion(&raw mut version));
        assert_eq!(version / 100, 230);
        let text = CStr::from_ptr(nccl::ncclGetErrorString(Status::ncclInvalidUsage));
        assert_eq!(text.to_str(), Ok("invalid usage"));
        done(nccl::ncclMemAlloc(&raw mut memory, 4096));
        device.fill(memory as u64, 7, 1024, ranks[0].stream);
        done(ranks[0].all_reduce(memory as u64, 1024));
        assert_eq!(ranks[0].download::<i32>(memory as u64, 2), [7; 2]);
        done(nccl::ncclMemFree(memory));
    }
    assert_eq!(device.used(), 0);
    destroy(&ranks);
}
