
// Generates the elements of whole blocks of words in each thread. Earlier draws may have used
// elements of the first block.
extern "C" __global__ void __launch_bounds__(256)
kernel(const Operands o, I* out, const u64 count) {
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 step = (u64)gridDim.x * blockDim.x;
    const u64 skipped = o.draws.start % 4 * CS_BLOCK / 4;
    const u64 blocks = (skipped + count + CS_BLOCK - 1) / CS_BLOCK;
    for (u64 block = first; block < blocks; block += step) {
        const u64 index = o.draws.start / 4 + block;
        u32 words[4];
        words_of(o.draws, index, 0, words);
        I values[CS_BLOCK];
        fill(o, index, words, values);
#pragma unroll
        for (int at = 0; at < CS_BLOCK; ++at) {
            const u64 number = block * CS_BLOCK + at - skipped;
            if (number < count) out[number] = values[at];
        }
    }
}
