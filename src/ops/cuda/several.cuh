// Writes each element of several results. The source that includes this file must define the
// program and `store_all`.

extern "C" __global__ void __launch_bounds__(256)
kernel(const Operands o, const u64 count) {
    const index_t total = (index_t)count;
    const index_t first = (index_t)blockIdx.x * blockDim.x + threadIdx.x;
    const index_t step = (index_t)gridDim.x * blockDim.x;
    for (index_t i = first; i < total; i += step) {
        store_all(o, i);
    }
}
