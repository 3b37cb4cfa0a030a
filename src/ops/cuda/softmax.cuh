// Softmax and its logarithm of lines that fit shared memory: `lanes` threads process a line, and
// read and write it once. `CS_LOG` selects the logarithm. With `CS_PACKED`, lines are whole packs,
// which are read and written at once.
//
// Defined by the including text: `T`, `I`, `element`, `Operands` and `index_t` of the expression,
// and `A`, the type of the computation.

struct cs_lines {
    u64 length, lines, lanes;
};

// Returns the larger; NaN if either is NaN.
CS_FN A cs_larger(A a, A b) { return b > a || b != b ? b : a; }

// Returns the largest value of all `lanes` threads of a line, to each of them. `room` has an
// element for each warp.
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

#if CS_PACKED
#define CS_UNIT CS_WIDTH
#else
#define CS_UNIT 1
#endif
// The units that a thread loads before it needs the first.
#define CS_UNITS (CS_UNIT < 8 ? (CS_UNIT < 4 ? 4 : 2) : 1)

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_lines all, I* results) {
    // Each thread reads only what it wrote itself.
    extern __shared__ f64 cs_shared[];
    __shared__ A most_room[CS_THREADS / 32];
    __shared__ f64 sum_room[CS_THREADS / 32];
    const u32 lanes = (u32)all.lanes, side = CS_THREADS / lanes;
    const u32 lane = threadIdx.x % lanes, place = threadIdx.x / lanes;
    const index_t length = (index_t)all.length;
    // The first elements of all units, then the second ones, so that adjacent threads access
    // different banks.
    A* const own = (A*)cs_shared + (u64)place * length;
    const index_t units = length / CS_UNIT;
    for (u64 tile = blockIdx.x; tile * side < all.lines; tile += gridDim.x) {
        const bool is_line = tile * side + place < all.lines;
        // In units.
        const index_t start = is_line ? (index_t)(tile * side + place) * units : 0;
        const index_t end = is_line ? units : 0;
        A most = -(A)cs_bits<f32>(0x7f800000u);
        for (index_t at = lane; at < end; at += CS_UNITS * lanes) {
            T x[CS_UNITS][CS_UNIT];
#pragma unroll
            for (u32 k = 0; k < CS_UNITS; ++k) {
                if (at + k * lanes < end) {
#if CS_PACKED
                    elements(operands, start + at + k * lanes, x[k]);
#else
                    x[k][0] = element(operands, start + at + k * lanes);
#endif
                }
            }
#pragma unroll
            for (u32 k = 0; k < CS_UNITS; ++k) {
                if (at + k * lanes < end) {
#pragma unroll
                    for (u32 j = 0; j < CS_UNIT; ++j) {
                        own[j * units + at + k * lanes] = (A)x[k][j];
                        most = cs_larger(most, (A)x[k][j]);
                    }
                }
            }
        }
        most = cs_largest_of(most, lanes, most_room);
        A sum = 0;
        for (index_t at = lane; at < end; at += lanes) {
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) {
                const A exponential = exp(own[j * units + at] - most);
#if !CS_LOG
                own[j * units + at] = exponential;
#endif
                sum += exponential;
            }
        }
        const f64 total = cs_sum_of_all((f64)sum, lanes, sum_room);
#if CS_LOG
        const A divisor = (A)log(total);
#else
        const A divisor = (A)total;
#endif
        for (index_t at = lane; at < end; at += lanes) {
            cs_pack<I, CS_UNIT> stored;
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) {
#if CS_LOG
                cs_store(&stored.at[j], own[j * units + at] - most - divisor);
#else
                cs_store(&stored.at[j], own[j * units + at] / divisor);
#endif
            }
            *(cs_pack<I, CS_UNIT>*)(results + (start + at) * CS_UNIT) = stored;
        }
    }
}
