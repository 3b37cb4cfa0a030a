// Copies matrices, with zeros on one side of a diagonal.

extern "C" __global__ void __launch_bounds__(256)
kernel(const word_t* __restrict__ from, word_t* __restrict__ to, Walk<RANK, 1> matrices, Axis<1> rows, Axis<1> columns,
       i64 diagonal, u64 lower, u64 count) {
    const index_t step = all_threads();
    for (index_t start = thread_number(); start < count; start += UNROLLED * step) {
        word_t words[UNROLLED];
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            words[part] = word_t();
            if (start + part * step < count) {
                index_t number = start + part * step;
                const index_t column = divided(number, columns);
                const index_t row = divided(number, rows);
                const i64 side = (i64)column - (i64)row;
                if (lower ? side <= diagonal : side >= diagonal) {
                    index_t at[1];
                    place(matrices, number, at);
                    words[part] = from[at[0] + row * rows.steps[0] + column * columns.steps[0]];
                }
            }
        }
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (start + part * step < count) {
                to[start + part * step] = words[part];
            }
        }
    }
}
