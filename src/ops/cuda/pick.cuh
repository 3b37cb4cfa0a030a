// Copies to each word of the output the word that an index selects along an axis.

extern "C" __global__ void __launch_bounds__(256)
kernel(const word_t* __restrict__ from, const i64* __restrict__ indices, word_t* __restrict__ to, Walk<RANK, 2> walk,
       Picked axis, u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += UNROLLED * step) {
        // Reads all indices, then all words, and then writes the first word, so that the reads
        // overlap.
        index_t places[UNROLLED];
        i64 picked[UNROLLED];
        word_t words[UNROLLED];
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (number + part * step < count) {
                index_t at[2];
                place(walk, number + part * step, at);
                places[part] = at[0];
                picked[part] = indices[at[1]];
            }
        }
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            words[part] = word_t();
            if (number + part * step < count) {
                const u64 index = counted(picked[part], axis);
                if (index < axis.length) {
                    words[part] = from[places[part] + (index_t)index * (index_t)axis.step];
                }
            }
        }
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (number + part * step < count) {
                to[number + part * step] = words[part];
            }
        }
    }
}
