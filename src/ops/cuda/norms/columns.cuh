// Adds the sums of all blocks, for each column of the gradients of a weight and a bias. A block has
// 32 columns, and each of its warps adds some of the rows.
//
// The source that includes this file must define `A`, the type of the sums.

#define CS_WARPS 8

struct cs_columns {
    // The number of sums of each column, the number of columns, and the number of columns of the
    // weight.
    u64 count, columns, width;
};

extern "C" __global__ void __launch_bounds__(32 * CS_WARPS)
kernel(const A* sums, A* of_weight, A* of_bias, const cs_columns all) {
    __shared__ f64 room[CS_WARPS][32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u64 column = (u64)blockIdx.x * 32 + lane;
    f64 sum = 0;
    if (column < all.columns) {
#pragma unroll 4
        for (u64 row = warp; row < all.count; row += CS_WARPS) sum += (f64)sums[row * all.columns + column];
    }
    room[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= all.columns) return;
    for (u32 other = 1; other < CS_WARPS; ++other) sum += room[other][lane];
    if (column < all.width) of_weight[column] = (A)sum;
    else of_bias[column - all.width] = (A)sum;
}
