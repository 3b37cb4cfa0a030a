// Counts, for each value, the elements of a sorted array before the value, or, with `CS_AFTER`, up
// to and including equal elements.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const bits_t* sorted, const u64 length, const i64 sorted_step, const bits_t* values, i64* to,
       const Walk<RANK, 1> walk, const u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += step) {
        index_t at[1];
        place(walk, number, at);
        const bits_t key = cs_key(values[at[0]], (bits_t)0);
        u64 first = 0, rest = length;
        while (rest > 0) {
            const u64 half = rest / 2;
            const bits_t own = cs_key(sorted[(i64)(first + half) * sorted_step], (bits_t)0);
            if (own < key || (CS_AFTER && own == key)) {
                first += half + 1;
                rest -= half + 1;
            } else {
                rest = half;
            }
        }
        to[number] = (i64)first;
    }
}
