// Softmax and its logarithm, from known scales and sums of the lines. The source that includes this
// file must define the names that `softmax.cuh` needs.

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const u64 count, const u64 length, const u64 inner,
       const cs_exponents<f64>* lines, I* results) {
    const index_t step = (index_t)gridDim.x * CS_THREADS;
    for (index_t i = (index_t)blockIdx.x * CS_THREADS + threadIdx.x; i < (index_t)count; i += step) {
        const index_t line = i / (index_t)(length * inner) * (index_t)inner + i % (index_t)inner;
        const cs_exponents<f64> total = lines[line];
        // If the largest element is infinite or NaN, every result is NaN.
        const A scale = (A)total.scale;
        const A lost = scale - scale;
        const A x = (A)element(operands, i);
#if CS_LOG
        cs_store(results + i, x - scale - (A)log(total.sum) + lost);
#else
        cs_store(results + i, exp(x - scale) / (A)total.sum + lost);
#endif
    }
}
