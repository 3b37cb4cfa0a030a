// What a compiled kernel and the driver know of each other. Both include this.
#pragma once

struct EmulatedIndex {
    unsigned x, y, z;
};

// Of one `__global__` function.
struct KernelEntry {
    // Calls it for the threads `first..last` of the current block.
    void (*run)(void** parameters, unsigned first, unsigned last);
    const unsigned* sizes;  // of its parameters, in bytes
    unsigned count;
};

// Of the library that a program was compiled to.
struct KernelModule {
    EmulatedIndex* thread;
    EmulatedIndex* block;
    EmulatedIndex* block_dim;
    EmulatedIndex* grid_dim;
    unsigned char* shared;   // `__shared__` variables
    unsigned char* shared_end;
    unsigned char* dynamic;  // `extern __shared__` memory
    unsigned dynamic_bytes;
};

// What kernels read and write of the device, where they were compiled to count it.
struct EmulatedTraffic {
    unsigned long long begin, end;  // the device's addresses
    unsigned long long bytes;
};

enum ExchangeKind { SHUFFLE, BALLOT, MATCH_WARP };

// What only kernels with barriers use: its mention in a library says that it needs fibers.
extern "C" void emulator_barrier();
extern "C" int emulator_barrier_reduce(int value, int kind);  // 0: count, 1: and, 2: or
extern "C" unsigned long long emulator_exchange(int kind, unsigned mask, unsigned long long value,
                                                unsigned source);

// Asynchronous copies of a thread: 16 bytes, of which the first `bytes` come from global memory.
extern "C" void emulator_copy(void* to, const void* from, unsigned bytes);
extern "C" void emulator_end_copies();
extern "C" void emulator_await_copies(unsigned later);
