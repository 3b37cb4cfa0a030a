// The gradient of the rows of a norm, and parts of the gradients of its weight and bias. A row and
// its gradient are read once.
//
// Let n be the normalized row, and a the gradient times the weight. The gradient of the row is
// factor (a - mean(a) - n mean(a n)). A block has some of the rows. It adds the products of the
// gradient with n, and the gradient, for each column, and writes both sums.

// The number of rows that a thread adds before their sum is added to the block's sum. So few
// rounding errors add up.
#define CS_TERMS 32

// Writes the sums of a block's rows, one for each column, or adds them if `is_begun`.
CS_FN void cs_write_sums(const cs_part& own, A* sums, u32 lane, u32 place, u32 width, bool is_begun) {
    const u32 row = CS_LANES * CS_HELD * CS_UNIT;
    __shared__ A room[CS_SIDE * row];
    __syncthreads();
    cs_each_held(lane, width / CS_UNIT, [&](u32 k, u32 j) {
        room[place * row + (lane + k * CS_LANES) * CS_UNIT + j] = own.at[k][j];
    });
    __syncthreads();
    for (u32 column = threadIdx.x; column < width; column += CS_THREADS) {
        A sum = room[column];
#pragma unroll
        for (u32 other = 1; other < CS_SIDE; ++other) sum += room[other * row + column];
        sums[column] = is_begun ? sums[column] + sum : sum;
    }
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const T* x, const T* gradient, const T* weight, const A* means, const A* factors, T* of_x, A* sums, const cs_rows all) {
    const u32 lane = threadIdx.x % CS_LANES, place = threadIdx.x / CS_LANES;
    const u32 width = (u32)all.width;
    A* own_sums = sums + (u64)blockIdx.x * width * (1 + CS_CENTRED);
    cs_part of_weight = {}, of_bias = {};
    u32 terms = 0;
    bool is_begun = false;
    for (u64 tile = blockIdx.x; tile * CS_SIDE < all.rows; tile += gridDim.x) {
        const u64 row = tile * CS_SIDE + place;
        const bool is_row = row < all.rows;
        const u32 end = is_row ? width / CS_UNIT : 0;
        cs_part normal, slope, weights;
        normal.read(x + row * all.width, lane, end);
        slope.read(gradient + row * all.width, lane, end);
        weights.read(weight, lane, end);
        const A factor = is_row ? factors[row] : (A)0;
        const A mean = CS_CENTRED && is_row ? means[row] : (A)0;
        A sum = 0, along = 0;
        cs_each_held(lane, end, [&](u32 k, u32 j) {
            A& own = normal.at[k][j];
            own = (own - mean) * factor;
            of_weight.at[k][j] += slope.at[k][j] * own;
            of_bias.at[k][j] += slope.at[k][j];
            slope.at[k][j] *= weights.at[k][j];
            sum += slope.at[k][j];
            along += slope.at[k][j] * own;
        });
        const cs_sums means_of_row = cs_sums_of_row(cs_sums{(f64)sum, (f64)along});
        const A shift = CS_CENTRED ? -(A)(means_of_row.first * all.inverse) * factor : (A)0;
        const A turn = -(A)(means_of_row.second * all.inverse) * factor;
        cs_each_held(lane, end, [&](u32 k, u32 j) {
            normal.at[k][j] = fma(slope.at[k][j], factor, fma(normal.at[k][j], turn, shift));
        });
        normal.write(of_x + row * all.width, lane, end);
        // No block is without rows.
        const bool is_last = (tile + gridDim.x) * CS_SIDE >= all.rows;
        if (++terms == CS_TERMS || is_last) {
            cs_write_sums(of_weight, own_sums, lane, place, width, is_begun);
#if CS_CENTRED
            cs_write_sums(of_bias, own_sums + width, lane, place, width, is_begun);
#endif
            of_weight = {}, of_bias = {};
            terms = 0, is_begun = true;
        }
    }
}
