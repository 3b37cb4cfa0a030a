// Copies words that are contiguous in one operand and strided in the other: by square tiles in
// shared memory, which are read along one axis and written along the other.

/// The two axes of the tiles: their lengths, and the strides of the source and of the target.
struct Plane {
    index_t across, read_across, write_across;
    index_t along, read_along, write_along;
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const word_t* __restrict__ from, word_t* __restrict__ to, Walk<RANK, 2> outer, Plane plane, u64 count) {
    // The padding puts the words of a column in different banks.
    const int padding = sizeof(word_t) < 4 ? 4 / sizeof(word_t) : 1;
    const int rows = 256 / TILE;
    __shared__ word_t tile[TILE][TILE + padding];
    const index_t column = threadIdx.x % TILE;
    const index_t row = threadIdx.x / TILE;
    const index_t tiles_across = (plane.across + TILE - 1) / TILE;
    const index_t tiles_along = (plane.along + TILE - 1) / TILE;
    for (index_t number = blockIdx.x; number < count; number += gridDim.x) {
        const index_t along = number % tiles_along * TILE;
        const index_t across = number / tiles_along % tiles_across * TILE;
        index_t at[2];
        place(outer, number / tiles_along / tiles_across, at);
#pragma unroll
        for (index_t line = 0; line < TILE; line += rows) {
            const index_t i = along + line + row, j = across + column;
            if (i < plane.along && j < plane.across) {
                tile[line + row][column] = from[at[0] + i * plane.read_along + j * plane.read_across];
            }
        }
        __syncthreads();
#pragma unroll
        for (index_t line = 0; line < TILE; line += rows) {
            const index_t i = along + column, j = across + line + row;
            if (i < plane.along && j < plane.across) {
                to[at[1] + i * plane.write_along + j * plane.write_across] = tile[column][line + row];
            }
        }
        __syncthreads();
    }
}
