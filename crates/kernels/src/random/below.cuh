
struct Operands {
    Draws draws;
    u64 bound;
    alignas(8) I low;
};

#define CS_BLOCK 2

CS_FN void fill(const Operands& o, u64 index, const u32 (&words)[4], I (&out)[CS_BLOCK]) {
#pragma unroll
    for (int at = 0; at < CS_BLOCK; ++at) {
        u64 draw = number_at(words, 2 * at);
        u64 steps = __umul64hi(draw, o.bound), rest = draw * o.bound;
        if (rest < o.bound) {
            // Every number must result from an equal number of draws, so the surplus draws are
            // refused.
            const u64 refused = (0 - o.bound) % o.bound;
            for (u32 refusals = 1; rest < refused; ++refusals) {
                u32 others[4];
                words_of(o.draws, index, refusals, others);
                draw = number_at(others, 2 * at);
                steps = __umul64hi(draw, o.bound);
                rest = draw * o.bound;
            }
        }
        out[at] = (I)((u64)o.low + steps);
    }
}
