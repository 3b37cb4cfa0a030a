// Merging the totals of several threads. Elsewhere: `Total` and `cs_join`.

// Of `lanes` threads side by side, a power of two of which the first `valid` have totals. All
// threads of the block come here together; the first of the lanes gets the result. `room` has a
// place a warp.
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

// Of `lanes` threads that stand as far apart as there are outputs of a block. `room` has a place a
// thread.
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
