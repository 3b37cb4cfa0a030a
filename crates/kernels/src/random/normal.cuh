
struct Operands {
    Draws draws;
};

#define CS_BLOCK cs_digits<I>::elements

// Returns the natural logarithm of a positive, normal number. `ln` and `turn` are equal to the
// functions of `normal.rs`, operation by operation. No operation is contracted with another.
CS_FN double ln(double x) {
    const u64 root_half = 0x3FE6A09E667F3BCDull, one = 0x3FF0000000000000ull;
    u64 shifted = cs_bits<u64>(x) + (one - root_half);
    double k = (double)((i32)(shifted >> 52) - 1023);
    double f = cs_bits<double>((shifted & 0x000FFFFFFFFFFFFFull) + root_half) - 1.0;
    double s = f / (2.0 + f);
    double z = s * s;
    double w = z * z;
    double even = w * (3.999999999940942e-1 + w * (2.2222198432149784e-1 + w * 1.5313837699209373e-1));
    double odd = z * (6.666666666666735e-1 + w * (2.857142874366239e-1
        + w * (1.818357216161805e-1 + w * 1.4798198605116586e-1)));
    double half_square = 0.5 * f * f;
    double rest = s * (half_square + (odd + even));
    return k * 6.931471803691238e-1 - ((half_square - (rest + k * 1.9082149292705877e-10)) - f);
}

// Computes the sine and the cosine of `x` turns, for `x` from 0 to 1.
CS_FN void turn(double x, double& sine_of, double& cosine_of) {
    double quarters = 4.0 * x;
    i32 nearest = (i32)(quarters + 0.5);
    double angle = (quarters - (double)nearest) * 1.57079632679489661923;
    double z = angle * angle;
    double odd = 8.33333333332249e-3 + z * (-1.984126982985795e-4 + z * (2.7557313707070068e-6
        + z * (-2.5050760253406863e-8 + z * 1.58969099521155e-10)));
    double sine = angle + angle * z * (-1.6666666666666632e-1 + z * odd);
    double even = z * (4.16666666666666e-2 + z * (-1.388888888887411e-3 + z * (2.480158728947673e-5
        + z * (-2.7557314351390663e-7 + z * (2.087572321298175e-9 + z * -1.1359647557788195e-11)))));
    double half_square = 0.5 * z;
    double most = 1.0 - half_square;
    double cosine = most + (((1.0 - most) - half_square) + z * even);
    double first = nearest & 1 ? cosine : sine;
    double second = nearest & 1 ? sine : cosine;
    sine_of = nearest & 2 ? -first : first;
    cosine_of = (nearest + 1) & 2 ? -second : second;
}

// Returns a number between 0 and 1, excluding both.
CS_FN double open_uniform_at(const u32 (&words)[4], int at) {
    return ((double)(number_at(words, 2 * at) >> 12) + 0.5) * (1.0 / (double)(1ll << 52));
}

CS_FN void fill(const Operands&, u64, const u32 (&words)[4], I (&out)[CS_BLOCK]) {
#pragma unroll
    for (int at = 0; at < CS_BLOCK; at += 2) {
        double radius = sqrt(-2.0 * ln(open_uniform_at(words, at))), sine, cosine;
        turn(open_uniform_at(words, at + 1), sine, cosine);
        out[at] = radius * cosine;
        out[at + 1] = radius * sine;
    }
}
