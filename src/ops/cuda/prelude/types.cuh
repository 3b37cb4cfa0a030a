// The element types by their names in Rust. NVRTC has no headers, so everything is declared here.

#define CS_FN __device__ __forceinline__

typedef float f32;
typedef double f64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Reinterprets the bits of a value as another type of the same size.
template <class To, class From>
CS_FN To cs_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    union {
        From from;
        To to;
    } both;
    both.from = value;
    return both.to;
}

struct cs_real;
struct cs_integer;

// Floats of 16 bits are stored in 16 bits, and computed as `float`. The conversion from `float`
// rounds to nearest, ties to even. The conversion to `float` is exact.
struct f16 {
    u16 bits;
    f16() = default;
    CS_FN f16(float value);
    CS_FN explicit f16(const cs_real& value);
    CS_FN explicit f16(const cs_integer& value);
    CS_FN operator float() const;
};

struct bf16 {
    u16 bits;
    bf16() = default;
    CS_FN bf16(float value);
    CS_FN explicit bf16(const cs_real& value);
    CS_FN explicit bf16(const cs_integer& value);
    CS_FN operator float() const;
};

CS_FN f16 cs_f16_of_bits(u32 bits) {
    f16 value;
    value.bits = (u16)bits;
    return value;
}

CS_FN bf16 cs_bf16_of_bits(u32 bits) {
    bf16 value;
    value.bits = (u16)bits;
    return value;
}

CS_FN f16::f16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    u32 wide = cs_bits<u32>(value);
    u32 size = wide & 0x7fffffff;
    // From 2^16 on, the result is infinite. Below 2^-14, the last bit of 0.5 and the last bit of
    // the least `f16` have equal values.
    u32 narrow = (size - ((127 - 15) << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    if (size < ((127 - 14) << 23)) {
        narrow = cs_bits<u32>(cs_bits<float>(size) + 0.5f) - cs_bits<u32>(0.5f);
    }
    if (size >= ((127 + 16) << 23)) narrow = 0x7c00;
    if (size > 0x7f800000) narrow = 0x7e00 | ((size >> 13) & 0x3ff);
    bits = (u16)(narrow | ((wide >> 16) & 0x8000));
#endif
}

CS_FN f16::operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    u32 size = (u32)(bits & 0x7fff) << 13;
    u32 wide = size + ((127 - 15) << 23);
    if (size < (1 << 23)) {
        // A subnormal number lacks the implicit leading one.
        u32 one = 1 << 23, bias = (127 - 15) << 23;
        wide = cs_bits<u32>(cs_bits<float>(wide + one) - cs_bits<float>(bias + one));
    }
    if (size >= (0x7c00 << 13)) {
        wide += (127 - 15) << 23;
        if (size > (0x7c00 << 13)) wide |= 1 << 22;
    }
    return cs_bits<float>(wide | ((u32)(bits & 0x8000) << 16));
#endif
}

CS_FN bf16::bf16(float value) {
    u32 wide = cs_bits<u32>(value);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    bits = (u16)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
#endif
    // The instruction maps all NaNs to one NaN, and the addition may carry out of a NaN. The host
    // preserves the sign and the upper digits of each NaN.
    if (value != value) bits = (u16)((wide | (1 << 22)) >> 16);
}

CS_FN bf16::operator float() const {
    return cs_bits<float>((u32)bits << 16);
}

// The type that values of a stored type are computed in.
template <class S> struct cs_computed { typedef S type; };
template <> struct cs_computed<f16> { typedef float type; };
template <> struct cs_computed<bf16> { typedef float type; };
template <class S> using cs_wide_of = typename cs_computed<S>::type;

template <class S>
CS_FN cs_wide_of<S> cs_wide(S value) {
    return value;
}

template <class S>
CS_FN cs_wide_of<S> cs_load(const S* at) {
    return cs_wide(*at);
}

// True if sums in this type round.
template <class A> struct cs_rounds { static const bool value = false; };
template <> struct cs_rounds<float> { static const bool value = true; };
template <> struct cs_rounds<double> { static const bool value = true; };

// Stores a value, rounded to `f16` or `bf16`.
template <class S>
CS_FN void cs_store(S* at, cs_wide_of<S> value) {
    *at = S(value);
}

// `N` contiguous elements, which are read and written in whole words of up to 16 bytes.
template <class S, int N>
struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) cs_pack {
    S at[N];
};

// Returns `number / divisor`, both below 2^31, by multiplication with the inverse (Granlund and
// Montgomery, 1994). `multiplier` and `shift` must be computed from `divisor`.
CS_FN u32 cs_quotient(u32 number, u32 divisor, u32 multiplier, u32 shift) {
    (void)divisor;
    return (__umulhi(number, multiplier) + number) >> shift;
}

CS_FN u64 cs_quotient(u64 number, u64 divisor, u32, u32) {
    return number / divisor;
}
