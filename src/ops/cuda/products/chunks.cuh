// Adds up the sums of chunks: a group of threads adds the chunks of one element.

extern "C" __global__ void __launch_bounds__(256)
kernel(const sum_t* __restrict__ sums, out_t* __restrict__ to, Walk<RANK, 1> places, index_t chunks, index_t step,
       u64 count) {
    const index_t lane = threadIdx.x % GROUP;
    const index_t groups = all_threads() / GROUP;
    for (index_t number = thread_number() / GROUP; number < count; number += groups) {
        index_t at[1];
        place(places, number, at);
        sum_t sum = 0;
#pragma unroll 4
        for (index_t chunk = lane; chunk < chunks; chunk += GROUP) {
            sum += sums[at[0] + chunk * step];
        }
        sum = group_sum<GROUP>(sum);
        if (lane == 0) {
            store(to, number, sum);
        }
    }
}
