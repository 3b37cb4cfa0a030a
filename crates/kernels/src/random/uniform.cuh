
struct Operands {
    Draws draws;
};

#define CS_BLOCK cs_digits<I>::elements

// Exact: the significand holds the number of every step.
template <class S>
CS_FN S uniform_at(const u32 (&words)[4], int at) {
    const int digits = cs_digits<S>::value;
    return S((float)(words[at] >> (32 - digits)) * (1.0f / (float)(1 << digits)));
}

template <>
CS_FN f64 uniform_at<f64>(const u32 (&words)[4], int at) {
    return (double)(number_at(words, 2 * at) >> 11) * (1.0 / (double)(1ll << 53));
}

CS_FN void fill(const Operands&, u64, const u32 (&words)[4], I (&out)[CS_BLOCK]) {
#pragma unroll
    for (int at = 0; at < CS_BLOCK; ++at) out[at] = uniform_at<I>(words, at);
}
