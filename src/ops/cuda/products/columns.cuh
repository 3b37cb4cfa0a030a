// Products of matrices and vectors along columns: a thread sums a chunk of a row. Neighbouring
// threads sum the same columns of neighbouring rows, so that the elements they read are close.
//
// If `PACK` is more than 1, the elements of a column are contiguous, and every column is aligned to
// packs of `PACK` elements. A thread then sums `PACK` rows, each in the order in which it would be
// summed alone.

/// A matrix with a factor of the vector for each column, and the division of rows into chunks.
struct Matrix {
    index_t row_step, column_step, factor_step;
    index_t rows, columns;
    index_t chunk;
};

/// Four sums of a row, so that an addition need not wait for the previous one.
struct Sums {
    sum_t of[4];
};

CS_FN void store(out_t* __restrict__ to, index_t index, const Sums& sums) {
    store(to, index, (sums.of[0] + sums.of[1]) + (sums.of[2] + sums.of[3]));
}

/// Returns the product of the chunk of a row that begins at `line` with the factors, which are
/// `factor_step` apart.
CS_FN Sums of_row(const item_t* __restrict__ matrices, const item_t* __restrict__ vectors, const Matrix& matrix,
                  index_t line, index_t factors, index_t length) {
    Sums sums = {{0, 0, 0, 0}};
    index_t column = 0;
    for (; column + 4 <= length; column += 4) {
#pragma unroll
        for (index_t part = 0; part < 4; ++part) {
            sums.of[part] += widened(matrices[line + (column + part) * matrix.column_step]) *
                             widened(vectors[factors + (column + part) * matrix.factor_step]);
        }
    }
    for (; column < length; ++column) {
        sums.of[0] += widened(matrices[line + column * matrix.column_step]) *
                      widened(vectors[factors + column * matrix.factor_step]);
    }
    return sums;
}

#if PACK > 1
/// Computes the products of `PACK` rows, the first of which begins at `line`. Each row is summed in
/// the order in which `of_row` sums it.
CS_FN void of_rows(const item_t* __restrict__ matrices, const item_t* __restrict__ vectors, const Matrix& matrix,
                   index_t line, index_t factors, index_t length, Sums (&sums)[PACK]) {
#pragma unroll
    for (int row = 0; row < PACK; ++row) {
        sums[row] = Sums{{0, 0, 0, 0}};
    }
    index_t column = 0;
#pragma unroll 2
    for (; column + 4 <= length; column += 4) {
#pragma unroll
        for (index_t part = 0; part < 4; ++part) {
            const pack_t elements = pack_at(matrices, line + (column + part) * matrix.column_step);
            const sum_t factor = widened(vectors[factors + (column + part) * matrix.factor_step]);
#pragma unroll
            for (int row = 0; row < PACK; ++row) {
                sums[row].of[part] += widened(elements.at[row]) * factor;
            }
        }
    }
    for (; column < length; ++column) {
        const pack_t elements = pack_at(matrices, line + column * matrix.column_step);
        const sum_t factor = widened(vectors[factors + column * matrix.factor_step]);
#pragma unroll
        for (int row = 0; row < PACK; ++row) {
            sums[row].of[0] += widened(elements.at[row]) * factor;
        }
    }
}
#endif

/// Stores the product of each chunk of each row. `rows` is the number of rows, or of packs of rows,
/// the last of which may be partial.
extern "C" __global__ void __launch_bounds__(256)
kernel(const item_t* __restrict__ matrices, const item_t* __restrict__ vectors, out_t* __restrict__ to,
       Walk<RANK, 2> places, Axis<1> rows, Axis<1> chunks, Matrix matrix, u64 count) {
    const index_t step = all_threads();
    for (index_t start = thread_number(); start < count; start += step) {
        index_t number = start;
        const index_t row = divided(number, rows) * PACK;
        const index_t first = number * matrix.rows + row;
        const index_t chunk = divided(number, chunks);
        index_t at[2];
        place(places, number, at);
        const index_t begin = chunk * matrix.chunk;
        const index_t length = matrix.columns - begin < matrix.chunk ? matrix.columns - begin : matrix.chunk;
        const index_t line = at[0] + row * matrix.row_step + begin * matrix.column_step;
        const index_t factors = at[1] + begin * matrix.factor_step;
#if PACK > 1
        const index_t there = matrix.rows - row;
        if (there >= PACK) {
            Sums sums[PACK];
            of_rows(matrices, vectors, matrix, line, factors, length, sums);
#pragma unroll
            for (int part = 0; part < PACK; ++part) {
                store(to, first + part, sums[part]);
            }
            continue;
        }
        for (index_t part = 0; part < there; ++part) {
            store(to, first + part, of_row(matrices, vectors, matrix, line + part, factors, length));
        }
#else
        store(to, first, of_row(matrices, vectors, matrix, line, factors, length));
#endif
    }
}
