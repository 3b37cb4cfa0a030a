// Writes a row of zeros for each class, with a one at the index of the class.

extern "C" __global__ void __launch_bounds__(256)
kernel(const label_t* __restrict__ labels, word_t* __restrict__ to, Walk<RANK, 1> walk, Axis<1> columns, u64 one,
       Picked axis, u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += step) {
        index_t row = number;
        const index_t column = divided(row, columns);
        index_t at[1];
        place(walk, row, at);
        const label_t label = labels[at[0]];
        // Classes are numbered from 0. As an unsigned number, a negative class is above every
        // length. One thread of the row reports an invalid class.
        const bool known = (u64)label < axis.length;
        if (!known && column == 0) {
            reported((u64)label, axis);
        }
        to[number] = (word_t)(known && (u64)label == column ? one : 0);
    }
}
