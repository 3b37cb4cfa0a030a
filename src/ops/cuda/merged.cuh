// Merges the values of several threads.
//
// The source that includes this file must include `states.cuh`.

// Merges the values of all `lanes` threads of a line, and returns the result to each of them.
// `merge` is commutative. All threads of the block must call this function together. A line of more
// than 32 threads has `WARPS` warps, and `room` has an element for each warp of the block.
template <u32 WARPS, class S, class F>
CS_FN S cs_merged_across(S value, u32 lanes, S* room, F merge) {
    const u32 width = lanes < 32 ? lanes : 32;
#pragma unroll
    for (u32 apart = 16; apart > 0; apart /= 2) {
        if (apart < width) value = merge(value, cs_across(value, apart, width));
    }
    if (lanes <= 32) return value;
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
    __syncthreads();
    const S* own = room + threadIdx.x / lanes * WARPS;
    value = own[0];
#pragma unroll
    for (u32 warp = 1; warp < WARPS; ++warp) value = merge(value, own[warp]);
    return value;
}
