// Adds integers at indices, in any order, because the order does not change their sums.

CS_FN void add(u32* to, u32 value) {
    atomicAdd((unsigned int*)to, value);
}

CS_FN void add(u64* to, u64 value) {
    atomicAdd((unsigned long long*)to, (unsigned long long)value);
}

/// Adds to a part of the aligned 32 bits around it. A block of memory contains all of these bits,
/// even at its end.
template <typename Word>
CS_FN void add(Word* to, Word value) {
    const u64 address = (u64)to;
    unsigned int* const around = (unsigned int*)(address & ~(u64)3);
    const u32 shift = (u32)(address & 3) * 8;
    const u32 mask = (u32)(Word)~(Word)0 << shift;
    u32 seen = *around;
    for (;;) {
        const u32 sum = ((seen & ~mask) | ((seen + ((u32)value << shift)) & mask));
        const u32 before = atomicCAS(around, seen, sum);
        if (before == seen) {
            return;
        }
        seen = before;
    }
}

extern "C" __global__ void __launch_bounds__(256)
kernel(word_t* to, const i64* __restrict__ indices, const word_t* __restrict__ values, Walk<RANK, 3> walk, Picked axis,
       u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += step) {
        index_t at[3];
        place(walk, number, at);
        const u64 index = counted(indices[at[1]], axis);
        if (index < axis.length) {
            add(to + (at[0] + (index_t)index * (index_t)axis.step), values[at[2]]);
        }
    }
}
