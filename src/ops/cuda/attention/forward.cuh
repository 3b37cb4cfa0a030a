// Attention with a running softmax (Dao, "FlashAttention-2", 2023). A block computes `CS_ROWS`
// queries of a head. It iterates over tiles of keys and values. Scores are never in memory.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const item_t* q, const item_t* k, const item_t* v, item_t* result, cs_weights* weights,
       Walk<RANK, 4> heads, cs_steps q_steps, cs_steps k_steps, cs_steps v_steps, cs_steps steps, cs_lengths all) {
    extern __shared__ uint4 cs_memory[];
    typedef cs_tile<CS_ROWS, CS_DEPTH> Queries;
    typedef cs_tile<CS_COLUMNS, CS_DEPTH> Keys;
    typedef cs_tile<CS_COLUMNS, CS_WIDTH> Values;
    const Queries queries = {(u8*)cs_memory};
    const Keys keys = {queries.memory + Queries::BYTES};
    const Values values = {keys.memory + Keys::BYTES};

    // The last queries of a causal attention see the most keys, so they are first.
    const u32 blocks = (all.queries + CS_ROWS - 1) / CS_ROWS;
    const u32 head = blockIdx.x / blocks, first = (blocks - 1 - blockIdx.x % blocks) * CS_ROWS;
    index_t at[4];
    place(heads, (index_t)head, at);
    const cs_matrix all_keys = cs_matrix_of(k, at[1], k_steps, all.keys, all.depth);
    const cs_matrix all_values = cs_matrix_of(v, at[2], v_steps, all.keys, all.width);
    queries.load(cs_matrix_of(q, at[0], q_steps, all.queries, all.depth), first);

    const f32 least = -cs_bits<f32>(0x7f800000u);
    const u32 row = threadIdx.x / 32 * 16;
    const u32 own = first + row + threadIdx.x % 32 / 4;
    const u32 last = first + CS_ROWS < all.queries ? first + CS_ROWS : all.queries;
    const u32 seen = all.is_causal && last < all.keys ? last : all.keys;
    f32 sums[CS_WIDTH / 8][4] = {}, most[2] = {least, least}, totals[2] = {0, 0};
    u32 tile = (seen + CS_COLUMNS - 1) / CS_COLUMNS;
    keys.load(all_keys, (tile - 1) * CS_COLUMNS);
    cs_end_copies();
    while (tile-- > 0) {
        const u32 begin = tile * CS_COLUMNS;
        cs_await_copies<0>();
        __syncthreads();
        values.load(all_values, begin);
        cs_end_copies();
        // Whole warps load and multiply matrices.
        __syncwarp();

        f32 scores[CS_COLUMNS / 8][4] = {};
        cs_add_scores(scores, queries, row, keys);
        if (cs_has_hidden(all, first, begin)) cs_hide(scores, least, all, own, begin);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            f32 larger = most[half];
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
                larger = fmaxf(larger, fmaxf(scores[n][half * 2], scores[n][half * 2 + 1]));
            }
            larger = cs_largest_of_row(larger);
            // If the row has seen no key, there is nothing to scale.
            const f32 base = larger == least ? 0 : larger;
            const f32 shrink = cs_exponential(most[half], base, all.factor);
            most[half] = larger;
            f32 total = totals[half] * shrink;
#pragma unroll
            for (u32 n = 0; n < CS_COLUMNS / 8; ++n) {
#pragma unroll
                for (u32 j = 0; j < 2; ++j) {
                    f32& score = scores[n][half * 2 + j];
                    score = cs_exponential(score, base, all.factor);
                    total += score;
                }
            }
            totals[half] = total;
#pragma unroll
            for (u32 part = 0; part < CS_WIDTH / 8; ++part) {
                sums[part][half * 2] *= shrink;
                sums[part][half * 2 + 1] *= shrink;
            }
        }

        cs_await_copies<0>();
        __syncthreads();
        if (tile > 0) {
            keys.load(all_keys, begin - CS_COLUMNS);
            cs_end_copies();
            __syncwarp();
        }
        cs_add_weighted(sums, scores, values);
    }
    f32 inverse[2];
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
        // If all scores are -inf, the quotient is NaN.
        inverse[half] = 1 / cs_sum_of_row(totals[half]);
        const u32 query = own + half * 8;
        if (weights != 0 && threadIdx.x % 4 == 0 && query < all.queries) {
            weights[(u64)head * all.queries + query] = cs_weights{most[half], inverse[half]};
        }
    }
    cs_write_rows<CS_WIDTH>(result + at[3], steps, sums, inverse, first + row, all.queries, all.width);
}
