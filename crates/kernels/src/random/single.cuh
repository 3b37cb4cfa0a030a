
struct Operands {
    Draws draws;
};

#define CS_BLOCK cs_digits<I>::elements

// `minus_ln` and `turn` are equal to the functions of `single.rs`, operation by operation. Every
// fused operation is an `__fmaf_rn`. No product is an operand of a plain sum, so that the compiler
// contracts nothing else.

// Returns -ln((word + 1/2) / 2^32).
CS_FN float minus_ln(u32 word) {
    const u32 root_half = 0x3F3504F3u, one = 0x3F800000u;
    u32 shifted = cs_bits<u32>((float)word + 0.5f) + (one - root_half);
    i32 exponent = 127 + 32 - (i32)(shifted >> 23);
    float f = cs_bits<float>((shifted & 0x007FFFFFu) + root_half) - 1.0f;
    bool is_near = word >= 0xB504F334u;
    float missing = (float)((~word << 1) | 1u) * (1.0f / 8589934592.0f);
    float n = is_near ? 0.0f : (float)exponent;
    f = is_near ? -missing : f;
    float sum = 7.0376836e-2f;
    sum = __fmaf_rn(sum, f, -1.151461e-1f);
    sum = __fmaf_rn(sum, f, 1.1676999e-1f);
    sum = __fmaf_rn(sum, f, -1.2420141e-1f);
    sum = __fmaf_rn(sum, f, 1.4249323e-1f);
    sum = __fmaf_rn(sum, f, -1.6668058e-1f);
    sum = __fmaf_rn(sum, f, 2.0000714e-1f);
    sum = __fmaf_rn(sum, f, -2.4999994e-1f);
    sum = __fmaf_rn(sum, f, 3.333333e-1f);
    float square = f * f;
    float beyond = __fmaf_rn(square, -0.5f, (f * square) * sum);
    return __fmaf_rn(n, 0.69314718f, -f) + __fmaf_rn(n, -1.9046543e-9f, -beyond);
}

// Computes the sine and the cosine of (word + 1/2) / 2^32 turns.
CS_FN void turn(u32 word, float& sine_of, float& cosine_of) {
    u32 quarter = (word + (1u << 29)) >> 30;
    i32 steps = (i32)((word - (quarter << 30)) << 1 | 1u);
    float angle = (float)steps * (float)(3.14159265358979323846 / 4294967296.0);
    float square = angle * angle;
    float odd = __fmaf_rn(__fmaf_rn(-1.9515296e-4f, square, 8.332161e-3f), square, -1.6666655e-1f);
    float sine = __fmaf_rn(angle * square, odd, angle);
    float even = __fmaf_rn(__fmaf_rn(2.4433157e-5f, square, -1.3887316e-3f), square, 4.1666646e-2f);
    float cosine = __fmaf_rn(square * square, even, __fmaf_rn(square, -0.5f, 1.0f));
    float first = quarter & 1 ? cosine : sine;
    float second = quarter & 1 ? sine : cosine;
    sine_of = cs_bits<float>(cs_bits<u32>(first) ^ (quarter & 2) << 30);
    cosine_of = cs_bits<float>(cs_bits<u32>(second) ^ ((quarter + 1) & 2) << 30);
}

CS_FN void fill(const Operands&, u64, const u32 (&words)[4], I (&out)[CS_BLOCK]) {
#pragma unroll
    for (int at = 0; at < CS_BLOCK; at += 2) {
        float radius = __fsqrt_rn(2.0f * minus_ln(words[at])), sine, cosine;
        turn(words[at + 1], sine, cosine);
        out[at] = cs_cast<I>(radius * cosine);
        out[at + 1] = cs_cast<I>(radius * sine);
    }
}
