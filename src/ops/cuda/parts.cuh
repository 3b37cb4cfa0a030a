// Merges the parts of outputs: a block merges the `parts` consecutive totals of an output. If
// `results` is null, the total goes to `merged`. Defined by the including text: the names that a
// fold needs.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
    kernel(const Total* totals, u64 parts, u64 outputs, u64 length, R* results, Total* merged) {
    __shared__ Total room[CS_THREADS / 32];
    const u32 lane = threadIdx.x;
    const u32 valid = parts < CS_THREADS ? (u32)parts : CS_THREADS;
    for (u64 output = blockIdx.x; output < outputs; output += gridDim.x) {
        Total total = Total();
        if (lane < valid) {
            total = totals[output * parts + lane];
            for (u64 part = lane + CS_THREADS; part < parts; part += CS_THREADS) {
                total = cs_join(total, totals[output * parts + part]);
            }
        }
        total = cs_merged_beside(total, lane, CS_THREADS, valid, room);
        if (lane == 0) {
            if (results) {
                results[output] = cs_finish(total, length);
            } else {
                merged[output] = total;
            }
        }
    }
}
