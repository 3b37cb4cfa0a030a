//! Tests of reports of kernel faults, and of injected failures.

use cudarc::driver::sys;

use crate::rules::device::{Code, Device, ok};

/// Runs a kernel with a pointer argument on a new device, on two blocks of 64 threads. Returns the
/// error of the subsequent wait, and the report.
fn outcome(body: &str) -> (Code, String) {
    let device = Device::new();
    let (stream, memory) = (device.stream(), device.memory(1 << 16));
    device.fill(memory, 0, 1 << 14, stream);
    let text =
        format!("extern \"C\" __global__ void kernel(int* a) {{ int i = threadIdx.x; {body} }}");
    let kernel = device.kernel(&text);
    ok(device.launch(kernel, [2, 64, 256], &[memory], stream));
    let before = device.control.complaints();
    let code = device.synchronize(stream);
    let said = device.control.complaints() > before;
    (
        code,
        if said {
            device.control.last_complaint()
        } else {
            String::new()
        },
    )
}

#[track_caller]
fn fails(body: &str, code: Code, said: &str) {
    let (found, text) = outcome(body);
    assert_eq!(found, code, "{text}");
    assert!(text.contains(said), "{text}");
}

#[test]
fn a_barrier_that_not_all_threads_reach_is_an_error() {
    fails(
        "if (i != 5) __syncthreads();",
        Code::CUDA_ERROR_LAUNCH_FAILED,
        "not all threads reach",
    );
    fails(
        "if (i == 5) return; __syncthreads(); a[i] = 1;",
        Code::CUDA_ERROR_LAUNCH_FAILED,
        "some have ended",
    );
    let shuffle = "if (i < 8) a[i] = __shfl_xor_sync(0xffffffffu, i, 1);";
    fails(
        shuffle,
        Code::CUDA_ERROR_LAUNCH_FAILED,
        "not all threads reach",
    );
    fails(
        "a[i] = __ballot_sync(1u, 1);",
        Code::CUDA_ERROR_LAUNCH_FAILED,
        "not in the mask",
    );
}

#[test]
fn faults_of_kernels_are_reported_with_the_thread() {
    let thread = "thread (3, 0, 0)";
    fails(
        "if (i == 3) a[1 << 20] = 1;",
        Code::CUDA_ERROR_ILLEGAL_ADDRESS,
        thread,
    );
    fails(
        "if (i == 3) *(long long*)(a + 1) = 1;",
        Code::CUDA_ERROR_MISALIGNED_ADDRESS,
        thread,
    );
    fails(
        "if (i == 3) a[0] = 100 / a[i];",
        Code::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        thread,
    );
    let behind = "extern __shared__ int s[]; s[i + 1] = i; __syncthreads(); a[i] = s[i];";
    fails(
        behind,
        Code::CUDA_ERROR_LAUNCH_FAILED,
        "behind its shared memory",
    );
    let within = "extern __shared__ int s[]; s[i] = i; __syncthreads(); a[i] = s[63 - i];";
    assert_eq!(outcome(within), (Code::CUDA_SUCCESS, String::new()));
}

/// A kernel reads a neighbour's value without a barrier. In one of two launches, it must read an
/// invalid value, for each neighbour.
#[test]
fn a_missing_barrier_shows() {
    for (step, end) in [(1, 63), (-1, 0)] {
        for (barrier, right) in [("__syncthreads();", true), ("", false)] {
            let text = format!(
                "extern \"C\" __global__ void kernel(int* a) {{ __shared__ int s[64]; int i = threadIdx.x; \
                 s[i] = i; {barrier} a[i] = i == {end} ? i : s[i + {step}]; __syncthreads(); }}"
            );
            let device = Device::new();
            let (stream, memory) = (device.stream(), device.memory(256));
            let kernel = device.kernel(&text);
            let neighbour = |i: i32| if i == end { i } else { i + step };
            let expected: Vec<u32> = (0..64).map(|i| neighbour(i) as u32).collect();
            let all_right = (0..2).all(|_| {
                ok(device.launch(kernel, [1, 64, 0], &[memory], stream));
                device.words(memory, 64, stream) == expected
            });
            assert_eq!(all_right, right, "{step}, {barrier:?}");
        }
    }
}

#[test]
fn any_call_fails_by_its_number_or_its_name() {
    let device = Device::new();
    let control = &device.control;
    let (calls, failed) = (control.calls(), control.failed());
    let allocations = control.report().allocations;
    let (mut address, mut free, mut total) = (0, 0, 0);
    // SAFETY: `address`, `free` and `total` are writable.
    unsafe {
        control.fail_call(2, 999);
        ok(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total));
        let second = sys::cuMemGetInfo_v2(&raw mut free, &raw mut total);
        assert_eq!(second, Code::CUDA_ERROR_UNKNOWN);
        ok(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total));
        control.fail_named("cuMemAlloc_v2", 1, 2);
        ok(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total));
        let named = sys::cuMemAlloc_v2(&raw mut address, 1);
        assert_eq!(named, Code::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(control.report().allocations, allocations);
        ok(sys::cuMemAlloc_v2(&raw mut address, 1));
    }
    assert_eq!((control.calls(), control.failed()), (calls + 6, failed + 2));
    assert_eq!(control.report().allocations, allocations + 1);
    // SAFETY: `address` is an allocation of the emulator, and is freed once.
    ok(unsafe { sys::cuMemFree_v2(address) });
    assert_eq!(control.report().allocations, allocations);
}
