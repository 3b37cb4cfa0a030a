// The lengths, the layout and the rows of an attention. See `tiles.cuh` for what must be defined
// before. `CS_ROWS` is the number of rows of a block's own tile, 16 for each warp. `CS_COLUMNS` is
// the number of rows of the tiles that the block iterates over. `CS_DEPTH` and `CS_WIDTH` are the
// padded widths of keys and of values.

static_assert(CS_ROWS == CS_THREADS / 2, "a warp has 16 rows");

// All lengths are below 2^31.
struct cs_lengths {
    u32 queries, keys, depth, width;
    // The scale of scores, and the scale times the binary logarithm of e.
    f32 scale, factor;
    u32 is_causal;
    // The number of heads that share their keys and values.
    u32 sharing;
};

// The steps of a matrix between rows and between columns.
struct cs_steps {
    i64 row, column;
};

// A row of weights. The exponential of a score is 2^((score - `most`) · factor), its weight is the
// exponential times `inverse`. `inverse` is the largest weight of the row, and 0 beyond the last
// row.
struct cs_weights {
    f32 most, inverse;
};

// The mean of the gradient of a row's weights. The mean is `mean` + `rest`. If a weight is nearly
// 1, the gradient of its score is a small difference, so the two are subtracted one after the
// other.
struct cs_mean {
    f32 mean, rest;
};

CS_FN cs_matrix cs_matrix_of(const item_t* memory, index_t offset, cs_steps steps, u32 rows, u32 columns) {
    return cs_matrix{memory + offset, steps.row, steps.column, rows, columns};
}

// Returns whether a tile of keys from `begin` on has keys that a query from `first` on does not
// see: the tile of the last keys, and the tiles on the diagonal of a causal attention.
CS_FN bool cs_has_hidden(const cs_lengths& all, u32 first, u32 begin) {
    return begin + CS_COLUMNS > (all.is_causal && first < all.keys ? first : all.keys);
}

// Replaces the scores of hidden keys. The thread has the rows `own` and `own` + 8.
CS_FN void cs_hide(f32 (&scores)[CS_COLUMNS / 8][4], f32 replacement, const cs_lengths& all, u32 own, u32 begin) {
#pragma unroll
    for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u32 key = begin + n * 8 + threadIdx.x % 4 * 2 + i % 2;
            if (key >= all.keys || (all.is_causal && key > own + i / 2 * 8)) scores[n][i] = replacement;
        }
    }
}

// Returns the exponential of a score.
CS_FN f32 cs_exponential(f32 score, f32 most, f32 factor) {
    // A fused multiplication and subtraction would leave a rest at the largest score.
#if CS_MATH == 2
    return cs_exp2((score - most) * factor);
#else
    return exp2f((score - most) * factor);
#endif
}

// Returns a combination of the values of the four threads of a row.
CS_FN f32 cs_sum_of_row(f32 value) {
    value += cs_exchanged(value, 1);
    return value + cs_exchanged(value, 2);
}

CS_FN f32 cs_largest_of_row(f32 value) {
    value = fmaxf(value, cs_exchanged(value, 1));
    return fmaxf(value, cs_exchanged(value, 2));
}

// Writes 16 rows of `sums`, the first of which is `first`, times a factor for each half of the
// rows.
template <u32 WIDTH>
CS_FN void cs_write_rows(item_t* to, cs_steps steps, const f32 (&sums)[WIDTH / 8][4], const f32 (&factors)[2], u32 first,
                         u32 rows, u32 columns) {
    const bool is_paired = steps.column == 1 && steps.row % 2 == 0 && columns % 2 == 0 && (u64)to % sizeof(cs_pack<item_t, 2>) == 0;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        const u32 row = first + threadIdx.x % 32 / 4 + half * 8;
        if (row >= rows) continue;
        item_t* place = to + (i64)row * steps.row;
#pragma unroll
        for (u32 part = 0; part < WIDTH / 8; ++part) {
            const u32 column = cs_column(part);
            const f32* pair = &sums[part][half * 2];
            const item_t items[2] = {item_t(pair[0] * factors[half]), item_t(pair[1] * factors[half])};
            if (is_paired) {
                if (column < columns) *(cs_pack<item_t, 2>*)(place + column) = cs_pack<item_t, 2>{items[0], items[1]};
            } else {
#pragma unroll
                for (u32 j = 0; j < 2; ++j) {
                    if (column + j < columns) place[(i64)(column + j) * steps.column] = items[j];
                }
            }
        }
    }
}
