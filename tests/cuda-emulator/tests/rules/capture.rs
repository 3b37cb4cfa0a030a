//! A capture records work instead of running it, and forbids calls that cannot be recorded.

use std::ptr::null_mut;

use cudarc::driver::sys;

use crate::rules::device::{Code, Device, ok};

const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn begin(stream: sys::CUstream) {
    // SAFETY: the handle is the emulator's.
    ok(unsafe { sys::cuStreamBeginCapture_v2(stream, GLOBAL) });
}

fn end(stream: sys::CUstream) -> Result<sys::CUgraph, Code> {
    let mut graph = null_mut();
    // SAFETY: the pointer is to a variable for the result.
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
    // SAFETY: the handles are the emulator's.
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
    // SAFETY: the handles are the emulator's; the pointers are to variables for the results.
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
fn a_capture_spreads_along_events_and_must_be_joined() {
    let device = Device::new();
    let (a, b, event, back) = (
        device.stream(),
        device.stream(),
        device.event(),
        device.event(),
    );
    let memory = device.memory(16);
    // SAFETY: the handles are the emulator's.
    unsafe {
        // A wait from outside of the capture into it.
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
