// Softmax and its logarithm of long lines. A first launch computes the largest element of each line
// and the sum of the exponentials in one pass (Milakov and Gimelshein, 2018). A second launch reads
// the line again and writes the results. Each block has a part of a line. `CS_WRITES` selects the
// launch, and `CS_LOG` the logarithm.
//
// The source that includes this file must define `T`, `I`, `element`, `Operands` and `index_t` of
// the expression, and `CS_WIDTH` and `elements` of packs; `A`, the type of the computation;
// `Total`, a `cs_exponents` of `f64`, and the functions by which threads merge totals.

#ifndef CS_WIDTH
#define CS_WIDTH 1
CS_FN void elements(const Operands& operands, const index_t i, T (&out)[1]) { out[0] = element(operands, i); }
#endif
// The number of packs that a thread loads before it needs the first.
#define CS_PACKS (CS_WIDTH < 8 ? 8 / CS_WIDTH : 1)

struct cs_parts {
    u64 length, lines;
    u64 parts, part_length;
};

// The elements of a part of a line: the elements before the first whole pack, the whole packs, and
// the elements after them.
struct cs_range {
    index_t begin, first_pack, end_pack, end;
    CS_FN cs_range(const cs_parts& all, u64 line) {
        const u64 from = blockIdx.y * all.part_length, rest = all.length - from;
        begin = (index_t)(line * all.length + from);
        end = begin + (index_t)(rest < all.part_length ? rest : all.part_length);
        first_pack = (begin + (CS_WIDTH - 1)) / CS_WIDTH;
        end_pack = end / CS_WIDTH;
        // The part contains no border of packs, so all its elements are before the first pack.
        if (end_pack < first_pack) end_pack = first_pack;
    }
    CS_FN index_t head() const {
        const index_t first = first_pack * CS_WIDTH;
        return first < end ? first : end;
    }
    CS_FN index_t tail() const {
        const index_t last = end_pack * CS_WIDTH;
        return last < end ? last : end;
    }
};

// Calls `packs` for the packs of this thread, several at a time, and `single` for its elements
// outside of packs.
template <class Single, class Packs>
CS_FN void cs_each(const Operands& operands, const cs_range& range, Single single, Packs packs) {
    const index_t head = range.begin + threadIdx.x, tail = range.tail() + threadIdx.x;
    if (head < range.head()) single(head, (A)element(operands, head));
    for (index_t n = range.first_pack + threadIdx.x; n < range.end_pack; n += CS_PACKS * CS_THREADS) {
        T x[CS_PACKS][CS_WIDTH];
#pragma unroll
        for (u32 k = 0; k < CS_PACKS; ++k) {
            if (n + k * CS_THREADS < range.end_pack) elements(operands, n + k * CS_THREADS, x[k]);
        }
        packs(n, x);
    }
    if (tail < range.end) single(tail, (A)element(operands, tail));
}

// Returns the larger number; NaN if either is NaN.
CS_FN A cs_larger(A a, A b) { return b > a || b != b ? b : a; }

#if !CS_WRITES

// The largest element so far, and the sum of the exponentials of the elements' differences from it.
// The sum is wide, so that its rounding error does not grow with the line.
struct cs_online {
    A scale;
    f64 sum;

    // The scale rarely rises. The factor is wide, because in an ascending line the scale rises
    // often.
    CS_FN void rescale(A most) {
        if (most <= scale) return;
        sum *= exp((f64)scale - (f64)most);
        scale = most;
    }
    // Returns the value that is subtracted from each element. If all elements are -inf, it is 0, so
    // that the exponentials are 0, not NaN.
    CS_FN A base() const { return scale == -(A)cs_bits<f32>(0x7f800000u) ? (A)0 : scale; }
};

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_parts all, Total* totals) {
    __shared__ Total room[CS_THREADS / 32];
    for (u64 line = blockIdx.x; line < all.lines; line += gridDim.x) {
        const cs_range range(all, line);
        cs_online own = {-(A)cs_bits<f32>(0x7f800000u), 0.0};
        cs_each(operands, range,
            [&](index_t, A x) {
                own.rescale(x);
                own.sum += (f64)exp(x - own.base());
            },
            [&](index_t n, const T (&x)[CS_PACKS][CS_WIDTH]) {
                A most = own.scale;
#pragma unroll
                for (u32 k = 0; k < CS_PACKS; ++k) {
                    if (n + k * CS_THREADS < range.end_pack) {
#pragma unroll
                        for (u32 j = 0; j < CS_WIDTH; ++j) most = cs_larger(most, (A)x[k][j]);
                    }
                }
                own.rescale(most);
                const A base = own.base();
                A part = 0;
#pragma unroll
                for (u32 k = 0; k < CS_PACKS; ++k) {
                    if (n + k * CS_THREADS < range.end_pack) {
#pragma unroll
                        for (u32 j = 0; j < CS_WIDTH; ++j) part += exp((A)x[k][j] - base);
                    }
                }
                own.sum += (f64)part;
            });
        Total total = Total{(f64)own.scale, own.sum};
        total = cs_merged_beside(total, threadIdx.x, CS_THREADS, CS_THREADS, room);
        if (threadIdx.x == 0) totals[line * all.parts + blockIdx.y] = total;
        __syncthreads();
    }
}

#else

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_parts all, const Total* totals, I* results) {
    __shared__ Total room[CS_THREADS / 32];
    __shared__ Total whole;
    for (u64 line = blockIdx.x; line < all.lines; line += gridDim.x) {
        const u32 parts = (u32)all.parts;
        Total total = Total{0.0, 0.0};
        if (threadIdx.x < parts) total = totals[line * parts + threadIdx.x];
        if (parts > 1) total = cs_merged_beside(total, threadIdx.x, CS_THREADS, parts, room);
        if (threadIdx.x == 0) whole = total;
        __syncthreads();
        // If the largest element is infinite or NaN, every result is NaN.
        const A scale = (A)whole.scale, lost = scale - scale;
#if CS_LOG
        const A divisor = (A)log(whole.sum);
#else
        const A divisor = (A)whole.sum;
#endif
        const auto result = [=](A x) {
#if CS_LOG
            return x - scale - divisor + lost;
#else
            return exp(x - scale) / divisor + lost;
#endif
        };
        const cs_range range(all, line);
        cs_each(operands, range,
            [&](index_t at, A x) { cs_store(results + at, result(x)); },
            [&](index_t n, const T (&x)[CS_PACKS][CS_WIDTH]) {
#pragma unroll
                for (u32 k = 0; k < CS_PACKS; ++k) {
                    if (n + k * CS_THREADS < range.end_pack) {
                        cs_pack<I, CS_WIDTH> stored;
#pragma unroll
                        for (u32 j = 0; j < CS_WIDTH; ++j) cs_store(&stored.at[j], result((A)x[k][j]));
                        *(cs_pack<I, CS_WIDTH>*)(results + (n + k * CS_THREADS) * CS_WIDTH) = stored;
                    }
                }
            });
        __syncthreads();
    }
}

#endif
