// The gradients of keys and values. A block computes `CS_ROWS` keys of a head, and iterates over
// tiles of queries. If several heads share the keys and the values, the block iterates over the
// queries of all of them. It computes transposed scores, so that the weights of a tile are the left
// operand of the products. `CS_OF_KEYS` and `CS_OF_VALUES` select the gradients. Wide heads need a
// launch for each of the two, because the registers of a warp cannot hold both.

static_assert(CS_COLUMNS <= CS_THREADS, "a thread copies the softmax of a query");

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const item_t* q, const item_t* k, const item_t* v, const item_t* gradient, const cs_weights* weights,
       const cs_mean* means, item_t* of_k, item_t* of_v, Walk<RANK, 7> heads, Walk<RANK, 3> sharing, cs_steps q_steps,
       cs_steps k_steps, cs_steps v_steps, cs_steps gradient_steps, cs_steps of_k_steps, cs_steps of_v_steps,
       cs_lengths all) {
    extern __shared__ uint4 cs_memory[];
    typedef cs_tile<CS_ROWS, CS_DEPTH> Keys;
    typedef cs_tile<CS_ROWS, CS_WIDTH> Values;
    typedef cs_tile<CS_COLUMNS, CS_DEPTH> Queries;
    typedef cs_tile<CS_COLUMNS, CS_WIDTH> Gradients;
    const u32 stage_bytes = Queries::BYTES + Gradients::BYTES;
    const Keys keys = {(u8*)cs_memory};
    const Values values = {keys.memory + Keys::BYTES};
    u8* stages = values.memory + Values::BYTES;
    cs_weights* tile_weights = (cs_weights*)(stages + 2 * stage_bytes);
    cs_mean* tile_means = (cs_mean*)(tile_weights + 2 * CS_COLUMNS);

    const u32 blocks = (all.keys + CS_ROWS - 1) / CS_ROWS;
    const u32 first = blockIdx.x % blocks * CS_ROWS;
    // The place of the first head's queries, gradient and softmax.
    index_t at[7];
    place(heads, (index_t)(blockIdx.x / blocks), at);
    keys.load(cs_matrix_of(k, at[1], k_steps, all.keys, all.depth), first);
    values.load(cs_matrix_of(v, at[2], v_steps, all.keys, all.width), first);

    const u32 row = threadIdx.x / 32 * 16;
#if CS_OF_KEYS
    f32 key_sums[CS_DEPTH / 8][4] = {};
#endif
#if CS_OF_VALUES
    f32 value_sums[CS_WIDTH / 8][4] = {};
#endif
    // In a causal attention, earlier queries do not see the block's keys.
    const u32 skipped = all.is_causal ? first / CS_COLUMNS : 0;
    const u32 tiles = (all.queries + CS_COLUMNS - 1) / CS_COLUMNS;
    for (u32 number = 0; number < all.sharing; ++number) {
        index_t apart[3];
        place(sharing, (index_t)number, apart);
        const cs_matrix all_queries = cs_matrix_of(q, at[0] + apart[0], q_steps, all.queries, all.depth);
        const cs_matrix all_gradients =
            cs_matrix_of(gradient, at[3] + apart[1], gradient_steps, all.queries, all.width);
        const index_t first_query = at[6] + apart[2];
        for (u32 tile = skipped; tile <= tiles; ++tile) {
            const u32 parity = tile % 2;
            if (tile < tiles) {
                const Queries next = {stages + parity * stage_bytes};
                next.load(all_queries, tile * CS_COLUMNS);
                Gradients{next.memory + Queries::BYTES}.load(all_gradients, tile * CS_COLUMNS);
                if (threadIdx.x < CS_COLUMNS) {
                    const u32 column = threadIdx.x;
                    const u32 query = tile * CS_COLUMNS + column;
                    const bool is_inside = query < all.queries;
                    tile_weights[parity * CS_COLUMNS + column] = is_inside ? weights[first_query + query] : cs_weights{0, 0};
                    tile_means[parity * CS_COLUMNS + column] = is_inside ? means[first_query + query] : cs_mean{0, 0};
                }
            }
            cs_end_copies();
            if (tile == skipped) continue;
            cs_await_copies<1>();
            __syncthreads();
            const u32 begin = (tile - 1) * CS_COLUMNS;
            const u32 held = 1 - parity;
            const Queries queries = {stages + held * stage_bytes};
            const Gradients gradients = {queries.memory + Queries::BYTES};

            f32 scores[CS_COLUMNS / 8][4] = {};
            cs_add_scores(scores, keys, row, queries);
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    const cs_weights other = tile_weights[held * CS_COLUMNS + n * 8 + threadIdx.x % 4 * 2 + i % 2];
                    scores[n][i] = cs_exponential(scores[n][i], other.most, all.factor) * other.inverse;
                }
            }
            // In the tiles on the diagonal of a causal attention, queries before a key do not see
            // it. Queries beyond the last see nothing, also if a score is infinite.
            const bool is_diagonal = all.is_causal && begin < first + CS_ROWS;
            if (is_diagonal || begin + CS_COLUMNS > all.queries) {
                const u32 own = first + row + threadIdx.x % 32 / 4;
#pragma unroll
                for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        const u32 query = begin + n * 8 + threadIdx.x % 4 * 2 + i % 2;
                        const bool is_before = is_diagonal && query < own + i / 2 * 8;
                        if (is_before || query >= all.queries) scores[n][i] = 0;
                    }
                }
            }
#if CS_OF_VALUES
            cs_add_weighted(value_sums, scores, gradients);
#endif
#if CS_OF_KEYS
            f32 slopes[CS_COLUMNS / 8][4] = {};
            cs_add_scores(slopes, values, row, gradients);
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    const cs_mean other = tile_means[held * CS_COLUMNS + n * 8 + threadIdx.x % 4 * 2 + i % 2];
                    scores[n][i] *= slopes[n][i] - other.mean - other.rest;
                }
            }
            cs_add_weighted(key_sums, scores, queries);
#endif
            __syncthreads();
        }
    }
    // If no query sees the keys, their copies are still in progress.
    cs_end_copies();
    cs_await_copies<0>();
#if CS_OF_KEYS
    const f32 scale = all.scale, scales[2] = {scale, scale};
    cs_write_rows<CS_DEPTH>(of_k + at[4], of_k_steps, key_sums, scales, first + row, all.keys, all.depth);
#endif
#if CS_OF_VALUES
    const f32 ones[2] = {1, 1};
    cs_write_rows<CS_WIDTH>(of_v + at[5], of_v_steps, value_sums, ones, first + row, all.keys, all.width);
#endif
}
