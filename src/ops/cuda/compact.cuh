// Copies, contiguously, the elements at which flags are true, or writes the positions of these
// elements. `sums` has the running sums of the flags.

#if CS_ROWS
// Writes the indices along the axes for each flag that is true.
struct cs_shape {
    u64 rank;
    u64 dims[8];
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const bool* __restrict__ flags, const i64* __restrict__ sums, i64* __restrict__ to, const cs_shape shape,
       const u64 count) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 number = (u64)blockIdx.x * blockDim.x + threadIdx.x; number < count; number += step) {
        if (!flags[number]) continue;
        i64* const row = to + (sums[number] - 1) * (i64)shape.rank;
        u64 rest = number;
        for (u64 axis = shape.rank; axis-- > 0;) {
            row[axis] = (i64)(rest % shape.dims[axis]);
            rest /= shape.dims[axis];
        }
    }
}

#else

extern "C" __global__ void __launch_bounds__(256)
kernel(const bool* __restrict__ flags, const i64* __restrict__ sums, const word_t* __restrict__ from,
       word_t* __restrict__ to, const u64 count) {
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 number = (u64)blockIdx.x * blockDim.x + threadIdx.x; number < count; number += step) {
        if (flags[number]) to[sums[number] - 1] = from[number];
    }
}

#endif
