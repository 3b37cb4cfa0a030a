// Writes each element of a program. The source that includes this file must define the program and
// `place`.

extern "C" __global__ void __launch_bounds__(256)
kernel(const Operands o, I* out, const u64 count) {
    const index_t total = (index_t)count;
    const index_t first = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    const index_t step = (index_t)gridDim.x * blockDim.x;
#ifdef CS_WIDTH
    const index_t packs = total / CS_WIDTH;
    for (index_t n = first; n < packs; n += step) {
        T values[CS_WIDTH];
        elements(o, n, values);
        cs_pack<I, CS_WIDTH> stored;
#pragma unroll
        for (int k = 0; k < CS_WIDTH; ++k) {
            cs_store(&stored.at[k], values[k]);
        }
        *(cs_pack<I, CS_WIDTH>*)place(o, out, n * CS_WIDTH) = stored;
    }
    const index_t last = packs * CS_WIDTH + first;
    if (last < total) {
        cs_store(place(o, out, last), element(o, last));
    }
#else
    for (index_t i = first; i < total; i += step) {
        cs_store(place(o, out, i), element(o, i));
    }
#endif
}
