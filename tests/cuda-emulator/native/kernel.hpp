// What CUDA C++ has built in, for a compiler that knows nothing of it. No standard header: each kernel
// pays for what stands here, and NVRTC offers none either.
#pragma once

#include "abi.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __CUDACC__ 1

typedef decltype(sizeof 0) size_t;

#define EMULATED_VECTOR(T, name, align)                                            \
    struct alignas(align) name##2 { T x, y; };                                     \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }
#define EMULATED_VECTOR4(T, name, align)                                           \
    struct alignas(align) name##4 { T x, y, z, w; };                               \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTOR(float, float, 8)
EMULATED_VECTOR4(float, float, 16)
EMULATED_VECTOR(double, double, 16)
EMULATED_VECTOR4(double, double, 16)
EMULATED_VECTOR(int, int, 8)
EMULATED_VECTOR4(int, int, 16)
EMULATED_VECTOR(unsigned, uint, 8)
EMULATED_VECTOR4(unsigned, uint, 16)
EMULATED_VECTOR(long long, longlong, 16)
EMULATED_VECTOR4(long long, longlong, 16)
EMULATED_VECTOR(unsigned long long, ulonglong, 16)
EMULATED_VECTOR4(unsigned long long, ulonglong, 16)
EMULATED_VECTOR(short, short, 4)
EMULATED_VECTOR4(short, short, 8)
EMULATED_VECTOR(unsigned short, ushort, 4)
EMULATED_VECTOR4(unsigned short, ushort, 8)
EMULATED_VECTOR(signed char, char, 2)
EMULATED_VECTOR4(signed char, char, 4)
EMULATED_VECTOR(unsigned char, uchar, 2)
EMULATED_VECTOR4(unsigned char, uchar, 4)
struct uint3 { unsigned x, y, z; };
struct int3 { int x, y, z; };
struct float3 { float x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// In a section of their own, because what is zero at first is taken for shared memory.
#define EMULATED_INDEX static EmulatedIndex __attribute__((section(".emulated_index"), used))
EMULATED_INDEX threadIdx = {0, 0, 0};
EMULATED_INDEX blockIdx = {0, 0, 0};
EMULATED_INDEX blockDim = {1, 1, 1};
EMULATED_INDEX gridDim = {1, 1, 1};
static const int warpSize = 32;

#ifdef EMULATED_TRAFFIC
// The compiler calls these before each access, as it does for ThreadSanitizer.
extern "C" {
__attribute__((section(".emulated_index"), visibility("default"), used)) EmulatedTraffic emulator_traffic = {0, 0, 0};
#define EMULATED_ACCESS __attribute__((no_sanitize("thread"), used)) void
EMULATED_ACCESS __tsan_read_range(void* address, unsigned long bytes) {
    unsigned long long at = (unsigned long long)address;
    if (at >= emulator_traffic.begin && at < emulator_traffic.end) emulator_traffic.bytes += bytes;
}
EMULATED_ACCESS __tsan_write_range(void* address, unsigned long bytes) { __tsan_read_range(address, bytes); }
#define EMULATED_ACCESSES(bytes)                                                                 \
    EMULATED_ACCESS __tsan_read##bytes(void* address) { __tsan_read_range(address, bytes); }     \
    EMULATED_ACCESS __tsan_write##bytes(void* address) { __tsan_read_range(address, bytes); }
EMULATED_ACCESSES(1)
EMULATED_ACCESSES(2)
EMULATED_ACCESSES(4)
EMULATED_ACCESSES(8)
EMULATED_ACCESSES(16)
EMULATED_ACCESS __tsan_unaligned_read2(void* address) { __tsan_read_range(address, 2); }
EMULATED_ACCESS __tsan_unaligned_write2(void* address) { __tsan_read_range(address, 2); }
EMULATED_ACCESS __tsan_unaligned_read4(void* address) { __tsan_read_range(address, 4); }
EMULATED_ACCESS __tsan_unaligned_write4(void* address) { __tsan_read_range(address, 4); }
EMULATED_ACCESS __tsan_unaligned_read8(void* address) { __tsan_read_range(address, 8); }
EMULATED_ACCESS __tsan_unaligned_write8(void* address) { __tsan_read_range(address, 8); }
EMULATED_ACCESS __tsan_unaligned_read16(void* address) { __tsan_read_range(address, 16); }
EMULATED_ACCESS __tsan_unaligned_write16(void* address) { __tsan_read_range(address, 16); }
EMULATED_ACCESS __tsan_init() {}
}
#endif

inline void __syncthreads() { emulator_barrier(); }
inline int __syncthreads_count(int value) { return emulator_barrier_reduce(value, 0); }
inline int __syncthreads_and(int value) { return emulator_barrier_reduce(value, 1); }
inline int __syncthreads_or(int value) { return emulator_barrier_reduce(value, 2); }
inline void __syncwarp(unsigned mask = 0xffffffff) { emulator_exchange(BALLOT, mask, 0, 0); }
inline void __threadfence() { __asm__ volatile("" ::: "memory"); }
inline void __threadfence_block() { __asm__ volatile("" ::: "memory"); }
inline void __threadfence_system() { __asm__ volatile("" ::: "memory"); }

inline unsigned __ballot_sync(unsigned mask, int value) { return (unsigned)emulator_exchange(BALLOT, mask, value != 0, 0); }
inline int __any_sync(unsigned mask, int value) { return __ballot_sync(mask, value) != 0; }
inline int __all_sync(unsigned mask, int value) { return __ballot_sync(mask, value) == mask; }
inline unsigned __emulated_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
// A fiber runs alone, so the lanes that are here are not known: only its own is certain.
inline unsigned __activemask() { return 1u << __emulated_lane(); }

template <class T>
inline T __emulated_shuffle(unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 64 bits");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = emulator_exchange(SHUFFLE, mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    unsigned lane = __emulated_lane();
    return __emulated_shuffle(mask, value, (lane & ~(width - 1u)) + ((unsigned)source & (width - 1u)));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned lane = __emulated_lane(), inside = lane & (width - 1u);
    return __emulated_shuffle(mask, value, inside >= delta ? lane - delta : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned lane = __emulated_lane(), inside = lane & (width - 1u);
    return __emulated_shuffle(mask, value, inside + delta < (unsigned)width ? lane + delta : lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    unsigned lane = __emulated_lane(), source = lane ^ (unsigned)bits;
    return __emulated_shuffle(mask, value, (source & ~(width - 1u)) <= (lane & ~(width - 1u)) ? source : lane);
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return (unsigned)emulator_exchange(MATCH_WARP, mask, bits, 0);
}

// Returns what each lane of the warp passed, until the next call. All lanes must call it.
template <class T>
inline const T* __emulated_gather(const T& own) {
    // Lanes may still read what they got from the last call, so two rooms alternate.
    static T rooms[2][32][32];
    static unsigned char calls[1024];
    unsigned thread = threadIdx.x, parity = ++calls[thread] & 1;
    T* room = rooms[parity][thread / 32];
    __builtin_memcpy(&room[thread % 32], &own, sizeof(T));
    __syncwarp();
    return room;
}
inline void __emulated_copy(void* to, const void* from, unsigned bytes) { emulator_copy(to, from, bytes); }
inline void __emulated_end_copies() { emulator_end_copies(); }
inline void __emulated_await_copies(unsigned later) { emulator_await_copies(later); }

// One fiber runs at a time, so plain code is atomic.
#define EMULATED_ATOMIC(name, expression)                    \
    template <class T>                                       \
    inline T name(T* address, decltype(T() + T()) operand) { \
        T old = *address, value = (T)operand;                \
        (void)value;                                         \
        *address = expression;                               \
        return old;                                          \
    }
EMULATED_ATOMIC(atomicAdd, old + value)
EMULATED_ATOMIC(atomicSub, old - value)
EMULATED_ATOMIC(atomicMin, value < old ? value : old)
EMULATED_ATOMIC(atomicMax, value > old ? value : old)
EMULATED_ATOMIC(atomicAnd, old & value)
EMULATED_ATOMIC(atomicOr, old | value)
EMULATED_ATOMIC(atomicXor, old ^ value)
EMULATED_ATOMIC(atomicExch, value)
template <class T>
inline T atomicCAS(T* address, decltype(T() + T()) expected, decltype(T() + T()) value) {
    T old = *address;
    if (old == (T)expected) *address = (T)value;
    return old;
}

template <class T>
inline T __ldg(const T* address) { return *address; }
template <class T>
inline T __ldcs(const T* address) { return *address; }
template <class T>
inline T __ldcg(const T* address) { return *address; }
template <class T>
inline void __stcs(T* address, T value) { *address = value; }

inline long long clock64() { return 0; }
[[noreturn]] inline void __trap() { __builtin_trap(); }

#include "math.hpp"

// What NVRTC appends to a program: the table that the driver reads, and an entry for each kernel.
extern "C" unsigned char __bss_start[] __attribute__((visibility("hidden")));
extern "C" unsigned char _end[] __attribute__((visibility("hidden")));

#define EMULATED_MODULE(dynamic, bytes)                                                                       \
    extern "C" __attribute__((visibility("default"))) const KernelModule emulator_module = {                  \
        &threadIdx, &blockIdx, &blockDim, &gridDim, __bss_start, _end, dynamic, bytes};
// 163 KiB and what the fence behind them takes.
#define EMULATED_DYNAMIC_MODULE                                                                               \
    asm(".pushsection .emulated_dynamic,\"aw\",@nobits\n.balign 64\nemulator_dynamic:\n.zero 167936\n.popsection"); \
    extern "C" unsigned char emulator_dynamic[] __attribute__((visibility("hidden")));                        \
    EMULATED_MODULE(emulator_dynamic, 166912)

template <class... P>
struct EmulatedKernel;
template <class P>
struct EmulatedParameter {
    static P& of(void* pointer) { return *static_cast<P*>(pointer); }
};
template <unsigned... I>
struct EmulatedIndices {};
template <unsigned N, unsigned... I>
struct EmulatedCount : EmulatedCount<N - 1, N - 1, I...> {};
template <unsigned... I>
struct EmulatedCount<0, I...> {
    typedef EmulatedIndices<I...> Type;
};

template <class... P>
struct EmulatedKernel<void(P...)> {
    static constexpr unsigned count = sizeof...(P);
    static constexpr unsigned sizes[count + 1] = {(unsigned)sizeof(P)..., 0};
    template <void (*kernel)(P...), unsigned... I>
    static void run(void** parameters, unsigned first, unsigned last, EmulatedIndices<I...>) {
        unsigned x = blockDim.x, y = blockDim.y;
        EmulatedIndex at = {first % x, first / x % y, first / x / y};
        for (unsigned i = first; i < last; ++i) {
            threadIdx = at;
            kernel(EmulatedParameter<P>::of(parameters[I])...);
            if (++at.x == x) {
                at.x = 0;
                if (++at.y == y) at.y = 0, ++at.z;
            }
        }
    }
};

#define EMULATED_KERNEL(name)                                                                       \
    static void emulator_run_##name(void** parameters, unsigned first, unsigned last) {             \
        typedef EmulatedKernel<decltype(name)> Kernel;                                              \
        Kernel::run<&name>(parameters, first, last, EmulatedCount<Kernel::count>::Type());          \
    }                                                                                               \
    extern "C" __attribute__((visibility("default"))) const KernelEntry emulator_entry_##name = {   \
        emulator_run_##name, EmulatedKernel<decltype(name)>::sizes, EmulatedKernel<decltype(name)>::count};
