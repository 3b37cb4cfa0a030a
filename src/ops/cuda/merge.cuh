// Merging the totals of several threads. The source that includes this file must define `Total` and
// `cs_join`.

// Returns the merged total to the first of `lanes` adjacent threads. `lanes` is a power of two; the
// first `valid` threads have totals. All threads of the block must call this function together.
// `room` has an element for each warp.
CS_FN Total cs_merged_beside(Total total, u32 lane, u32 lanes, u32 valid, Total* room) {
    const u32 width = lanes < 32 ? lanes : 32;
    const u32 before = lane - lane % width;
    for (u32 delta = width / 2; delta > 0; delta /= 2) {
        Total other = cs_from_above(total, delta, width);
        if (lane + delta < valid && lane - before + delta < width) total = cs_join(total, other);
    }
    if (lanes <= 32) return total;
    const u32 warp = threadIdx.x / 32, warps = lanes / 32;
    __syncthreads();
    if (lane % 32 == 0) room[warp] = total;
    __syncthreads();
    if (lane < 32) {
        if (lane < warps) total = room[warp + lane];
        for (u32 delta = warps / 2; delta > 0; delta /= 2) {
            Total other = cs_from_above(total, delta, 32);
            if (lane + delta < warps && (lane + delta) * 32 < valid) total = cs_join(total, other);
        }
    }
    return total;
}

// Returns the merged total to the first of `lanes` threads. The distance between these threads is
// the number of outputs of a block. `room` has an element for each thread.
CS_FN Total cs_merged_apart(Total total, u32 lane, u32 lanes, u32 valid, Total* room) {
    if (lanes == 1) return total;
    const u32 side = CS_THREADS / lanes;
    __syncthreads();
    room[threadIdx.x] = total;
    for (u32 delta = lanes / 2; delta > 0; delta /= 2) {
        __syncthreads();
        if (lane < delta && lane + delta < valid) {
            total = cs_join(total, room[threadIdx.x + delta * side]);
            room[threadIdx.x] = total;
        }
    }
    return total;
}
