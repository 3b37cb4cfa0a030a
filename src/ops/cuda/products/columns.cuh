// Products of matrices and vectors where the elements of a column stand side by side: a thread sums a chunk of
// a row, and its neighbours their parts of the same columns.

/// As in rows.cuh.
struct Matrix {
    index_t row_step, column_step, factor_step;
    index_t columns;
    index_t chunk;
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const item_t* __restrict__ matrices, const item_t* __restrict__ vectors, out_t* __restrict__ to,
       Walk<RANK, 2> places, Axis<1> rows, Axis<1> chunks, Matrix matrix, u64 count) {
    const index_t step = all_threads();
    for (index_t start = thread_number(); start < count; start += step) {
        index_t number = start;
        const index_t row = divided(number, rows);
        const index_t chunk = divided(number, chunks);
        index_t at[2];
        place(places, number, at);
        const index_t line = at[0] + row * matrix.row_step;
        const index_t factors = at[1];
        const index_t begin = chunk * matrix.chunk;
        const index_t end = matrix.columns - begin < matrix.chunk ? matrix.columns : begin + matrix.chunk;
        // Four sums, so that an addition need not wait for the one before.
        sum_t sums[4] = {0, 0, 0, 0};
        index_t column = begin;
        for (; column + 4 <= end; column += 4) {
#pragma unroll
            for (index_t part = 0; part < 4; ++part) {
                sums[part] += widened(matrices[line + (column + part) * matrix.column_step]) *
                              widened(vectors[factors + (column + part) * matrix.factor_step]);
            }
        }
        for (; column < end; ++column) {
            sums[0] += widened(matrices[line + column * matrix.column_step]) *
                       widened(vectors[factors + column * matrix.factor_step]);
        }
        to[start] = stored((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
}
