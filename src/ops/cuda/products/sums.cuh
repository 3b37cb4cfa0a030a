// Elements are summed in `sum_t` and stored as `out_t`. If `BEGUN`, sums are added to the values in
// memory.

CS_FN sum_t widened(item_t value) {
    return (sum_t)value;
}

CS_FN void store(out_t* __restrict__ to, index_t index, sum_t sum) {
#if BEGUN
    sum += (sum_t)to[index];
#endif
    to[index] = (out_t)sum;
}

#if PACK > 1
typedef cs_pack<item_t, PACK> pack_t;

/// Returns the elements from `index` on, which is a multiple of `PACK`.
CS_FN pack_t pack_at(const item_t* __restrict__ items, index_t index) {
    return *(const pack_t*)(items + index);
}
#endif

/// Returns to the first thread of a group the sum over its threads, 32 or all 256 of a block, in a
/// fixed order.
template <int THREADS>
CS_FN sum_t group_sum(sum_t sum) {
    if (THREADS > 1) {
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_down_sync(0xffffffffu, sum, distance);
        }
    }
    if (THREADS > 32) {
        __shared__ sum_t of_warps[8];
        // No thread writes here before all have read the last sums.
        __syncthreads();
        if (threadIdx.x % 32 == 0) {
            of_warps[threadIdx.x / 32] = sum;
        }
        __syncthreads();
        sum = 0;
        for (int warp = 0; warp < 8; ++warp) {
            sum += of_warps[warp];
        }
    }
    return sum;
}
