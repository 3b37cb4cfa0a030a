// Softmax and its logarithm of lines that fit a block's own memory: `lanes` threads have a line each, and
// read and write it once. `CS_LOG` says whether the logarithm is wanted.
//
// Elsewhere: `T`, `I`, `element`, `Operands` and `index_t` of the expression, and `A`, what it is
// computed in.

struct cs_lines {
    u64 length, lines, lanes;
};

// The larger; NaN where either is.
CS_FN A cs_larger(A a, A b) { return b > a || b != b ? b : a; }

// Of all `lanes` threads of a line, for each of them. `room` has a place a warp.
CS_FN A cs_largest_of(A value, u32 lanes, A* room) {
    const u32 width = lanes < 32 ? lanes : 32;
    for (u32 apart = width / 2; apart > 0; apart /= 2) {
        value = cs_larger(value, cs_across(value, apart, width));
    }
    if (lanes <= 32) return value;
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[0];
    for (u32 warp = 1; warp < CS_THREADS / 32; ++warp) value = cs_larger(value, room[warp]);
    return value;
}

CS_FN f64 cs_sum_of_all(f64 value, u32 lanes, f64* room) {
    const u32 width = lanes < 32 ? lanes : 32;
    for (u32 apart = width / 2; apart > 0; apart /= 2) {
        value += cs_across(value, apart, width);
    }
    if (lanes <= 32) return value;
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    value = room[0];
    for (u32 warp = 1; warp < CS_THREADS / 32; ++warp) value += room[warp];
    return value;
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_lines all, I* results) {
    // Each thread reads only what it wrote itself.
    extern __shared__ f64 cs_shared[];
    __shared__ A most_room[CS_THREADS / 32];
    __shared__ f64 sum_room[CS_THREADS / 32];
    const u32 lanes = (u32)all.lanes, side = CS_THREADS / lanes;
    const u32 lane = threadIdx.x % lanes, place = threadIdx.x / lanes;
    const index_t length = (index_t)all.length;
    A* const own = (A*)cs_shared + (u64)place * length;
    for (u64 tile = blockIdx.x; tile * side < all.lines; tile += gridDim.x) {
        const bool is_line = tile * side + place < all.lines;
        const index_t start = is_line ? (index_t)(tile * side + place) * length : 0;
        const index_t end = is_line ? length : 0;
        A most = -(A)cs_bits<f32>(0x7f800000u);
        for (index_t at = lane; at < end; at += 4 * lanes) {
            A x[4];
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                if (at + k * lanes < end) x[k] = (A)element(operands, start + at + k * lanes);
            }
#pragma unroll
            for (u32 k = 0; k < 4; ++k) {
                if (at + k * lanes < end) {
                    own[at + k * lanes] = x[k];
                    most = cs_larger(most, x[k]);
                }
            }
        }
        most = cs_largest_of(most, lanes, most_room);
        A sum = 0;
        for (index_t at = lane; at < end; at += lanes) {
            const A exponential = exp(own[at] - most);
#if !CS_LOG
            own[at] = exponential;
#endif
            sum += exponential;
        }
        const f64 total = cs_sum_of_all((f64)sum, lanes, sum_room);
#if CS_LOG
        const A divisor = (A)log(total);
#else
        const A divisor = (A)total;
#endif
        for (index_t at = lane; at < end; at += lanes) {
#if CS_LOG
            cs_store(results + start + at, own[at] - most - divisor);
#else
            cs_store(results + start + at, own[at] / divisor);
#endif
        }
    }
}
