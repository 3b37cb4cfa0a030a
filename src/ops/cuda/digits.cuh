// One pass of sorting lines by a digit of eight bits of their keys, the least one first (Knuth, "The Art of
// Computer Programming", volume 3, section 5.2.5, algorithm R). A block has a tile of `CS_THREADS` times
// `CS_EACH` elements of a line.

#define CS_TILE (CS_THREADS * CS_EACH)
#define CS_WARPS (CS_THREADS / 32)
static_assert(CS_THREADS == 256, "a thread for each digit");

struct cs_pass {
    // By how many bits the digit is to be shifted down; what keys are turned by.
    u64 shift, turned;
    u64 tiles;
};

CS_FN u32 cs_digit(bits_t bits, const cs_pass& pass) {
    return (u32)(cs_key(bits, (bits_t)pass.turned) >> (u32)pass.shift) & 0xff;
}

#if CS_COUNTS

// How many elements of a tile have each digit: of a line, for all tiles of a digit side by side.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const cs_lines from, const cs_pass pass, u32* counts) {
    __shared__ u32 own[256];
    const u64 all = from.lines * pass.tiles;
    for (u64 number = blockIdx.x; number < all; number += gridDim.x) {
        const u64 line = number / pass.tiles, tile = number % pass.tiles;
        const bits_t* const values = cs_line(from, line);
        own[threadIdx.x] = 0;
        __syncthreads();
        const u64 first = tile * CS_TILE;
#pragma unroll
        for (u32 k = 0; k < CS_EACH; ++k) {
            const u64 at = first + k * CS_THREADS + threadIdx.x;
            if (at < from.length) atomicAdd(&own[cs_digit(values[(i64)at * from.step], pass)], 1u);
        }
        __syncthreads();
        counts[(line * 256 + threadIdx.x) * pass.tiles + tile] = own[threadIdx.x];
        __syncthreads();
    }
}

#else

// Moves the elements of a tile to where they belong by this digit, and those before it; `sums` are those
// of the counts up to each of a line. With the elements go their positions, where they are wanted: in the
// first pass these are where they stand, later they are in `places`.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const cs_lines from, const cs_pass pass, const u32* counts, const u64* sums,
       const place_t* places, const cs_sorted to, place_t* to_places) {
    // First each warp's counts of digits, and then how many of the tile's come before its first.
    __shared__ u32 ranks[CS_WARPS][256];
    // Where the first of each digit goes, less its rank in the tile.
    __shared__ u64 firsts[256];
    __shared__ u32 befores[256];
    __shared__ bits_t values[CS_TILE];
    __shared__ place_t positions[CS_TILE];
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const bool has_positions = to_places || to.positions;
    const u64 all = from.lines * pass.tiles;
    for (u64 number = blockIdx.x; number < all; number += gridDim.x) {
        const u64 line = number / pass.tiles, tile = number % pass.tiles;
        const bits_t* const source = cs_line(from, line);
        const u64 first = tile * CS_TILE, target_first = cs_first_of(to, line);
        const u64 rest = from.length - first;
        const u32 length = rest < CS_TILE ? (u32)rest : CS_TILE;
        for (u32 of = 0; of < CS_WARPS; ++of) ranks[of][thread] = 0;
        __syncthreads();
        // A warp has elements that stand together, so that earlier ones get the lower ranks.
        bits_t value[CS_EACH];
        u32 rank[CS_EACH];
#pragma unroll
        for (u32 k = 0; k < CS_EACH; ++k) {
            const u32 at = (warp * CS_EACH + k) * 32 + lane;
            if (at < length) value[k] = source[(i64)(first + at) * from.step];
        }
#pragma unroll
        for (u32 k = 0; k < CS_EACH; ++k) {
            const u32 at = (warp * CS_EACH + k) * 32 + lane;
            const bool is_in = at < length;
            const u32 digit = is_in ? cs_digit(value[k], pass) : 0;
            // The threads of the warp that have the same digit.
            u32 same = __ballot_sync(0xffffffffu, is_in);
#pragma unroll
            for (u32 bit = 0; bit < 8; ++bit) {
                const u32 set = __ballot_sync(0xffffffffu, (digit >> bit) & 1);
                same &= (digit >> bit) & 1 ? set : ~set;
            }
            const u32 below = __popc(same & ((1u << lane) - 1));
            rank[k] = is_in ? ranks[warp][digit] + below : 0;
            __syncwarp();
            if (is_in && below == 0) ranks[warp][digit] += __popc(same);
            __syncwarp();
        }
        __syncthreads();
        // A thread has a digit: how many of it come before each warp's, and of lesser ones.
        u32 count = 0;
        for (u32 of = 0; of < CS_WARPS; ++of) {
            const u32 own = ranks[of][thread];
            ranks[of][thread] = count;
            count += own;
        }
        u32 up_to = count;
        for (u32 delta = 1; delta < 256; delta *= 2) {
            befores[thread] = up_to;
            __syncthreads();
            if (thread >= delta) up_to += befores[thread - delta];
            __syncthreads();
        }
        befores[thread] = up_to - count;
        const u64 place = (line * 256 + thread) * pass.tiles + tile;
        firsts[thread] = sums[place] - counts[place] - (up_to - count);
        __syncthreads();
        // In order in the tile, so that those of a digit are written together.
#pragma unroll
        for (u32 k = 0; k < CS_EACH; ++k) {
            const u32 at = (warp * CS_EACH + k) * 32 + lane;
            if (at < length) {
                const u32 digit = cs_digit(value[k], pass);
                const u32 target = befores[digit] + ranks[warp][digit] + rank[k];
                values[target] = value[k];
                if (has_positions) {
                    positions[target] = places ? places[line * from.length + first + at]
                                               : (place_t)(first + at);
                }
            }
        }
        __syncthreads();
        for (u32 at = thread; at < length; at += CS_THREADS) {
            const u64 rank = firsts[cs_digit(values[at], pass)] + at;
            if (rank >= to.kept) continue;
            const u64 target = target_first + rank * to.inner;
            if (to.values) ((bits_t*)to.values)[target] = values[at];
            if (to_places) to_places[target] = positions[at];
            if (to.positions) ((i64*)to.positions)[target] = (i64)positions[at];
        }
        __syncthreads();
    }
}

#endif
