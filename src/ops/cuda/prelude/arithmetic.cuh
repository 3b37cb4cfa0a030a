// The arithmetic of elements as on the host: integers wrap, integer division by zero gives 0, and
// each operation on floats is rounded. If values of f16 and bf16 are passed as `float`, the caller
// rounds the result.

// `U` is unsigned and has at least 32 bits, so that no intermediate result overflows.
#define CS_INTEGER(T, U)                                                                  \
    CS_FN T cs_add(T a, T b) { return (T)((U)a + (U)b); }                                 \
    CS_FN T cs_sub(T a, T b) { return (T)((U)a - (U)b); }                                 \
    CS_FN T cs_mul(T a, T b) { return (T)((U)a * (U)b); }                                 \
    CS_FN T cs_mul_add(T a, T b, T c) { return (T)((U)a * (U)b + (U)c); }                 \
    CS_FN T cs_neg(T a) { return (T)((U)0 - (U)a); }                                      \
    CS_FN T cs_not(T a) { return (T)~a; }                                                 \
    CS_FN T cs_and(T a, T b) { return (T)(a & b); }                                       \
    CS_FN T cs_or(T a, T b) { return (T)(a | b); }                                        \
    CS_FN T cs_xor(T a, T b) { return (T)(a ^ b); }                                       \
    CS_FN T cs_left_shift(T a, T b) {                                                     \
        return (u64)b < 8 * sizeof(T) ? (T)((U)a << (u32)b) : (T)0;                       \
    }                                                                                     \
    CS_FN T cs_right_shift(T a, T b) {                                                    \
        const T sign = (T)(a < 0 ? -1 : 0);                                               \
        return (u64)b < 8 * sizeof(T) ? (T)(a >> (u32)b) : sign;                          \
    }                                                                                     \
    CS_FN T cs_pow(T a, T b) {                                                            \
        if (b < 0) return a == 1 || (a < 0 && a == (T)-1) ? ((b & 1) ? a : (T)1) : (T)0;  \
        T product = 1;                                                                    \
        for (T square = a; b != 0; b = (T)(b >> 1), square = cs_mul(square, square)) {    \
            if (b & 1) product = cs_mul(product, square);                                 \
        }                                                                                 \
        return product;                                                                   \
    }                                                                                     \
    CS_FN T cs_powi(T a, i32 b) {                                                         \
        if (b < 0) return a == 1 || (a < 0 && a == (T)-1) ? ((b & 1) ? a : (T)1) : (T)0;  \
        T product = 1;                                                                    \
        for (T square = a; b != 0; b >>= 1, square = cs_mul(square, square)) {            \
            if (b & 1) product = cs_mul(product, square);                                 \
        }                                                                                 \
        return product;                                                                   \
    }                                                                                     \
    CS_FN T cs_shl(T a, T b) { return (T)((U)a << ((u32)b & (8 * sizeof(T) - 1))); }      \
    CS_FN T cs_shr(T a, T b) { return (T)(a >> ((u32)b & (8 * sizeof(T) - 1))); }

#define CS_SIGNED(T, U)                                                                   \
    CS_INTEGER(T, U)                                                                      \
    CS_FN T cs_div(T a, T b) { return b == 0 ? (T)0 : b == -1 ? cs_neg(a) : (T)(a / b); } \
    CS_FN T cs_rem(T a, T b) { return b == 0 || b == -1 ? (T)0 : (T)(a % b); }            \
    CS_FN T cs_abs(T a) { return a < 0 ? cs_neg(a) : a; }                                 \
    CS_FN T cs_sign(T a) { return (T)((a > 0) - (a < 0)); }

#define CS_UNSIGNED(T, U)                                                                 \
    CS_INTEGER(T, U)                                                                      \
    CS_FN T cs_div(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                       \
    CS_FN T cs_rem(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); }                       \
    CS_FN T cs_abs(T a) { return a; }                                                     \
    CS_FN T cs_sign(T a) { return (T)(a != 0); }

CS_SIGNED(i8, u32)
CS_SIGNED(i16, u32)
CS_SIGNED(i32, u32)
CS_SIGNED(i64, u64)
CS_UNSIGNED(u8, u32)
CS_UNSIGNED(u16, u32)
CS_UNSIGNED(u32, u32)
CS_UNSIGNED(u64, u64)

CS_FN bool cs_not(bool a) { return !a; }
CS_FN bool cs_and(bool a, bool b) { return a & b; }
CS_FN bool cs_or(bool a, bool b) { return a | b; }
CS_FN bool cs_xor(bool a, bool b) { return a ^ b; }

#define CS_FLOAT(T, FMA, FMOD, BITS)                                                      \
    CS_FN T cs_add(T a, T b) { return a + b; }                                            \
    CS_FN T cs_sub(T a, T b) { return a - b; }                                            \
    CS_FN T cs_mul(T a, T b) { return a * b; }                                            \
    CS_FN T cs_div(T a, T b) { return a / b; }                                            \
    CS_FN T cs_rem(T a, T b) { return FMOD(a, b); }                                       \
    CS_FN T cs_mul_add(T a, T b, T c) { return FMA(a, b, c); }                            \
    CS_FN T cs_neg(T a) { return -a; }                                                    \
    CS_FN T cs_abs(T a) { return cs_bits<T>(cs_bits<BITS>(a) & ((BITS)-1 >> 1)); }        \
    CS_FN T cs_sign(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a == 0 ? (T)0 : a; }

CS_FLOAT(float, fmaf, fmodf, u32)
CS_FLOAT(double, fma, fmod, u64)

// Arithmetic on 16-bit operands, for functions that users write.
#define CS_HALF(T)                                                                        \
    CS_FN T cs_add(T a, T b) { return T((float)a + (float)b); }                           \
    CS_FN T cs_sub(T a, T b) { return T((float)a - (float)b); }                           \
    CS_FN T cs_mul(T a, T b) { return T((float)a * (float)b); }                           \
    CS_FN T cs_div(T a, T b) { return T((float)a / (float)b); }                           \
    CS_FN T cs_rem(T a, T b) { return T(fmodf((float)a, (float)b)); }                     \
    CS_FN T cs_neg(T a) { return T(-(float)a); }

CS_HALF(f16)
CS_HALF(bf16)

// The real part, the imaginary part and the conjugate of a real number.
template <class T> CS_FN T cs_re(T a) { return a; }
template <class T> CS_FN T cs_im(T) { return (T)0; }
template <class T> CS_FN T cs_conj(T a) { return a; }

// Returns the larger number; NaN if either is NaN.
template <class T>
CS_FN T cs_max(T a, T b) {
    return (a >= b || a != a) ? a : b;
}

template <class T>
CS_FN T cs_min(T a, T b) {
    return (a <= b || a != a) ? a : b;
}
