// CUDA's functions of numbers, over the compiler's and the C library's.
#pragma once

inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; ++i) r |= (v >> i & 1u) << (31 - i);
    return r;
}
inline unsigned long long __brevll(unsigned long long v) {
    return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    shift &= 31;
    return shift ? high << shift | low >> (32 - shift) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    shift &= 31;
    return shift ? low >> shift | high << (32 - shift) : low;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; ++i) r |= (unsigned)(both >> ((selector >> 4 * i & 7) * 8) & 0xff) << 8 * i;
    return r;
}

template <class To, class From>
inline To __emulated_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    __builtin_memcpy(&to, &value, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float v) { return __emulated_bits<unsigned>(v); }
inline int __float_as_int(float v) { return __emulated_bits<int>(v); }
inline float __uint_as_float(unsigned v) { return __emulated_bits<float>(v); }
inline float __int_as_float(int v) { return __emulated_bits<float>(v); }
inline long long __double_as_longlong(double v) { return __emulated_bits<long long>(v); }
inline double __longlong_as_double(long long v) { return __emulated_bits<double>(v); }
inline int __double2hiint(double v) { return (int)(__double_as_longlong(v) >> 32); }
inline int __double2loint(double v) { return (int)__double_as_longlong(v); }
inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 0.0f ? a < 1.0f ? a : 1.0f : 0.0f; }

// Out of range, CUDA's conversions give the nearest bound, and 0 for what is no number (of 64 bits: the
// bit of the sign alone).
template <class To, class From>
inline To __emulated_convert(From v, From low, From beyond, To least, To most, To of_nan) {
    return v != v ? of_nan : v < low ? least : v >= beyond ? most : (To)v;
}
#define EMULATED_CONVERSIONS(From, name)                                                                       \
    inline int __##name##2int_rz(From v) {                                                                     \
        return __emulated_convert<int, From>(v, (From)-2147483648.0, (From)2147483648.0, -2147483647 - 1, 2147483647, 0); \
    }                                                                                                          \
    inline unsigned __##name##2uint_rz(From v) {                                                               \
        return __emulated_convert<unsigned, From>(v, (From)0, (From)4294967296.0, 0u, 0xffffffffu, 0u);        \
    }                                                                                                          \
    inline long long __##name##2ll_rz(From v) {                                                                \
        return __emulated_convert<long long, From>(v, (From)-9223372036854775808.0, (From)9223372036854775808.0, \
                                                   -9223372036854775807ll - 1, 9223372036854775807ll,          \
                                                   -9223372036854775807ll - 1);                                \
    }                                                                                                          \
    inline unsigned long long __##name##2ull_rz(From v) {                                                      \
        return __emulated_convert<unsigned long long, From>(v, (From)0, (From)18446744073709551616.0, 0ull,    \
                                                            ~0ull, 1ull << 63);                                \
    }
EMULATED_CONVERSIONS(float, float)
EMULATED_CONVERSIONS(double, double)
inline int __float2int_rn(float v) { return __float2int_rz(__builtin_rintf(v)); }
inline unsigned __float2uint_rn(float v) { return __float2uint_rz(__builtin_rintf(v)); }
inline int __double2int_rn(double v) { return __double2int_rz(__builtin_rint(v)); }
inline long long __double2ll_rn(double v) { return __double2ll_rz(__builtin_rint(v)); }
inline float __double2float_rn(double v) { return (float)v; }
inline float __int2float_rn(int v) { return (float)v; }
inline float __uint2float_rn(unsigned v) { return (float)v; }
inline float __ll2float_rn(long long v) { return (float)v; }
inline float __ull2float_rn(unsigned long long v) { return (float)v; }
inline double __int2double_rn(int v) { return (double)v; }
inline double __uint2double_rn(unsigned v) { return (double)v; }
inline double __ll2double_rn(long long v) { return (double)v; }
inline double __ull2double_rn(unsigned long long v) { return (double)v; }

