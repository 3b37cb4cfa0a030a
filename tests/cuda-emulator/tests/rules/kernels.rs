//! Tests that kernels are compiled and run thread by thread, and that their faults are reported.

use cudarc::driver::sys;

use crate::rules::device::{Code, Device, compile, ok};

/// A kernel that sums 64-bit numbers per block, with shuffles and with static and dynamic shared
/// memory.
const SUMS: &str = r#"
struct Operands { const unsigned long long* values; unsigned long long count; };
__device__ __forceinline__ unsigned long long warp_sum(unsigned long long value) {
    #pragma unroll
    for (int distance = 16; distance; distance >>= 1) value += __shfl_down_sync(0xffffffffu, value, distance);
    return value;
}
extern "C" __global__ void __launch_bounds__(256) kernel(unsigned long long* sums, const unsigned long long* values,
                                                         unsigned long long count) {
    extern __shared__ unsigned long long dynamic[];
    __shared__ unsigned long long partial[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long value = i < count ? values[i] : 0;
    dynamic[threadIdx.x] = value;
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long sum = 0, again = 0;
        for (unsigned k = 0; k < blockDim.x / 32; ++k) sum += partial[k];
        for (unsigned k = 0; k < blockDim.x; ++k) again += dynamic[k];
        sums[blockIdx.x] = sum == again ? sum : ~0ull;
    }
}
"#;

#[test]
fn a_kernel_with_barriers_and_shuffles_sums() {
    let device = Device::new();
    let stream = device.stream();
    let (values, sums) = (device.memory(8 * 1000), device.memory(8 * 8));
    let numbers: Vec<u64> = (0..1000).map(|i| i * i).collect();
    // SAFETY: `values` and `numbers` have 8000 bytes each.
    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(values, numbers.as_ptr().cast(), 8000, stream) });
    let kernel = device.kernel(SUMS);
    let before = device.control.complaints();
    ok(device.launch(kernel, [8, 128, 8 * 128], &[sums, values, 1000], stream));
    let words = device.words(sums, 16, stream);
    for (block, pair) in words.chunks(2).enumerate() {
        let expected: u64 = numbers.iter().skip(128 * block).take(128).sum();
        assert_eq!(
            u64::from(pair[0]) | u64::from(pair[1]) << 32,
            expected,
            "block {block}"
        );
    }
    assert_eq!(device.control.complaints(), before);
}

/// Each block draws a ticket. The tickets reveal the order in which the blocks run.
#[test]
fn blocks_run_backwards_in_every_other_launch() {
    let device = Device::new();
    let stream = device.stream();
    let (drawn, tickets) = (device.memory(4 * 5), device.memory(4));
    let kernel = device.kernel(
        "extern \"C\" __global__ void kernel(unsigned* drawn, unsigned* tickets) {
            drawn[blockIdx.x] = atomicAdd(tickets, 1u);
        }",
    );
    let mut orders = [(); 2].map(|()| {
        device.fill(tickets, 0, 1, stream);
        ok(device.launch(kernel, [5, 1, 0], &[drawn, tickets], stream));
        device.words(drawn, 5, stream)
    });
    orders.sort();
    assert_eq!(orders, [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]);
}

/// A thread reads the target of two copies before it waits, after it waits for the first, and after
/// it waits for both. The second copy has eight bytes.
#[test]
fn a_copy_arrives_at_once_or_when_it_is_awaited() {
    let device = Device::new();
    let stream = device.stream();
    let (from, seen) = (device.memory(32), device.memory(4 * 8));
    let numbers: Vec<u32> = (1..9).collect();
    // SAFETY: `from` and `numbers` have 32 bytes each.
    ok(unsafe { sys::cuMemcpyHtoDAsync_v2(from, numbers.as_ptr().cast(), 32, stream) });
    let kernel = device.kernel(
        "extern \"C\" __global__ void kernel(const unsigned* from, unsigned* seen) {
            __shared__ __align__(16) unsigned to[8];
            for (int i = 0; i < 8; ++i) to[i] = 9;
            __syncthreads();
            __emulated_copy(to, from, 16);
            __emulated_end_copies();
            __emulated_copy(to + 4, from + 4, 8);
            __emulated_end_copies();
            seen[0] = to[0];
            seen[1] = to[4];
            __emulated_await_copies(1);
            seen[2] = to[0];
            seen[3] = to[4];
            __emulated_await_copies(0);
            for (int i = 0; i < 4; ++i) seen[4 + i] = to[4 + i];
        }",
    );
    let mut all = [(); 2].map(|()| {
        ok(device.launch(kernel, [1, 1, 0], &[from, seen], stream));
        device.words(seen, 8, stream)
    });
    all.sort();
    assert_eq!(all, [[1, 5, 1, 5, 5, 6, 0, 0], [9, 9, 1, 9, 5, 6, 0, 0]]);
    let apart = device.kernel(
        "extern \"C\" __global__ void kernel(const unsigned* from) {
            __shared__ __align__(16) unsigned to[8];
            __syncthreads();
            __emulated_copy(to, from + 1, 16);
        }",
    );
    let before = device.control.complaints();
    ok(device.launch(apart, [1, 1, 0], &[from], stream));
    // SAFETY: the stream is alive.
    let outcome = unsafe { sys::cuStreamSynchronize(stream) };
    assert_ne!(outcome, Code::CUDA_SUCCESS);
    assert!(device.control.complaints() > before);
}

#[test]
fn compiler_errors_are_reported() {
    let device = Device::new();
    let log =
        compile("extern \"C\" __global__ void kernel(float* a) { a[0] = nothing; }").unwrap_err();
    assert!(
        log.contains("test.cu:1") && log.contains("nothing"),
        "{log}"
    );
    let mut image = compile("extern \"C\" __global__ void kernel() {}").unwrap();
    device.load(&image).unwrap();
    let middle = image.len() / 2;
    image[middle] ^= 1;
    assert_eq!(device.load(&image), Err(Code::CUDA_ERROR_INVALID_IMAGE));
}
