// Copies each word from its offset in one operand of a walk to its offset in the other.

extern "C" __global__ void __launch_bounds__(256)
kernel(const word_t* __restrict__ from, word_t* __restrict__ to, Walk<RANK, 2> walk, u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += UNROLLED * step) {
        // All words are read before the first is written, so that the reads overlap.
        word_t words[UNROLLED];
        index_t places[UNROLLED];
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (number + part * step < count) {
                index_t at[2];
                place(walk, number + part * step, at);
                words[part] = from[at[0]];
                places[part] = at[1];
            }
        }
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (number + part * step < count) {
                to[places[part]] = words[part];
            }
        }
    }
}
