// Running sums along long lines, if there are too few lines to fill the device with a block or a
// thread for each. Lines are cut into tiles, which are read and written once. `CS_WAY` selects the
// tiles: 3, a piece of a line, for a block; 4, for strided lines, pieces of several neighbouring
// lines, each for `lanes` threads of a block.
//
// The source that includes this file must define the names that `scan.cuh` needs, `cs_tiles`, and
// the look-back of tiles.

// Returns the number of the next tile, to all threads of the block. `room` is used by this function
// until the next barrier.
CS_FN u64 cs_next_tile(const cs_tiles& tiles, unsigned long long* room) {
    __syncthreads();
    if (threadIdx.x == 0) *room = atomicAdd(tiles.ticket, 1ull);
    __syncthreads();
    return (u64)*room;
}

#if CS_WAY == 3

#define CS_TOGETHER 8
#define CS_WARPS (CS_THREADS / 32)

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_scans scans, R* results, const cs_tiles tiles) {
    __shared__ unsigned long long ticket;
    // The sums of the elements that each warp reads at once, later the sums of all elements before
    // these in the tile; and the sum of all elements before the tile.
    __shared__ S room[CS_TOGETHER * CS_WARPS];
    __shared__ S before_tile;
    static_assert(CS_TOGETHER * CS_WARPS == 64, "two sums for each thread of a warp");
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    for (;;) {
        const u64 number = cs_next_tile(tiles, &ticket);
        if (number >= scans.lines * scans.parts) return;
        // Takes tiles of all lines in turn, so that fewer tiles of one line are in flight.
        const u64 line = number % scans.lines, part = number / scans.lines;
        const index_t start = (index_t)line * (index_t)scans.length;
        const u64 begin = part * (CS_TOGETHER * CS_THREADS), rest = scans.length - begin;
        const u32 count = rest < CS_TOGETHER * CS_THREADS ? (u32)rest : CS_TOGETHER * CS_THREADS;
        T x[CS_TOGETHER];
#pragma unroll
        for (u32 k = 0; k < CS_TOGETHER; ++k) {
            const u32 at = k * CS_THREADS + thread;
            if (at < count) x[k] = element(operands, start + (index_t)begin + at);
        }
        S sums[CS_TOGETHER];
#pragma unroll
        for (u32 k = 0; k < CS_TOGETHER; ++k) {
            const u32 at = k * CS_THREADS + thread;
            sums[k] = cs_up_to(at < count ? cs_state(x[k]) : cs_nothing(), 32);
            if (lane == 31) room[k * CS_WARPS + warp] = sums[k];
        }
        __syncthreads();
        if (warp == 0) {
            u32* const told = tiles.told + line * scans.parts;
            S* const own = tiles.own + line * scans.parts;
            S* const all = tiles.all + line * scans.parts;
            const S one = room[2 * lane], other = room[2 * lane + 1];
            const S both = cs_up_to(cs_merge(one, other), 32);
            S before = cs_from_below(both, 1, 32);
            if (lane == 0) before = cs_nothing();
            room[2 * lane] = before;
            room[2 * lane + 1] = cs_merge(before, one);
            S carry = cs_nothing();
            if (part > 0) {
                if (lane == 31) {
                    cs_show(own + part, both);
                    __threadfence();
                    cs_tell(told + part, CS_TOLD_OWN);
                }
                const u64 nearest = cs_nearest(told, part);
                __threadfence();
                __syncwarp();
                carry = cs_before(own, all, 1, nearest, part);
            }
            if (lane == 31) {
                before_tile = carry;
                cs_show(all + part, part > 0 ? cs_merge(carry, both) : both);
                __threadfence();
                cs_tell(told + part, CS_TOLD_ALL);
            }
        }
        __syncthreads();
        const S carry = before_tile;
#pragma unroll
        for (u32 k = 0; k < CS_TOGETHER; ++k) {
            const u32 at = k * CS_THREADS + thread;
            const S before = cs_merge(carry, room[k * CS_WARPS + warp]);
            if (at < count) results[start + (index_t)begin + at] = cs_cast<R>(cs_value(cs_merge(before, sums[k])));
        }
    }
}

