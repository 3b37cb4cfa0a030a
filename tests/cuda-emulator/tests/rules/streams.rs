//! Tests of streams, which run their work as late as the rules allow.

use std::ptr::null_mut;

use cudarc::driver::sys;

use crate::rules::device::{Code, Device, ok};

const N: usize = 1000;

#[test]
fn runs_nothing_before_a_wait() {
    let device = Device::new();
    let (a, b) = (device.stream(), device.stream());
    let (source, target) = (device.memory(4 * N), device.memory(4 * N));
    device.fill(source, 7, N, a);
    assert_eq!(device.control.report().pending, 1);
    // Without a wait, the other stream reads the memory before it is written.
    device.copy(target, source, N, b);
    assert!(
        device
            .words(target, N, b)
            .iter()
            .all(|word| *word == 0xA5A5_A5A5)
    );
    assert_eq!(device.words(source, N, a), [7; N]);
    assert_eq!(device.control.report().pending, 0);
}

#[test]
fn a_wait_for_an_event_orders_streams() {
    let device = Device::new();
    let (a, b, event) = (device.stream(), device.stream(), device.event());
    let (source, target) = (device.memory(4 * N), device.memory(4 * N));
    device.fill(source, 7, N, a);
    // SAFETY: the event and the streams are from the emulator.
    unsafe {
        ok(sys::cuEventRecord(event, a));
        device.fill(source, 9, N, a);
        ok(sys::cuStreamWaitEvent(b, event, 0));
        // Later work on the stream, a later recording of the event, and its destruction do not
        // affect the wait.
        ok(sys::cuEventRecord(event, a));
        ok(sys::cuEventDestroy_v2(event));
    }
    device.copy(target, source, N, b);
    assert_eq!(device.words(target, N, b), [7; N]);
    assert_eq!(device.words(source, N, a), [9; N]);
}

#[test]
fn polling_ends() {
    let device = Device::new();
    let (stream, event) = (device.stream(), device.event());
    let memory = device.memory(4 * N);
    device.fill(memory, 7, N, stream);
    // SAFETY: the event and the stream are from the emulator.
    unsafe {
        ok(sys::cuEventRecord(event, stream));
        assert_eq!(sys::cuEventQuery(event), Code::CUDA_ERROR_NOT_READY);
        let polls = (0..100)
            .take_while(|_| sys::cuEventQuery(event) != Code::CUDA_SUCCESS)
            .count();
        assert!(polls < 100);
        ok(sys::cuStreamQuery(stream));
        ok(sys::cuEventDestroy_v2(event));
        assert_eq!(sys::cuEventQuery(event), Code::CUDA_ERROR_INVALID_HANDLE);
        ok(sys::cuStreamDestroy_v2(stream));
        assert_eq!(device.synchronize(stream), Code::CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn pinned_memory_is_read_when_the_copy_runs_and_pageable_memory_at_once() {
    let device = Device::new();
    let stream = device.stream();
    let (first, second) = (device.memory(4 * N), device.memory(4 * N));
    let mut pinned = null_mut();
    // SAFETY: the two sources have 4 × `N` bytes each.
    unsafe {
        ok(sys::cuMemHostAlloc(&raw mut pinned, 4 * N, 0));
        let pinned = std::slice::from_raw_parts_mut(pinned.cast::<u32>(), N);
        pinned.fill(1);
        let mut pageable = vec![2u32; N];
        ok(sys::cuMemcpyHtoDAsync_v2(
            first,
            pinned.as_ptr().cast(),
            4 * N,
            stream,
        ));
        ok(sys::cuMemcpyHtoDAsync_v2(
            second,
            pageable.as_ptr().cast(),
            4 * N,
            stream,
        ));
        pinned.fill(3);
        pageable.fill(4);
        drop(pageable);
        assert_eq!(device.words(first, N, stream), [3; N]);
        assert_eq!(device.words(second, N, stream), [2; N]);
    }
    // SAFETY: `pinned` is an allocation of the emulator, and is not read any more.
    ok(unsafe { sys::cuMemFreeHost(pinned) });
}
