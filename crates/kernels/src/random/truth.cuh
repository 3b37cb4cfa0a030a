
// The first 32 binary digits of a probability, the next 32, and a flag that it is 1.
struct Probability {
    alignas(8) u32 first;
    alignas(8) u32 second;
    u64 is_certain;
};

#define CS_BLOCK 4

// Returns whether the words at a place, read as a fraction, are below the probability.
CS_FN bool is_below(const Draws& d, const Probability& p, u64 index, const u32 (&words)[4], int at) {
    if (words[at] == p.first && !p.is_certain) {
        u32 others[4];
        words_of(d, index, 1, others);
        return others[at] < p.second;
    }
    return words[at] < p.first || p.is_certain;
}
