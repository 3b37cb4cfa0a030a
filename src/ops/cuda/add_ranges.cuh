// Adds floats at indices, in the order of the indices, because the sums depend on the order. Or
// writes words at indices, where the last word for an index remains. A block of threads owns a
// range of the target's indices in some of its lines. The block scans all indices of these lines
// for the indices in its range.
//
// The lines of a block have equal indices. The block reads 256 indices at a time, and lists the
// indices in its range in their order. Then each thread scans the list for the elements that it
// owns.

/// The division of the work among blocks.
struct Division {
    /// The number of indices of the axis that a block owns, and the number of blocks that own all
    /// indices.
    u64 range;
    u64 ranges;
    /// The number of neighbouring lines that share their indices, and the number of these lines
    /// that a block processes, a power of two.
    u64 beside;
    u64 lanes;
    /// The number of blocks for lines that share their indices.
    u64 tiles;
};

extern "C" __global__ void __launch_bounds__(256)
kernel(item_t* to, const i64* __restrict__ indices, const item_t* __restrict__ values, Walk<RANK, 3> groups,
       Walk<RANK, 3> beside, Walk<RANK, 3> along, Picked axis, Division division, u64 length, u64 count) {
    // The position in the range and the offset of the values, for each listed index.
    __shared__ index_t listed[256];
    __shared__ index_t places[256];
    __shared__ u32 in_warp[8];
    const u32 lane = threadIdx.x & ((u32)division.lanes - 1);
    const u32 owner = threadIdx.x / (u32)division.lanes;
    const index_t owners = 256 / (u32)division.lanes;
    const u32 warp = threadIdx.x / 32;
    for (u64 number = blockIdx.x; number < count; number += gridDim.x) {
        const u64 low = number % division.ranges * division.range;
        const u64 part = number / division.ranges;
        const u64 line = part % division.tiles * division.lanes + lane;
        index_t group[3], side[3];
        place(groups, (index_t)(part / division.tiles), group);
        place(beside, (index_t)(line < division.beside ? line : 0), side);
        const index_t first = group[0] + side[0] + (index_t)low * (index_t)axis.step;
        // The element that was updated last, whose sum is not in memory yet.
        bool begun = false;
        index_t last = 0;
        item_t sum = item_t();
        for (index_t start = 0; start < length; start += 256) {
            index_t index = 0, at[3];
            bool mine = false;
            if (start + threadIdx.x < length) {
                place(along, start + threadIdx.x, at);
                const u64 found = counted(indices[group[1] + at[1]], axis);
                mine = found < axis.length && found >= low && found - low < division.range;
                index = (index_t)(found - low);
            }
            const u32 ballot = __ballot_sync(0xffffffffu, mine);
            if (threadIdx.x % 32 == 0) {
                in_warp[warp] = __popc(ballot);
            }
            __syncthreads();
            u32 slot = __popc(ballot & ((1u << (threadIdx.x % 32)) - 1)), all = 0;
            for (u32 other = 0; other < 8; ++other) {
                slot += other < warp ? in_warp[other] : 0;
                all += in_warp[other];
            }
            if (mine) {
                listed[slot] = index;
                places[slot] = group[2] + at[2];
            }
            __syncthreads();
            for (u32 entry = 0; line < division.beside && entry < all; ++entry) {
                const index_t index = listed[entry];
                if ((index & (owners - 1)) != owner) {
                    continue;
                }
                if (!begun || index != last) {
                    if (begun) {
                        to[first + last * (index_t)axis.step] = sum;
                    }
                    sum = to[first + index * (index_t)axis.step];
                    begun = true;
                    last = index;
                }
                sum = scattered(sum, values[places[entry] + side[2]]);
            }
            __syncthreads();
        }
        if (begun) {
            to[first + last * (index_t)axis.step] = sum;
        }
    }
}
