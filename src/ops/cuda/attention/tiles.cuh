// Tiles of matrices in shared memory, and products of tiles. A tile has rows of `WIDTH` elements.
// A row is divided into chunks of 16 bytes.
//
// The source that includes this file must define `item_t`, `CS_THREADS`, `CS_MATH` (0: by FMA,
// 1: by TF32, 2: by tensor cores, on elements of 16 bits) and `CS_ALIGNED` (1 if all rows are
// contiguous and begin at multiples of 16 bytes).
//
// A thread of a warp has four sums for each 16 × 8 products: at the rows g and g + 8, as in
// `warps.cuh`. `cs_column` returns their columns.

// The number of elements of a chunk.
static const u32 CS_CHUNK = 16 / sizeof(item_t);

// A matrix in global memory. Elements beyond it count as zeros.
struct cs_matrix {
    const item_t* first;
    i64 row_step, column_step;
    u32 rows, columns;
};

template <u32 ROWS, u32 WIDTH>
struct cs_tile {
    static const u32 BYTES = ROWS * WIDTH * sizeof(item_t);
    static const u32 CHUNKS = WIDTH / CS_CHUNK;
    static const u32 PAGES = CHUNKS / 8;

    u8* memory;

    // Returns the place of a chunk. Rows are divided into pages of 128 bytes, and at most one page
    // of 64 bytes. Within a page, chunks are permuted by row, so that a column of eight chunks
    // touches all banks.
    CS_FN u8* at(u32 row, u32 chunk) const {
        const u32 page = chunk / 8;
        u8* first = memory + page * ROWS * 128;
        if (page < PAGES) return first + row * 128 + ((chunk ^ row) & 7) * 16;
        return first + row * 64 + ((chunk ^ row >> 1) & 3) * 16;
    }

    // Begins to copy the rows of `from`, from the row `begin` on. A thread copies one chunk of
    // several rows. Threads of a warp may return at different times.
    CS_FN void load(const cs_matrix& from, u32 begin) const {
        static_assert(CHUNKS <= CS_THREADS, "the threads copy a row at once");
        const u32 at_once = CS_THREADS / CHUNKS;
        const u32 chunk = threadIdx.x % CHUNKS, column = chunk * CS_CHUNK;
        u32 row = threadIdx.x / CHUNKS;
        if (row >= at_once) return;
        const u32 rest = column < from.columns ? from.columns - column : 0;
        const u32 count = rest < CS_CHUNK ? rest : CS_CHUNK;
        const u32 inside = from.rows - begin;
        const item_t* source = from.first + (i64)(begin + row) * from.row_step + (i64)column * from.column_step;
        const i64 step = from.row_step * at_once;
#pragma unroll
        for (u32 number = 0; number < (ROWS + at_once - 1) / at_once; ++number, row += at_once, source += step) {
            if (ROWS % at_once != 0 && row >= ROWS) break;
            const u32 own = row < inside ? count : 0;
#if CS_ALIGNED
            cs_copy(at(row, chunk), source, own * (u32)sizeof(item_t));
#else
            cs_pack<item_t, CS_CHUNK> items;
#pragma unroll
            for (u32 j = 0; j < CS_CHUNK; ++j) {
                items.at[j] = item_t(0.0f);
                if (j < own) items.at[j] = source[j * from.column_step];
            }
            *(cs_pack<item_t, CS_CHUNK>*)at(row, chunk) = items;
#endif
        }
    }
};

#if CS_MATH == 0

// Returns the first column of the sums 0 and 1 with the number `part`. Four sums of two numbers are
// contiguous.
CS_FN u32 cs_column(u32 part) { return part / 2 * 16 + threadIdx.x % 4 * 4 + part % 2 * 2; }

// Adds A · Bᵀ to the sums, for 16 rows of A from `row` on, and all rows of B. The columns of these
// sums are as in `warps.cuh`.
template <u32 N, u32 A, u32 WIDTH>
CS_FN void cs_add_scores(f32 (&sums)[N / 8][4], cs_tile<A, WIDTH> a, u32 row, cs_tile<N, WIDTH> b) {
    const u32 group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
    for (u32 chunk = 0; chunk < WIDTH / 4; ++chunk) {
        const float4 upper = *(const float4*)a.at(row + group, chunk);
        const float4 lower = *(const float4*)a.at(row + group + 8, chunk);
#pragma unroll
        for (u32 n = 0; n < N / 8; ++n) {
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                const float4 other = *(const float4*)b.at(n * 8 + place * 2 + j, chunk);
                f32& first = sums[n][j];
                f32& second = sums[n][2 + j];
                first = fmaf(upper.x, other.x, first);
                second = fmaf(lower.x, other.x, second);
                first = fmaf(upper.y, other.y, first);
                second = fmaf(lower.y, other.y, second);
                first = fmaf(upper.z, other.z, first);
                second = fmaf(lower.z, other.z, second);
                first = fmaf(upper.w, other.w, first);
                second = fmaf(lower.w, other.w, second);
            }
        }
    }
}

