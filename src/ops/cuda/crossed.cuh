// Writes each element of a program whose operands are partly contiguous along another axis than the
// target. These operands are read by square tiles along their axis into shared memory, so that all
// reads and writes are coalesced. The source that includes this file must define the program, the
// operands' part of a tile (`Staged`), and the functions of both axes.

extern "C" __global__ void __launch_bounds__(256)
kernel(const Operands o, const u64 length_across, const u64 length_along, const u64 count) {
    __shared__ Staged tile;
    const int rows = 256 / CS_TILE;
    const index_t column = threadIdx.x % CS_TILE, row = threadIdx.x / CS_TILE;
    const index_t across = (index_t)length_across, along = (index_t)length_along;
    const index_t tiles_across = (across + CS_TILE - 1) / CS_TILE;
    const index_t tiles_along = (along + CS_TILE - 1) / CS_TILE;
    for (index_t number = blockIdx.x; number < (index_t)count; number += gridDim.x) {
        const index_t first_along = number % tiles_along * CS_TILE;
        const index_t first_across = number / tiles_along % tiles_across * CS_TILE;
        const Places at = places(o, number / tiles_along / tiles_across);
#pragma unroll
        for (int line = 0; line < CS_TILE; line += rows) {
            const index_t i = first_across + column, j = first_along + line + row;
            if (i < across && j < along) stage(o, tile, at, (offset_t)i, (offset_t)j, line + row, column);
        }
        __syncthreads();
#pragma unroll
        for (int line = 0; line < CS_TILE; line += rows) {
            const index_t i = first_across + line + row, j = first_along + column;
            if (i < across && j < along) finish(o, tile, at, (offset_t)i, (offset_t)j, column, line + row);
        }
        __syncthreads();
    }
}
