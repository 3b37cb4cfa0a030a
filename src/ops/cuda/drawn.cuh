// Copies indices that were drawn from rows. If a row is not a distribution, it has a fault. The
// fault is reported, packed with the number of the row, and the indices that were drawn from the
// row become 0.

extern "C" __global__ void __launch_bounds__(256)
kernel(const i64* __restrict__ drawn, const i64* __restrict__ faults, i64* __restrict__ to, Picked axis, u64 each,
       u64 count) {
    const index_t step = all_threads();
    for (index_t number = thread_number(); number < count; number += step) {
        const u64 row = (u64)number / each;
        const i64 fault = faults[row];
        if (fault != 0 && (u64)number == row * each) {
            reported(row << 3 | (u64)fault, axis);
        }
        to[number] = fault == 0 ? drawn[number] : 0;
    }
}
