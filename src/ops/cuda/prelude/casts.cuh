// Conversions like Rust's `as`: integers wrap, floats saturate, and NaN becomes 0. A conversion to
// a float is rounded once. Every value except zero is true.

// Returns the value as a `float`, rounded to odd: an inexact value is rounded to the neighbour
// whose last bit is 1. A second rounding, to half the bits, then has the result of a single
// rounding (Boldo and Melquiond, 2008).
CS_FN float cs_odd(double value) {
    float near = (float)value;
    double back = cs_abs((double)near), size = cs_abs(value);
    bool beyond = back > size;
    bool inexact = beyond | (back < size);
    return cs_bits<float>((cs_bits<u32>(near) - (u32)beyond) | (u32)inexact);
}

// Returns a number that is exact as a `double`, and that rounds to 24 bits or fewer like `value`.
// If any dropped bit is set, one low bit is set.
CS_FN double cs_sticky(u64 value) {
    u64 brief = (value & ~0xffffull) | ((value & 0xffff) != 0 ? 0x10000ull : 0ull);
    return (double)(value < (1ull << 48) ? value : brief);
}

template <class T, class From>
struct cs_conversion {
    static CS_FN T of(From value) { return (T)value; }
};

template <class From>
struct cs_conversion<bool, From> {
    static CS_FN bool of(From value) { return value != 0; }
};

template <class T>
struct cs_conversion<T, f16> {
    static CS_FN T of(f16 value) { return cs_conversion<T, float>::of(value); }
};

template <class T>
struct cs_conversion<T, bf16> {
    static CS_FN T of(bf16 value) { return cs_conversion<T, float>::of(value); }
};

// Conversions to integers; `2^BITS` is one above the largest value of the type.
#define CS_SATURATING(T, FROM, LEAST, BITS)                                               \
    template <>                                                                           \
    struct cs_conversion<T, FROM> {                                                       \
        static CS_FN T of(FROM value) {                                                   \
            const FROM beyond = (FROM)(1ull << (BITS - 1)) * (FROM)2;                     \
            if (value >= beyond) return (T)((1ull << (BITS - 1)) * 2 - 1);                \
            if (value <= (FROM)(LEAST)) return LEAST;                                     \
            return value == value ? (T)value : (T)0;                                      \
        }                                                                                 \
    };

#define CS_SATURATING_OF(FROM)                                                            \
    CS_SATURATING(i8, FROM, (i8)-128, 7)                                                  \
    CS_SATURATING(i16, FROM, (i16)-32768, 15)                                             \
    CS_SATURATING(i32, FROM, (i32)(-2147483647 - 1), 31)                                  \
    CS_SATURATING(i64, FROM, (i64)(-9223372036854775807ll - 1), 63)                       \
    CS_SATURATING(u8, FROM, (u8)0, 8)                                                     \
    CS_SATURATING(u16, FROM, (u16)0, 16)                                                  \
    CS_SATURATING(u32, FROM, (u32)0, 32)                                                  \
    CS_SATURATING(u64, FROM, (u64)0, 64)

CS_SATURATING_OF(float)
CS_SATURATING_OF(double)

// Conversions to 16-bit floats.
#define CS_NARROW(T, FROM, EXACT)                                                         \
    template <>                                                                           \
    struct cs_conversion<T, FROM> {                                                       \
        static CS_FN T of(FROM value) { return T(EXACT); }                                \
    };

#define CS_NARROWING(T, OTHER)                                                            \
    CS_NARROW(T, T, (float)value)                                                         \
    CS_NARROW(T, OTHER, (float)value)                                                     \
    CS_NARROW(T, float, value)                                                            \
    CS_NARROW(T, double, cs_odd(value))                                                   \
    CS_NARROW(T, bool, value ? 1.0f : 0.0f)                                               \
    CS_NARROW(T, i8, (float)value)                                                        \
    CS_NARROW(T, i16, (float)value)                                                       \
    CS_NARROW(T, i32, cs_odd((double)value))                                              \
    CS_NARROW(T, i64, cs_odd(value < 0 ? -cs_sticky(0ull - (u64)value) : cs_sticky((u64)value))) \
    CS_NARROW(T, u8, (float)value)                                                        \
    CS_NARROW(T, u16, (float)value)                                                       \
    CS_NARROW(T, u32, cs_odd((double)value))                                              \
    CS_NARROW(T, u64, cs_odd(cs_sticky(value)))

CS_NARROWING(f16, bf16)
CS_NARROWING(bf16, f16)

template <class T, class From>
CS_FN T cs_cast(From value) {
    return cs_conversion<T, From>::of(value);
}