#else

// Scans tiles of strided lines. A thread holds `CS_ROWS` elements until it knows the sum of all
// elements before them.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_scans scans, R* results, const cs_tiles tiles) {
    __shared__ unsigned long long ticket;
    __shared__ u64 nearest;
    __shared__ S room[CS_THREADS];
    __shared__ S before_tile[CS_THREADS];
    const u32 thread = threadIdx.x, lanes = (u32)scans.lanes, side = CS_THREADS / lanes;
    // The index of the thread in its line, and the index of the line among neighbouring lines.
    const u32 lane = thread / side, place = thread % side;
    const index_t inner = (index_t)scans.inner;
    const u64 groups = (scans.lines + side - 1) / side;
    for (;;) {
        const u64 number = cs_next_tile(tiles, &ticket);
        if (number >= groups * scans.parts) return;
        const u64 group = number % groups, part = number / groups;
        const u64 line = group * side + place;
        const index_t start = (index_t)line / inner * ((index_t)scans.length * inner) + (index_t)line % inner;
        const u64 first = (part * lanes + lane) * CS_ROWS;
        const u64 rest = line < scans.lines && first < scans.length ? scans.length - first : 0;
        const u32 count = rest < CS_ROWS ? (u32)rest : CS_ROWS;
        T x[CS_ROWS];
#pragma unroll
        for (u32 k = 0; k < CS_ROWS; ++k) {
            if (k < count) x[k] = element(operands, start + ((index_t)first + k) * inner);
        }
        S sum = cs_nothing();
#pragma unroll
        for (u32 k = 0; k < CS_ROWS; ++k) {
            if (k < count) sum = cs_merge(sum, cs_state(x[k]));
        }
        // The sum of all elements up to each thread of a line.
        room[thread] = sum;
        __syncthreads();
        for (u32 delta = 1; delta < lanes; delta *= 2) {
            if (lane >= delta) sum = cs_merge(room[thread - delta * side], sum);
            __syncthreads();
            room[thread] = sum;
            __syncthreads();
        }
        u32* const told = tiles.told + group * scans.parts;
        S* const own = tiles.own + group * scans.parts * side + place;
        S* const all = tiles.all + group * scans.parts * side + place;
        // One thread of each line has the sum of its part.
        const bool tells = lane == lanes - 1;
        S carry = cs_nothing();
        if (part > 0) {
            if (tells) {
                cs_show(own + part * side, sum);
                __threadfence();
            }
            __syncthreads();
            if (thread < 32) {
                if (thread == 0) {
                    __threadfence();
                    cs_tell(told + part, CS_TOLD_OWN);
                }
                __syncwarp();
                const u64 found = cs_nearest(told, part);
                __threadfence();
                if (thread == 0) nearest = found;
            }
            __syncthreads();
            if (tells) {
                __threadfence();
                carry = cs_before(own, all, side, nearest, part);
            }
        }
        if (tells) {
            before_tile[place] = carry;
            cs_show(all + part * side, part > 0 ? cs_merge(carry, sum) : sum);
            __threadfence();
        }
        __syncthreads();
        if (thread == 0) {
            __threadfence();
            cs_tell(told + part, CS_TOLD_ALL);
        }
        carry = before_tile[place];
        if (lane > 0) carry = cs_merge(carry, room[thread - side]);
#pragma unroll
        for (u32 k = 0; k < CS_ROWS; ++k) {
            if (k < count) {
                carry = cs_merge(carry, cs_state(x[k]));
                results[start + ((index_t)first + k) * inner] = cs_cast<R>(cs_value(carry));
            }
        }
    }
}

#endif
