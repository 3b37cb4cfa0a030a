// Running sums along lines, each of which is read and written at once. `CS_WAY` selects the threads
// that sum a line: 0, `lanes` threads of a warp; 1, a block; 2, one thread, for strided lines.
//
// The source that includes this file must define `T`, `element`, `Operands` and `index_t` of the
// expression; `S`, the type of intermediate sums, whose first member is a `W`; and `R`, the type of
// the result.

struct cs_scans {
    // The number of elements of a line, the distance between them, and the number of lines.
    u64 length, inner, lines;
    // The number of threads of a line.
    u64 lanes;
    // The number of tiles of a line, if there are several.
    u64 parts;
};

CS_FN S cs_state(T x) { return S{cs_cast<W>(x)}; }

// Returns to each of `width` adjacent threads the sum of all threads up to it.
CS_FN S cs_up_to(S sum, u32 width) {
    const u32 lane = threadIdx.x % width;
    for (u32 delta = 1; delta < width; delta *= 2) {
        const S before = cs_from_below(sum, delta, width);
        if (lane >= delta) sum = cs_merge(before, sum);
    }
    return sum;
}

#if CS_WAY == 0

#define CS_TOGETHER 4

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_scans scans, R* results) {
    const u32 lanes = (u32)scans.lanes, side = CS_THREADS / lanes;
    const u32 lane = threadIdx.x % lanes, place = threadIdx.x / lanes;
    const index_t length = (index_t)scans.length;
    for (u64 tile = blockIdx.x; tile * side < scans.lines; tile += gridDim.x) {
        const bool is_line = tile * side + place < scans.lines;
        const index_t start = is_line ? (index_t)(tile * side + place) * length : 0;
        const index_t end = is_line ? length : 0;
        S carry = cs_nothing();
        for (index_t first = 0; first < length; first += CS_TOGETHER * lanes) {
            T x[CS_TOGETHER];
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                const index_t at = first + k * lanes + lane;
                if (at < end) x[k] = element(operands, start + at);
            }
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                const index_t at = first + k * lanes + lane;
                const S sum = cs_merge(carry, cs_up_to(at < end ? cs_state(x[k]) : cs_nothing(), lanes));
                if (at < end) results[start + at] = cs_cast<R>(cs_value(sum));
                carry = cs_from(sum, lanes - 1, lanes);
            }
        }
    }
}

#elif CS_WAY == 1

#define CS_TOGETHER 8
#define CS_WARPS (CS_THREADS / 32)

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_scans scans, R* results) {
    // The sums of the elements that each warp reads at once, later the sums of all elements before
    // these.
    __shared__ S room[CS_TOGETHER * CS_WARPS];
    __shared__ S whole;
    static_assert(CS_TOGETHER * CS_WARPS == 64, "two sums for each thread of a warp");
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const index_t length = (index_t)scans.length;
    for (u64 line = blockIdx.x; line < scans.lines; line += gridDim.x) {
        const index_t start = (index_t)line * length;
        S carry = cs_nothing();
        for (index_t first = 0; first < length; first += CS_TOGETHER * CS_THREADS) {
            T x[CS_TOGETHER];
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                const index_t at = first + k * CS_THREADS + thread;
                if (at < length) x[k] = element(operands, start + at);
            }
            S sums[CS_TOGETHER];
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                const index_t at = first + k * CS_THREADS + thread;
                sums[k] = cs_up_to(at < length ? cs_state(x[k]) : cs_nothing(), 32);
                if (lane == 31) room[k * CS_WARPS + warp] = sums[k];
            }
            __syncthreads();
            if (warp == 0) {
                const S one = room[2 * lane], other = room[2 * lane + 1];
                const S both = cs_up_to(cs_merge(one, other), 32);
                S before = cs_from_below(both, 1, 32);
                if (lane == 0) before = cs_nothing();
                if (lane == 31) whole = both;
                room[2 * lane] = before;
                room[2 * lane + 1] = cs_merge(before, one);
            }
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                const index_t at = first + k * CS_THREADS + thread;
                const S before = cs_merge(carry, room[k * CS_WARPS + warp]);
                if (at < length) results[start + at] = cs_cast<R>(cs_value(cs_merge(before, sums[k])));
            }
            carry = cs_merge(carry, whole);
            __syncthreads();
        }
    }
}

#elif CS_WAY == 2

#define CS_TOGETHER 8

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_scans scans, R* results) {
    const index_t inner = (index_t)scans.inner, length = (index_t)scans.length;
    const u64 step = (u64)gridDim.x * CS_THREADS;
    for (u64 line = (u64)blockIdx.x * CS_THREADS + threadIdx.x; line < scans.lines; line += step) {
        const index_t number = (index_t)line;
        const index_t start = number / inner * (length * inner) + number % inner;
        S carry = cs_nothing();
        for (index_t first = 0; first < length; first += CS_TOGETHER) {
            T x[CS_TOGETHER];
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                if (first + k < length) x[k] = element(operands, start + (first + k) * inner);
            }
#pragma unroll
            for (u32 k = 0; k < CS_TOGETHER; ++k) {
                if (first + k < length) {
                    carry = cs_merge(carry, cs_state(x[k]));
                    results[start + (first + k) * inner] = cs_cast<R>(cs_value(carry));
                }
            }
        }
    }
}

#endif