// Adds the product of 16 × N weights, which the warp has as sums of `cs_add_scores`, and a tile.
template <u32 N, u32 WIDTH>
CS_FN void cs_add_weighted(f32 (&sums)[WIDTH / 8][4], const f32 (&weights)[N / 8][4], cs_tile<N, WIDTH> b) {
    const u32 place = threadIdx.x % 4;
#pragma unroll
    for (u32 n = 0; n < N / 8; ++n) {
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            // The thread at the place j / 2 of the group has the weights of this row of B.
            const f32 upper = __shfl_sync(0xffffffffu, weights[n][j % 2], (int)(j / 2), 4);
            const f32 lower = __shfl_sync(0xffffffffu, weights[n][2 + j % 2], (int)(j / 2), 4);
#pragma unroll
            for (u32 part = 0; part < WIDTH / 8; part += 2) {
                const float4 other = *(const float4*)b.at(n * 8 + j, part * 2 + place);
                sums[part][0] = fmaf(upper, other.x, sums[part][0]);
                sums[part][1] = fmaf(upper, other.y, sums[part][1]);
                sums[part + 1][0] = fmaf(upper, other.z, sums[part + 1][0]);
                sums[part + 1][1] = fmaf(upper, other.w, sums[part + 1][1]);
                sums[part][2] = fmaf(lower, other.x, sums[part][2]);
                sums[part][3] = fmaf(lower, other.y, sums[part][3]);
                sums[part + 1][2] = fmaf(lower, other.z, sums[part + 1][2]);
                sums[part + 1][3] = fmaf(lower, other.w, sums[part + 1][3]);
            }
        }
    }
}

#else

CS_FN u32 cs_column(u32 part) { return part * 8 + threadIdx.x % 4 * 2; }

// Loads the fragment of A at `row`, for two chunks of columns from `chunk` on.
template <u32 ROWS, u32 WIDTH>
CS_FN void cs_load_left(u32 (&to)[4], cs_tile<ROWS, WIDTH> a, u32 row, u32 chunk) {
    const u32 lane = threadIdx.x % 32;
    cs_load_matrices(to, a.at(row + lane % 16, chunk + lane / 16));
}

// Loads the fragments of Bᵀ for 16 rows of B: two registers for each eight rows.
template <u32 ROWS, u32 WIDTH>
CS_FN void cs_load_right(u32 (&to)[4], cs_tile<ROWS, WIDTH> b, u32 row, u32 chunk) {
    const u32 lane = threadIdx.x % 32;
    cs_load_matrices(to, b.at(row + lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
}

#if CS_MATH == 2

template <u32 N, u32 A, u32 WIDTH>
CS_FN void cs_add_scores(f32 (&sums)[N / 8][4], cs_tile<A, WIDTH> a, u32 row, cs_tile<N, WIDTH> b) {
#pragma unroll
    for (u32 chunk = 0; chunk < WIDTH / 8; chunk += 2) {
        u32 left[4];
        cs_load_left(left, a, row, chunk);
#pragma unroll
        for (u32 n = 0; n < N / 8; n += 2) {
            u32 right[4];
            cs_load_right(right, b, n * 8, chunk);
            cs_multiply(sums[n], left, right[0], right[1], item_t());
            cs_multiply(sums[n + 1], left, right[2], right[3], item_t());
        }
    }
}

template <u32 N, u32 WIDTH>
CS_FN void cs_add_weighted(f32 (&sums)[WIDTH / 8][4], const f32 (&weights)[N / 8][4], cs_tile<N, WIDTH> b) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 n = 0; n < N / 8; n += 2) {
        // The sums of two neighbours, rounded, are the fragment of a left operand.
        u32 left[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const f32* pair = &weights[n + j / 2][j % 2 * 2];
            left[j] = cs_rounded_pair(pair[0], pair[1], item_t());
        }
#pragma unroll
        for (u32 part = 0; part < WIDTH / 8; part += 2) {
            u32 right[4];
            cs_load_transposed(right, b.at(n * 8 + lane % 16, part + lane / 16));
            cs_multiply(sums[part], left, right[0], right[1], item_t());
            cs_multiply(sums[part + 1], left, right[2], right[3], item_t());
        }
    }
}

#else

CS_FN void cs_round_all(u32 (&words)[4]) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) words[j] = cs_tf32(cs_bits<f32>(words[j]));
}

// A matrix of 8 × 8 elements of 16 bits is a matrix of 8 × 4 elements of 32 bits.
template <u32 N, u32 A, u32 WIDTH>
CS_FN void cs_add_scores(f32 (&sums)[N / 8][4], cs_tile<A, WIDTH> a, u32 row, cs_tile<N, WIDTH> b) {
#pragma unroll
    for (u32 chunk = 0; chunk < WIDTH / 4; chunk += 2) {
        u32 left[4];
        cs_load_left(left, a, row, chunk);
        cs_round_all(left);
#pragma unroll
        for (u32 n = 0; n < N / 8; n += 2) {
            u32 right[4];
            cs_load_right(right, b, n * 8, chunk);
            cs_round_all(right);
            cs_multiply_tf32(sums[n], left, right[0], right[1]);
            cs_multiply_tf32(sums[n + 1], left, right[2], right[3]);
        }
    }
}

// The thread at the place t has the weights of the rows 2t and 2t + 1 of B. They serve as the
// columns t and t + 4 of the left operand, because products sum in any order.
template <u32 N, u32 WIDTH>
CS_FN void cs_add_weighted(f32 (&sums)[WIDTH / 8][4], const f32 (&weights)[N / 8][4], cs_tile<N, WIDTH> b) {
    const u32 group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
#pragma unroll
    for (u32 n = 0; n < N / 8; ++n) {
        const f32(&own)[4] = weights[n];
        const u32 left[4] = {cs_tf32(own[0]), cs_tf32(own[2]), cs_tf32(own[1]), cs_tf32(own[3])};
#pragma unroll
        for (u32 part = 0; part < WIDTH / 8; ++part) {
            f32 right[2];
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                const u8* chunk = b.at(n * 8 + place * 2 + j, part * 2 + group / 4);
                right[j] = ((const f32*)chunk)[group % 4];
            }
            cs_multiply_tf32(sums[part], left, cs_tf32(right[0]), cs_tf32(right[1]));
        }
    }
}

#endif
#endif
