// Adds floats at indices, in the order of the indices, because the sums depend on the order. Or
// writes words at indices, where the last word for an index remains. A thread processes all indices
// of one line of the target.

extern "C" __global__ void __launch_bounds__(256)
kernel(item_t* to, const i64* __restrict__ indices, const item_t* __restrict__ values, Walk<RANK, 3> lines,
       Walk<RANK, 3> along, Picked axis, u64 length, u64 count) {
    const index_t step = all_threads();
    for (index_t line = thread_number(); line < count; line += step) {
        index_t first[3];
        place(lines, line, first);
#pragma unroll 4
        for (index_t number = 0; number < length; ++number) {
            index_t at[3];
            place(along, number, at);
            const u64 index = counted(indices[first[1] + at[1]], axis);
            const item_t value = values[first[2] + at[2]];
            if (index < axis.length) {
                item_t* const sum = to + (first[0] + (index_t)index * (index_t)axis.step);
                *sum = scattered(*sum, value);
            }
        }
    }
}
