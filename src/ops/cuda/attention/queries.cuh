// The gradient of the queries. A block computes `CS_ROWS` queries of a head, and iterates over
// tiles of keys and values. The weights are computed again. If a weight of the block is nearly 1, a
// first pass computes the rest of the mean of the weights' gradient.

// The weight from which on a mean of rounded results is too inaccurate.
static const f32 CS_NEARLY_ONE = 0.75f;

// Computes the scalar products of 16 pairs of rows. The thread receives the products of two rows.
CS_FN void cs_rows_of_products(f32 (&means)[2], const cs_matrix& a, const cs_matrix& b, u32 first) {
    const u32 lane = threadIdx.x % 32;
    for (u32 row = 0; row < 16; ++row) {
        f32 sum = 0;
        if (first + row < a.rows) {
            const item_t* left = a.first + (i64)(first + row) * a.row_step;
            const item_t* right = b.first + (i64)(first + row) * b.row_step;
            for (u32 column = lane; column < a.columns; column += 32) {
                sum += cs_load(left + (i64)column * a.column_step) * cs_load(right + (i64)column * b.column_step);
            }
        }
        for (int apart = 16; apart > 0; apart /= 2) sum += cs_exchanged(sum, apart);
        if (row == lane / 4) means[0] = sum;
        if (row == lane / 4 + 8) means[1] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const item_t* q, const item_t* k, const item_t* v, const item_t* result, const item_t* gradient,
       const cs_weights* weights, cs_mean* means, item_t* of_q, Walk<RANK, 6> heads, cs_steps q_steps, cs_steps k_steps,
       cs_steps v_steps, cs_steps result_steps, cs_steps gradient_steps, cs_steps steps, cs_lengths all) {
    extern __shared__ uint4 cs_memory[];
    typedef cs_tile<CS_ROWS, CS_DEPTH> Queries;
    typedef cs_tile<CS_ROWS, CS_WIDTH> Gradients;
    typedef cs_tile<CS_COLUMNS, CS_DEPTH> Keys;
    typedef cs_tile<CS_COLUMNS, CS_WIDTH> Values;
    const u32 stage_bytes = Keys::BYTES + Values::BYTES;
    const Queries queries = {(u8*)cs_memory};
    const Gradients gradients = {queries.memory + Queries::BYTES};
    u8* stages = gradients.memory + Gradients::BYTES;

    const u32 blocks = (all.queries + CS_ROWS - 1) / CS_ROWS;
    const u32 head = blockIdx.x / blocks, first = (blocks - 1 - blockIdx.x % blocks) * CS_ROWS;
    index_t at[6];
    place(heads, (index_t)head, at);
    const cs_matrix all_keys = cs_matrix_of(k, at[1], k_steps, all.keys, all.depth);
    const cs_matrix all_values = cs_matrix_of(v, at[2], v_steps, all.keys, all.width);
    const cs_matrix all_results = cs_matrix_of(result, at[3], result_steps, all.queries, all.width);
    const cs_matrix all_gradients = cs_matrix_of(gradient, at[4], gradient_steps, all.queries, all.width);
    queries.load(cs_matrix_of(q, at[0], q_steps, all.queries, all.depth), first);
    gradients.load(all_gradients, first);

    const u32 row = threadIdx.x / 32 * 16;
    const u32 own = first + row + threadIdx.x % 32 / 4;
    cs_weights rows[2];
    bool is_near = false;
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        rows[half] = cs_weights{0, 0};
        if (own + half * 8 < all.queries) rows[half] = weights[(u64)head * all.queries + own + half * 8];
        is_near |= rows[half].inverse > CS_NEARLY_ONE;
    }
    f32 mean[2], rest[2] = {0, 0}, sums[CS_DEPTH / 8][4] = {};
    cs_rows_of_products(mean, all_gradients, all_results, first + row);

    const u32 last = first + CS_ROWS < all.queries ? first + CS_ROWS : all.queries;
    const u32 seen = all.is_causal && last < all.keys ? last : all.keys;
    const u32 tiles = (seen + CS_COLUMNS - 1) / CS_COLUMNS;
    for (u32 pass = __syncthreads_or(is_near) ? 0 : 1; pass < 2; ++pass) {
        for (u32 tile = 0; tile <= tiles; ++tile) {
            // The copies of a tile overlap the work on the tile before.
            if (tile < tiles) {
                u8* stage = stages + tile % 2 * stage_bytes;
                Keys{stage}.load(all_keys, tile * CS_COLUMNS);
                Values{stage + Keys::BYTES}.load(all_values, tile * CS_COLUMNS);
            }
            cs_end_copies();
            if (tile == 0) continue;
            cs_await_copies<1>();
            __syncthreads();
            const u32 begin = (tile - 1) * CS_COLUMNS;
            const Keys keys = {stages + (tile - 1) % 2 * stage_bytes};
            const Values values = {keys.memory + Keys::BYTES};

            f32 scores[CS_COLUMNS / 8][4] = {}, slopes[CS_COLUMNS / 8][4] = {};
            cs_add_scores(scores, queries, row, keys);
            cs_add_scores(slopes, gradients, row, values);
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    scores[n][i] = cs_exponential(scores[n][i], rows[i / 2].most, all.factor) * rows[i / 2].inverse;
                }
            }
            if (cs_has_hidden(all, first, begin)) cs_hide(scores, 0.0f, all, own, begin);
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    const f32 slope = slopes[n][i] - mean[i / 2];
                    if (pass == 0) rest[i / 2] += scores[n][i] * slope;
                    scores[n][i] *= slope - rest[i / 2];
                }
            }
            if (pass > 0) cs_add_weighted(sums, scores, keys);
            __syncthreads();
        }
        if (pass == 0) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) rest[half] = cs_sum_of_row(rest[half]);
        }
    }
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        const u32 query = own + half * 8;
        if (threadIdx.x % 4 == 0 && query < all.queries) {
            means[(u64)head * all.queries + query] = cs_mean{mean[half], rest[half]};
        }
    }
    const f32 scale = all.scale, scales[2] = {scale, scale};
    cs_write_rows<CS_DEPTH>(of_q + at[5], steps, sums, scales, first + row, all.queries, all.depth);
}
