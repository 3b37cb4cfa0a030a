
struct Operands {
    Draws draws;
    Probability p;
    alignas(8) I kept;
};

CS_FN void fill(const Operands& o, u64 index, const u32 (&words)[4], I (&out)[CS_BLOCK]) {
#pragma unroll
    for (int at = 0; at < CS_BLOCK; ++at) {
        out[at] = is_below(o.draws, o.p, index, words, at) ? cs_cast<I>(0) : o.kept;
    }
}
