// The functions of real numbers that the CUDA library lacks, or computes differently from the host.

// Returns the sigmoid, without overflow for numbers of either sign.
template <class T>
CS_FN T cs_sigmoid(T x) {
    T small = exp(-cs_abs(x));
    return (x < 0 ? small : (T)1) / ((T)1 + small);
}

// Returns x · sigmoid(x). Far below 0, where the exponential alone is subnormal or 0, multiplies by
// the exponential's square root twice.
template <class T>
CS_FN T cs_silu_beyond(T x, T far, T least) {
    if (x < far) {
        T root = exp((x < least ? least : x) / 2);
        return ((x < least ? least : x) * root) * root;
    }
    T small = exp(-cs_abs(x));
    return (x < 0 ? x * small : x) / ((T)1 + small);
}

CS_FN float cs_silu(float x) { return cs_silu_beyond(x, -80.0f, -150.0f); }
CS_FN double cs_silu(double x) { return cs_silu_beyond(x, -700.0, -1100.0); }

// Returns x · erfc(-x / √2) / 2. The relative slope of erfc at `a` is about -2a. So the rounding
// error of a large `a` counts for a² units in the last place, and is compensated. `rest` is 1 / √2
// minus `root`.
CS_FN double cs_gelu(double x) {
    const double root = 0.70710678118654757, rest = -4.833646656726457e-17;
    // Below -40, the result is less than the least subnormal number.
    if (x < -40.0) x = -40.0;
    double a = -x * root;
    double lost = fma(-x, root, -a) - x * rest;
    return 0.5 * x * erfc(a) * (a > 1.0 ? 1.0 - 2.0 * a * lost : 1.0);
}

CS_FN float cs_gelu(float x) {
    const float root = 0.707106769f, rest = 1.21016175e-8f;
    // Below -12, erfc is nearly subnormal.
    if (x < -12.0f) return (float)cs_gelu((double)x);
    float a = -x * root;
    float lost = fmaf(-x, root, -a) - x * rest;
    return 0.5f * x * erfcf(a) * (a > 1.0f ? 1.0f - 2.0f * a * lost : 1.0f);
}

// Returns C's `pow` with an integer exponent. A `float` holds exponents up to 2^24.
CS_FN double cs_powi(double x, i32 exponent) { return pow(x, (double)exponent); }

CS_FN float cs_powi(float x, i32 exponent) {
    if (exponent > (1 << 24) || exponent < -(1 << 24)) return (float)cs_powi((double)x, exponent);
    return powf(x, (float)exponent);
}
