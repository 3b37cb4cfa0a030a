// Merges the parts of outputs: adjacent threads merge the `parts` consecutive totals of an output.
// At most 32 parts have a thread each, and a block has several outputs; more parts have a block. If
// `results` is null, the total goes to `merged`. The source that includes this file must define the
// names that `reduce.cuh` needs of a reducer.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
    kernel(const Total* totals, u64 parts, u64 outputs, u64 length, R* results, Total* merged) {
    __shared__ Total room[CS_THREADS / 32];
    u32 lanes = 1;
    while (lanes < parts && lanes < 32) lanes *= 2;
    if (lanes < parts) lanes = CS_THREADS;
    const u32 side = CS_THREADS / lanes, lane = threadIdx.x % lanes;
    for (u64 tile = blockIdx.x; tile * side < outputs; tile += gridDim.x) {
        const u64 output = tile * side + threadIdx.x / lanes;
        u32 valid = parts < lanes ? (u32)parts : lanes;
        if (output >= outputs) valid = 0;
        Total total = Total();
        if (lane < valid) {
            total = totals[output * parts + lane];
            for (u64 part = lane + lanes; part < parts; part += lanes) {
                total = cs_join(total, totals[output * parts + part]);
            }
        }
        total = cs_merged_beside(total, lane, lanes, valid, room);
        if (lane == 0 && valid > 0) {
            if (results) {
                results[output] = cs_finish(total, length);
            } else {
                merged[output] = total;
            }
        }
    }
}
