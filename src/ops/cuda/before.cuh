// The sums of the parts of each line become those of all parts before: a block has a line, and each of its
// threads several parts, one after another. Elsewhere: `S`.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(S* totals, const u64 parts, const u64 lines) {
    __shared__ S room[CS_THREADS];
    const u64 each = (parts + CS_THREADS - 1) / CS_THREADS;
    const u64 begin = threadIdx.x * each < parts ? threadIdx.x * each : parts;
    const u64 end = begin + each < parts ? begin + each : parts;
    for (u64 line = blockIdx.x; line < lines; line += gridDim.x) {
        S* const own = totals + line * parts;
        S sum = cs_nothing();
        for (u64 part = begin; part < end; ++part) sum = cs_merge(sum, own[part]);
        // Of all up to each thread.
        for (u32 delta = 1; delta < CS_THREADS; delta *= 2) {
            __syncthreads();
            room[threadIdx.x] = sum;
            __syncthreads();
            if (threadIdx.x >= delta) sum = cs_merge(room[threadIdx.x - delta], sum);
        }
        __syncthreads();
        room[threadIdx.x] = sum;
        __syncthreads();
        S before = threadIdx.x > 0 ? room[threadIdx.x - 1] : cs_nothing();
        for (u64 part = begin; part < end; ++part) {
            const S next = cs_merge(before, own[part]);
            own[part] = before;
            before = next;
        }
        __syncthreads();
    }
}
