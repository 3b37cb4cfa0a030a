//! Tests of captures. A capture records work instead of running it, and refuses calls that cannot
//! be recorded.

use std::ptr::null_mut;

use cudarc::cublas::sys as cublas;
use cudarc::cufft::sys::cufftResult;
use cudarc::driver::sys;

use super::transforms;
use crate::rules::device::{Code, Device, enter, ok};

const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn begin(stream: sys::CUstream) {
    // SAFETY: `stream` is a stream of the emulator.
    ok(unsafe { sys::cuStreamBeginCapture_v2(stream, GLOBAL) });
}

fn end(stream: sys::CUstream) -> Result<sys::CUgraph, Code> {
    let mut graph = null_mut();
    // SAFETY: `graph` is writable, and `stream` is a stream of the emulator.
    match unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) } {
        Code::CUDA_SUCCESS => Ok(graph),
        code => Err(code),
    }
}

#[test]
fn a_graph_repeats_what_was_recorded() {
    let device = Device::new();
    let stream = device.stream();
    let (source, target) = (device.memory(16), device.memory(16));
    device.fill(source, 1, 4, stream);
    begin(stream);
    device.copy(target, source, 4, stream);
    device.fill(source, 9, 4, stream);
    let graph = end(stream).unwrap();
    assert_eq!(device.words(source, 1, stream), [1]);
    // SAFETY: all handles are from the emulator, and all pointers refer to local variables.
    unsafe {
        let (mut executable, mut nodes) = (null_mut(), 0);
        ok(sys::cuGraphGetNodes(graph, null_mut(), &raw mut nodes));
        assert_eq!(nodes, 2);
        ok(sys::cuGraphInstantiateWithFlags(
            &raw mut executable,
            graph,
            0,
        ));
        ok(sys::cuGraphDestroy(graph));
        for expected in [1, 9, 9] {
            ok(sys::cuGraphLaunch(executable, stream));
            assert_eq!(device.words(target, 4, stream), [expected; 4]);
        }
        ok(sys::cuGraphExecDestroy(executable));
    }
    let report = device.control.report();
    assert_eq!((report.graphs, report.executables), (0, 0));
}

#[test]
fn what_cannot_be_recorded_ends_the_capture() {
    let device = Device::new();
    let (stream, event) = (device.stream(), device.event());
    let mut address = 0;
    // SAFETY: all handles are from the emulator, and all pointers refer to local variables.
    let calls: [&mut dyn FnMut() -> Code; 4] = unsafe {
        [
            &mut || sys::cuMemAlloc_v2(&raw mut address, 16),
            &mut || sys::cuEventQuery(event),
            &mut || device.synchronize(stream),
            &mut || sys::cuCtxSynchronize(),
        ]
    };
    for call in calls {
        begin(stream);
        assert_eq!(call(), Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(
            end(stream),
            Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        );
        ok(device.synchronize(stream));
    }
}

#[test]
fn a_wait_for_the_context_ends_a_relaxed_capture_of_another_thread() {
    let device = Device::new();
    let (stream, ordinal) = (device.stream(), device.ordinal);
    let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let calls: [(bool, fn()); 4] = [
        (true, || {
            // SAFETY: a context is current on this thread.
            let waited = unsafe { sys::cuCtxSynchronize() };
            assert_eq!(waited, Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }),
        (true, || {
            let mut handle = null_mut();
            // SAFETY: `handle` is writable, and is destroyed once.
            let destroyed = unsafe {
                cublas::cublasCreate_v2(&raw mut handle);
                cublas::cublasDestroy_v2(handle)
            };
            assert_eq!(destroyed, cublas::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        }),
        (true, || {
            let failure = transforms::make_plan(131).unwrap_err();
            assert_eq!(failure, cufftResult::CUFFT_INTERNAL_ERROR);
        }),
        (false, || transforms::make_plan(120).unwrap()),
    ];
    for (ends, call) in calls {
        // SAFETY: `stream` is a stream of the emulator.
        ok(unsafe { sys::cuStreamBeginCapture_v2(stream, relaxed) });
        let beside = std::thread::spawn(move || {
            enter(ordinal);
            call();
        });
        beside.join().unwrap();
        let ended = end(stream);
        assert_eq!(ended.is_err(), ends, "{ended:?}");
        if let Ok(graph) = ended {
            // SAFETY: `graph` is a graph of the emulator, and is destroyed once.
            ok(unsafe { sys::cuGraphDestroy(graph) });
        }
    }
}

#[test]
fn a_capture_spreads_along_events_and_must_be_joined() {
    let device = Device::new();
    let (a, b, event, back) = (
        device.stream(),
        device.stream(),
        device.event(),
        device.event(),
    );
    let memory = device.memory(16);
    // SAFETY: all handles are from the emulator.
    unsafe {
        // The wait in the capture refers to an event outside of the capture.
        ok(sys::cuEventRecord(event, b));
        begin(a);
        let waited = sys::cuStreamWaitEvent(a, event, 0);
        assert_eq!(waited, Code::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(end(a), Err(Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        for joins in [false, true] {
            begin(a);
            ok(sys::cuEventRecord(event, a));
            ok(sys::cuStreamWaitEvent(b, event, 0));
            device.fill(memory, 3, 4, b);
            if joins {
                ok(sys::cuEventRecord(back, b));
                ok(sys::cuStreamWaitEvent(a, back, 0));
            }
            match end(a) {
                Ok(graph) => {
                    assert!(joins);
                    ok(sys::cuGraphDestroy(graph));
                }
                Err(code) => {
                    assert!(!joins);
                    assert_eq!(code, Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
                }
            }
            ok(device.synchronize(b));
        }
    }
}
