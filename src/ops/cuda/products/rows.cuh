// Products of matrices and vectors along rows: a group of threads sums a chunk of a row.
//
// If `PACK` is more than 1, the elements of a row are contiguous, and so are the factors. Every
// row, every chunk and the factors are then aligned to packs of `PACK` elements.

/// A matrix with a factor of the vector for each column, and the division of rows into chunks.
struct Matrix {
    index_t row_step, column_step, factor_step;
    index_t rows, columns;
    index_t chunk;
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const item_t* __restrict__ matrices, const item_t* __restrict__ vectors, out_t* __restrict__ to,
       Walk<RANK, 2> places, Axis<1> rows, Axis<1> chunks, Matrix matrix, u64 count) {
    const index_t lane = threadIdx.x % GROUP;
    const index_t groups = all_threads() / GROUP;
    // All threads of a group run this loop equally often; if a group is a block, so do all threads
    // of the block.
    for (index_t start = thread_number() / GROUP; start < count; start += groups) {
        index_t number = start;
        const index_t chunk = divided(number, chunks);
        const index_t row = divided(number, rows);
        index_t at[2];
        place(places, number, at);
        const index_t line = at[0] + row * matrix.row_step;
        const index_t factors = at[1];
        const index_t begin = chunk * matrix.chunk;
        const index_t end = matrix.columns - begin < matrix.chunk ? matrix.columns : begin + matrix.chunk;
#if PACK > 1
        // Four sums, so that an addition need not wait for the previous one.
        sum_t sums[4] = {0, 0, 0, 0};
        const index_t whole = end - (end - begin) % PACK;
#pragma unroll 2
        for (index_t column = begin + lane * PACK; column < whole; column += GROUP * PACK) {
            const pack_t elements = pack_at(matrices, line + column);
            const pack_t of_vector = pack_at(vectors, factors + column);
#pragma unroll
            for (int part = 0; part < PACK; ++part) {
                sums[part % 4] += widened(elements.at[part]) * widened(of_vector.at[part]);
            }
        }
        sum_t sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (index_t column = whole + lane; column < end; column += GROUP) {
            sum += widened(matrices[line + column]) * widened(vectors[factors + column]);
        }
#else
        sum_t sum = 0;
#pragma unroll 4
        for (index_t column = begin + lane; column < end; column += GROUP) {
            sum += widened(matrices[line + column * matrix.column_step]) *
                   widened(vectors[factors + column * matrix.factor_step]);
        }
#endif
        sum = group_sum<GROUP>(sum);
        if (lane == 0) {
            store(to, start, sum);
        }
    }
}
