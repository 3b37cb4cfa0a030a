// Softmax and its logarithm of lines that fit the registers of their threads: `lanes` threads
// process a line, and read and write it once. `CS_LOG` selects the logarithm. With `CS_PACKED`,
// lines are whole packs, which are read and written at once. A thread has at most `CS_HELD` units.
//
// The source that includes this file must include `merged.cuh`. It must define `T`, `I`, `element`,
// `Operands` and `index_t` of the expression, and `A`, the type of the computation.

struct cs_lines {
    u64 length, lines, lanes;
};

// Returns the larger number; NaN if either is NaN.
CS_FN A cs_larger(A a, A b) { return b > a || b != b ? b : a; }

#if CS_PACKED
#define CS_UNIT CS_WIDTH
#else
#define CS_UNIT 1
#endif

// Returns `a / b` for a `b` of at least 1, whose `inverse` is 1 / b. Computes the product, and one
// correction (Markstein, 1990). A division would take three times as long.
CS_FN A cs_quotient(A a, A b, A inverse) {
    const A quotient = a * inverse;
    return fma(fma(-quotient, b, a), inverse, quotient);
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_lines all, I* results) {
    __shared__ A most_room[CS_THREADS / 32];
    __shared__ f64 sum_room[CS_THREADS / 32];
    const u32 lanes = (u32)all.lanes, side = CS_THREADS / lanes;
    const u32 lane = threadIdx.x % lanes, place = threadIdx.x / lanes;
    const A least = -(A)cs_bits<f32>(0x7f800000u);
    const index_t units = (index_t)all.length / CS_UNIT;
    for (u64 tile = blockIdx.x; tile * side < all.lines; tile += gridDim.x) {
        const bool is_line = tile * side + place < all.lines;
        // The start of the line, in units.
        const index_t start = is_line ? (index_t)(tile * side + place) * units : 0;
        const index_t end = is_line ? units : 0;
        T x[CS_HELD][CS_UNIT];
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
            const index_t at = lane + k * lanes;
            if (at < end) {
#if CS_PACKED
                elements(operands, start + at, x[k]);
#else
                x[k][0] = element(operands, start + at);
#endif
            }
        }
        // Elements beyond the line are less than all other elements, so that their exponentials are
        // 0.
        A own[CS_HELD][CS_UNIT];
        A most = least;
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) {
                own[k][j] = lane + k * lanes < end ? (A)x[k][j] : least;
                most = cs_larger(most, own[k][j]);
            }
        }
        most = cs_merged_across<CS_THREADS / 32>(
            most, lanes, most_room, [](A a, A b) { return cs_larger(a, b); });
        A sum = 0;
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) {
                const A exponential = exp(own[k][j] - most);
#if !CS_LOG
                own[k][j] = exponential;
#endif
                sum += exponential;
            }
        }
        const f64 total = cs_merged_across<CS_THREADS / 32>(
            (f64)sum, lanes, sum_room, [](f64 a, f64 b) { return a + b; });
#if CS_LOG
        const A divisor = (A)log(total);
#else
        const A divisor = (A)total, inverse = 1 / divisor;
#endif
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
            const index_t at = lane + k * lanes;
            cs_pack<I, CS_UNIT> stored;
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) {
#if CS_LOG
                cs_store(&stored.at[j], own[k][j] - most - divisor);
#else
                cs_store(&stored.at[j], cs_quotient(own[k][j], divisor, inverse));
#endif
            }
            if (at < end) *(cs_pack<I, CS_UNIT>*)(results + (start + at) * CS_UNIT) = stored;
        }
    }
}