// The names of C, and their overloads for float.
#define EMULATED_MATH1(name)                                   \
    extern "C" double name(double);                            \
    extern "C" float name##f(float);                           \
    inline float name(float a) { return __builtin_##name##f(a); }
#define EMULATED_MATH2(name)                                   \
    extern "C" double name(double, double);                    \
    extern "C" float name##f(float, float);                    \
    inline float name(float a, float b) { return __builtin_##name##f(a, b); }
EMULATED_MATH1(acos) EMULATED_MATH1(acosh) EMULATED_MATH1(asin) EMULATED_MATH1(asinh) EMULATED_MATH1(atan)
EMULATED_MATH1(atanh) EMULATED_MATH1(cbrt) EMULATED_MATH1(ceil) EMULATED_MATH1(cos) EMULATED_MATH1(cosh)
EMULATED_MATH1(erf) EMULATED_MATH1(erfc) EMULATED_MATH1(exp) EMULATED_MATH1(exp2) EMULATED_MATH1(expm1)
EMULATED_MATH1(fabs) EMULATED_MATH1(floor) EMULATED_MATH1(lgamma) EMULATED_MATH1(log) EMULATED_MATH1(log10)
EMULATED_MATH1(log1p) EMULATED_MATH1(log2) EMULATED_MATH1(logb) EMULATED_MATH1(nearbyint) EMULATED_MATH1(rint)
EMULATED_MATH1(round) EMULATED_MATH1(sin) EMULATED_MATH1(sinh) EMULATED_MATH1(sqrt) EMULATED_MATH1(tan)
EMULATED_MATH1(tanh) EMULATED_MATH1(tgamma) EMULATED_MATH1(trunc)
EMULATED_MATH2(atan2) EMULATED_MATH2(copysign) EMULATED_MATH2(fdim) EMULATED_MATH2(fmax) EMULATED_MATH2(fmin)
EMULATED_MATH2(fmod) EMULATED_MATH2(hypot) EMULATED_MATH2(nextafter) EMULATED_MATH2(pow) EMULATED_MATH2(remainder)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
extern "C" double ldexp(double, int);
extern "C" float ldexpf(float, int);
inline float ldexp(float a, int n) { return __builtin_ldexpf(a, n); }
extern "C" double scalbn(double, int);
extern "C" float scalbnf(float, int);
extern "C" int ilogb(double);
extern "C" int ilogbf(float);
extern "C" double frexp(double, int*);
extern "C" float frexpf(float, int*);
inline float frexp(float a, int* n) { return __builtin_frexpf(a, n); }
extern "C" double modf(double, double*);
extern "C" float modff(float, float*);
inline double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
inline float rsqrtf(float a) { return (float)(1.0 / __builtin_sqrt((double)a)); }
inline float rsqrt(float a) { return rsqrtf(a); }
inline double rcbrt(double a) { return 1.0 / __builtin_cbrt(a); }
inline double exp10(double a) { return __builtin_pow(10.0, a); }
inline float exp10f(float a) { return __builtin_powf(10.0f, a); }
inline double sinpi(double a) { return __builtin_sin(a * 3.14159265358979323846); }
inline double cospi(double a) { return __builtin_cos(a * 3.14159265358979323846); }
inline float sinpif(float a) { return (float)sinpi(a); }
inline float cospif(float a) { return (float)cospi(a); }
extern "C" void sincos(double, double*, double*);
extern "C" void sincosf(float, float*, float*);
inline float __expf(float a) { return __builtin_expf(a); }
inline float __logf(float a) { return __builtin_logf(a); }
inline float __sinf(float a) { return __builtin_sinf(a); }
inline float __cosf(float a) { return __builtin_cosf(a); }
inline float __powf(float a, float b) { return __builtin_powf(a, b); }
inline float __tanf(float a) { return __builtin_tanf(a); }
inline float __log2f(float a) { return __builtin_log2f(a); }
inline float __exp2f(float a) { return __builtin_exp2f(a); }

inline bool isnan(float a) { return __builtin_isnan(a); }
inline bool isnan(double a) { return __builtin_isnan(a); }
inline bool isinf(float a) { return __builtin_isinf(a); }
inline bool isinf(double a) { return __builtin_isinf(a); }
inline bool isfinite(float a) { return __builtin_isfinite(a); }
inline bool isfinite(double a) { return __builtin_isfinite(a); }
inline bool signbit(float a) { return __builtin_signbit(a); }
inline bool signbit(double a) { return __builtin_signbit(a); }
extern "C" int abs(int);
inline long long abs(long long a) { return a < 0 ? -a : a; }
inline float abs(float a) { return __builtin_fabsf(a); }
inline double abs(double a) { return __builtin_fabs(a); }
inline long long llabs(long long a) { return a < 0 ? -a : a; }

#define EMULATED_MIN_MAX(T)                         \
    inline T min(T a, T b) { return a < b ? a : b; } \
    inline T max(T a, T b) { return a > b ? a : b; }
EMULATED_MIN_MAX(int)
EMULATED_MIN_MAX(unsigned)
EMULATED_MIN_MAX(long long)
EMULATED_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
