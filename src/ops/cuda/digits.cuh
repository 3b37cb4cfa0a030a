// Radix sort of lines by digits of eight bits of their keys, the least significant digit first. See
// Knuth, "The Art of Computer Programming", volume 3, section 5.2.5, algorithm R. Each element is
// read and written once for each digit (Adinets and Merrill, "Onesweep", 2022). A tile has
// `CS_THREADS` times `CS_EACH` elements of a line.

#define CS_TILE (CS_THREADS * CS_EACH)
#define CS_WARPS (CS_THREADS / 32)
#define CS_PASSES ((u32)sizeof(bits_t))
static_assert(CS_THREADS == CS_DIGITS, "a thread for each digit");

CS_FN u32 cs_digit(bits_t key, u32 number) {
    return (u32)(key >> 8 * number) & 0xff;
}

#if CS_COUNTS

// Counts the elements of a line for each value of each digit of a key, into `counts`, which begin
// as 0. A block processes `together` tiles of a line; `parts` blocks cover a line.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const cs_lines from, const u64 turned, const u64 parts, const u64 together, told_t* counts) {
    __shared__ u32 own[CS_PASSES][CS_DIGITS];
    const u64 all = from.lines * parts;
    for (u64 number = blockIdx.x; number < all; number += gridDim.x) {
        const u64 line = number / parts, part = number % parts;
        const bits_t* const values = cs_line(from, line);
        for (u32 digit = 0; digit < CS_PASSES; ++digit) own[digit][threadIdx.x] = 0;
        __syncthreads();
        const u64 begin = part * together * CS_TILE, rest = from.length - begin;
        const u64 end = begin + (rest < together * CS_TILE ? rest : together * CS_TILE);
        for (u64 first = begin; first < end; first += CS_TILE) {
            bits_t value[CS_EACH];
#pragma unroll
            for (u32 k = 0; k < CS_EACH; ++k) {
                const u64 at = first + k * CS_THREADS + threadIdx.x;
                if (at < end) value[k] = values[(i64)at * from.step];
            }
#pragma unroll
            for (u32 k = 0; k < CS_EACH; ++k) {
                if (first + k * CS_THREADS + threadIdx.x >= end) continue;
                const bits_t key = cs_key(value[k], (bits_t)turned);
#pragma unroll
                for (u32 digit = 0; digit < CS_PASSES; ++digit) {
                    atomicAdd(&own[digit][cs_digit(key, digit)], 1u);
                }
            }
        }
        __syncthreads();
        for (u32 digit = 0; digit < CS_PASSES; ++digit) {
            const u32 count = own[digit][threadIdx.x];
            told_t* const sum = counts + (line * CS_PASSES + digit) * CS_DIGITS + threadIdx.x;
            if (count > 0) atomicAdd(sum, (told_t)count);
        }
        __syncthreads();
    }
}

#else

struct cs_pass {
    // The number of the digit, and the mask that keys are XORed with.
    u64 digit, turned;
    u64 tiles;
};

// Returns the sum of `own` over the threads before this one. All threads of the block must call
// this function together. `room` has an element for each warp.
template <class N>
CS_FN N cs_sum_before(N own, N* room) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    N sum = own;
#pragma unroll
    for (u32 delta = 1; delta < 32; delta *= 2) {
        const N before = __shfl_up_sync(0xffffffffu, sum, delta);
        if (lane >= delta) sum += before;
    }
    if (lane == 31) room[warp] = sum;
    __syncthreads();
    sum -= own;
    for (u32 of = 0; of < warp; ++of) sum += room[of];
    return sum;
}

