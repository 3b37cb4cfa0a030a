// Complex numbers, included only in sources that use them. Their arithmetic is the host's, except
// that the compiler may fuse a product and a sum.

#define CS_COMPLEX(C, R)                                                                  \
    struct C {                                                                            \
        R re, im;                                                                         \
        C() = default;                                                                    \
        CS_FN C(double re) : re((R)re), im(0) {}                                          \
        CS_FN C(R re, R im) : re(re), im(im) {}                                           \
    };                                                                                    \
    CS_FN C operator+(C a, C b) { return C(a.re + b.re, a.im + b.im); }                   \
    CS_FN C operator-(C a, C b) { return C(a.re - b.re, a.im - b.im); }                   \
    CS_FN C operator-(C a) { return C(-a.re, -a.im); }                                    \
    CS_FN C operator*(C a, C b) { return C(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re); } \
    CS_FN C& operator+=(C& a, C b) { return a = a + b; }                                  \
    CS_FN bool operator==(C a, C b) { return a.re == b.re && a.im == b.im; }              \
    CS_FN bool operator!=(C a, C b) { return !(a == b); }                                 \
    /* By the larger of the divisor's parts, so that nothing overflows on the way (Smith, 1962). */ \
    CS_FN C operator/(C a, C b) {                                                         \
        const bool is_flat = cs_abs(b.re) >= cs_abs(b.im);                                \
        const R large = is_flat ? b.re : b.im, small = is_flat ? b.im : b.re;             \
        const R ratio = large == 0 ? (R)0 : small / large;                                \
        const R scale = large == 0 ? (R)0 : large + small * ratio;                        \
        return is_flat ? C((a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale)  \
                       : C((a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale); \
    }                                                                                     \
    CS_FN C cs_add(C a, C b) { return a + b; }                                            \
    CS_FN C cs_sub(C a, C b) { return a - b; }                                            \
    CS_FN C cs_mul(C a, C b) { return a * b; }                                            \
    CS_FN C cs_div(C a, C b) { return a / b; }                                            \
    CS_FN C cs_neg(C a) { return -a; }                                                    \
    CS_FN C cs_mul_add(C a, C b, C c) {                                                   \
        return C(fma(a.re, b.re, fma(-a.im, b.im, c.re)), fma(a.re, b.im, fma(a.im, b.re, c.im))); \
    }                                                                                     \
    CS_FN R cs_abs(C a) { return hypot(a.re, a.im); }                                     \
    CS_FN R cs_re(C a) { return a.re; }                                                   \
    CS_FN R cs_im(C a) { return a.im; }                                                   \
    CS_FN C cs_conj(C a) { return C(a.re, -a.im); }                                       \
    CS_FN C __shfl_down_sync(u32 mask, C value, u32 delta) {                              \
        return C(__shfl_down_sync(mask, value.re, delta), __shfl_down_sync(mask, value.im, delta)); \
    }                                                                                     \
    template <> struct cs_rounds<C> { static const bool value = true; };                  \
    template <class T> struct cs_conversion<T, C> {                                       \
        static CS_FN T of(C value) { return cs_conversion<T, R>::of(value.re); }          \
    };                                                                                    \
    template <> struct cs_conversion<bool, C> {                                           \
        static CS_FN bool of(C value) { return value.re != 0 || value.im != 0; }          \
    };

CS_COMPLEX(c32, f32)
CS_COMPLEX(c64, f64)

#define CS_COMPLEX_CAST(TO, R, FROM)                                                      \
    template <> struct cs_conversion<TO, FROM> {                                          \
        static CS_FN TO of(FROM value) { return TO((R)value.re, (R)value.im); }           \
    };

CS_COMPLEX_CAST(c32, f32, c32)
CS_COMPLEX_CAST(c32, f32, c64)
CS_COMPLEX_CAST(c64, f64, c32)
CS_COMPLEX_CAST(c64, f64, c64)

// The conversion of a 64-bit integer, which is rounded to `f32` once.
template <> struct cs_conversion<c32, i64> {
    static CS_FN c32 of(i64 value) { return c32((f32)value, 0); }
};
template <> struct cs_conversion<c32, u64> {
    static CS_FN c32 of(u64 value) { return c32((f32)value, 0); }
};
