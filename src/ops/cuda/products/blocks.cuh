// Products of matrices of integers, tile by tile. They wrap, so sums are unsigned integers of at
// least as many bits as the elements.

/// The operands of a product. The rows of the left one and the columns of the right one number the
/// elements of the result.
struct Operands {
    index_t rows, inner, columns;
    index_t left_row_step, left_column_step, right_row_step, right_column_step;
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const item_t* __restrict__ left, const item_t* __restrict__ right, item_t* __restrict__ to,
       Walk<RANK, 2> places, Operands operands, u64 count) {
    __shared__ sum_t left_tile[32][33];
    __shared__ sum_t right_tile[32][33];
    const index_t x = threadIdx.x % 32, y = threadIdx.x / 32;
    const index_t tiles_down = (operands.rows + 31) / 32;
    const index_t tiles_across = (operands.columns + 31) / 32;
    for (index_t number = blockIdx.x; number < count; number += gridDim.x) {
        const index_t column = number % tiles_across * 32;
        const index_t row = number / tiles_across % tiles_down * 32;
        const index_t product = number / tiles_across / tiles_down;
        index_t at[2];
        place(places, product, at);
        sum_t sums[4] = {0, 0, 0, 0};
        for (index_t start = 0; start < operands.inner; start += 32) {
#pragma unroll
            for (index_t line = 0; line < 32; line += 8) {
                const index_t i = row + line + y, j = column + x;
                const index_t along = start + x, down = start + line + y;
                left_tile[line + y][x] =
                    i < operands.rows && along < operands.inner
                        ? (sum_t)left[at[0] + i * operands.left_row_step + along * operands.left_column_step]
                        : 0;
                right_tile[line + y][x] =
                    j < operands.columns && down < operands.inner
                        ? (sum_t)right[at[1] + down * operands.right_row_step + j * operands.right_column_step]
                        : 0;
            }
            __syncthreads();
#pragma unroll 8
            for (index_t step = 0; step < 32; ++step) {
                const sum_t factor = right_tile[step][x];
#pragma unroll
                for (int part = 0; part < 4; ++part) {
                    sums[part] += left_tile[part * 8 + y][step] * factor;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            const index_t i = row + part * 8 + y, j = column + x;
            if (i < operands.rows && j < operands.columns) {
                to[(product * operands.rows + i) * operands.columns + j] = (item_t)sums[part];
            }
        }
    }
}