// Moves the elements of a tile to their positions in the order by this digit and the digits before
// it. `counts` has the counts of all digits of all lines. A block takes its tile from `ticket`,
// which begins as 0. So tiles are begun in their order, whichever blocks run first. `told` has the
// words of all tiles, which begin as 0. If there is a next pass, its words are in `next`, and this
// pass sets them to 0. If positions are wanted, they move with the elements. The first pass uses
// the index of an element in its line as its position; later passes read positions from `places`.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const cs_lines from, const cs_pass pass, const told_t* counts, u64* ticket, told_t* told, told_t* next,
       const place_t* places, const cs_sorted to, place_t* to_places) {
    // At first, the counts of digits of each warp. Later, for each digit, the number of its
    // elements in the warps before each warp.
    __shared__ u32 ranks[CS_WARPS][CS_DIGITS];
    // The target of the first element of each digit, less its rank in the tile.
    __shared__ u64 firsts[CS_DIGITS];
    __shared__ u32 befores[CS_DIGITS];
    __shared__ bits_t values[CS_TILE];
    __shared__ place_t positions[CS_TILE];
    __shared__ u32 room[CS_WARPS];
    __shared__ told_t room_of_line[CS_WARPS];
    __shared__ u64 taken;
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, number_of_digit = (u32)pass.digit;
    const bits_t turned = (bits_t)pass.turned;
    const bool has_positions = to_places || to.positions;
    const u64 all = from.lines * pass.tiles;
    for (u64 round = blockIdx.x; round < all; round += gridDim.x) {
        if (thread == 0) taken = atomicAdd(ticket, 1ull);
        for (u32 of = 0; of < CS_WARPS; ++of) ranks[of][thread] = 0;
        __syncthreads();
        const u64 number = taken, line = number / pass.tiles, tile = number % pass.tiles;
        const bits_t* const source = cs_line(from, line);
        const u64 first = tile * CS_TILE, target_first = cs_first_of(to, line);
        const u64 rest = from.length - first;
        const u32 length = rest < CS_TILE ? (u32)rest : CS_TILE;
        if (next) next[number * CS_DIGITS + thread] = 0;
        // A warp has contiguous elements, so that earlier elements get lower ranks.
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
            const u32 digit = is_in ? cs_digit(cs_key(value[k], turned), number_of_digit) : 0;
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
        // Each thread has a digit. It computes the number of elements of the digit in the warps
        // before each warp, and the number of elements with lesser digits.
        u32 count = 0;
        for (u32 of = 0; of < CS_WARPS; ++of) {
            const u32 own = ranks[of][thread];
            ranks[of][thread] = count;
            count += own;
        }
        // Published as soon as the count is known, because later tiles wait for it.
        told_t* const word = told + number * CS_DIGITS + thread;
#ifndef __CUDA_ARCH__
        // Checked, because blocks that run sequentially would otherwise not notice a word that an
        // earlier pass did not clear.
        if (*word != 0) __trap();
#endif
        cs_tell(word, tile == 0 ? CS_ALL : CS_OWN, count);
        const u32 before = cs_sum_before(count, room);
        befores[thread] = before;
        __syncthreads();
        // Ordered within the tile, so that writes of one digit are coalesced.
#pragma unroll
        for (u32 k = 0; k < CS_EACH; ++k) {
            const u32 at = (warp * CS_EACH + k) * 32 + lane;
            if (at < length) {
                const u32 digit = cs_digit(cs_key(value[k], turned), number_of_digit);
                const u32 target = befores[digit] + ranks[warp][digit] + rank[k];
                values[target] = value[k];
                if (has_positions) {
                    positions[target] = places ? places[line * from.length + first + at]
                                               : (place_t)(first + at);
                }
            }
        }
        told_t in_tiles_before = 0;
        if (tile > 0) {
            in_tiles_before = cs_before(word);
            cs_tell(word, CS_ALL, in_tiles_before + count);
        }
        const told_t own = counts[(line * CS_PASSES + number_of_digit) * CS_DIGITS + thread];
        const u64 lesser = cs_sum_before(own, room_of_line);
        firsts[thread] = lesser + in_tiles_before - before;
        __syncthreads();
        for (u32 at = thread; at < length; at += CS_THREADS) {
            const u32 digit = cs_digit(cs_key(values[at], turned), number_of_digit);
            const u64 rank = firsts[digit] + at;
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
