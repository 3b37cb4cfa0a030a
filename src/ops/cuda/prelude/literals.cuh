// Untyped literals in functions that users write: each takes the type of the other operand.

// A real number in each type, so that operations between literals are rounded as in the type that
// the literals take in the end.
struct cs_real {
    float single;
    double wide;
    f16 half;
    bf16 brain;

    CS_FN explicit cs_real(double value)
        : single((float)value), wide(value), half(cs_cast<f16>(value)), brain(cs_cast<bf16>(value)) {}
    CS_FN cs_real(float single, double wide, f16 half, bf16 brain)
        : single(single), wide(wide), half(half), brain(brain) {}

    CS_FN operator float() const { return single; }
    CS_FN operator double() const { return wide; }
    CS_FN operator f16() const { return half; }
    CS_FN operator bf16() const { return brain; }
};

// An integer modulo 2^64, of any type.
struct cs_integer {
    i64 value;

    CS_FN explicit cs_integer(i64 value) : value(value) {}

    CS_FN operator i8() const { return (i8)value; }
    CS_FN operator i16() const { return (i16)value; }
    CS_FN operator i32() const { return (i32)value; }
    CS_FN operator i64() const { return value; }
    CS_FN operator u8() const { return (u8)value; }
    CS_FN operator u16() const { return (u16)value; }
    CS_FN operator u32() const { return (u32)value; }
    CS_FN operator u64() const { return (u64)value; }
};

CS_FN f16::f16(const cs_real& value) : bits(value.half.bits) {}
CS_FN bf16::bf16(const cs_real& value) : bits(value.brain.bits) {}
CS_FN f16::f16(const cs_integer& value) : bits(cs_cast<f16>(value.value).bits) {}
CS_FN bf16::bf16(const cs_integer& value) : bits(cs_cast<bf16>(value.value).bits) {}

CS_FN cs_real cs_literal(double value) { return cs_real(value); }
CS_FN cs_integer cs_literal(i32 value) { return cs_integer(value); }
CS_FN cs_integer cs_literal(i64 value) { return cs_integer(value); }
CS_FN cs_integer cs_literal(u64 value) { return cs_integer((i64)value); }
// Converts a `long`, which some systems use as the 64-bit integer type.
CS_FN cs_integer cs_literal(long value) { return cs_integer((i64)value); }

template <class T> struct cs_is_literal { static const bool value = false; };
template <> struct cs_is_literal<cs_real> { static const bool value = true; };
template <> struct cs_is_literal<cs_integer> { static const bool value = true; };

// The first type that is not a literal; the last literal type if all are literals.
template <bool IS_LITERAL, class First, class... Rest> struct cs_first_of { typedef First type; };
template <class... All> struct cs_common_of;
template <class Only> struct cs_common_of<Only> { typedef Only type; };
template <class First, class... Rest> struct cs_common_of<First, Rest...> {
    typedef typename cs_first_of<cs_is_literal<First>::value, First, Rest...>::type type;
};
template <class First, class... Rest> struct cs_first_of<true, First, Rest...> {
    typedef typename cs_common_of<Rest...>::type type;
};
template <class... All> using cs_common = typename cs_common_of<All...>::type;

// Returns a literal in the widest type, in which functions of literals alone are computed.
CS_FN double cs_wide(cs_real value) { return value.wide; }
CS_FN i64 cs_wide(cs_integer value) { return value.value; }

// The conversions of a literal, to which Rust gives the type `f64` or `i32` before a cast.
template <class T> struct cs_conversion<T, cs_real> {
    static CS_FN T of(cs_real value) { return cs_cast<T>(value.wide); }
};
template <class T> struct cs_conversion<T, cs_integer> {
    static CS_FN T of(cs_integer value) { return cs_cast<T>((i32)value.value); }
};

#define CS_EACH(NAME)                                                                     \
    CS_FN cs_real NAME(cs_real a, cs_real b) {                                            \
        return cs_real(NAME(a.single, b.single), NAME(a.wide, b.wide),                    \
                       NAME(a.half, b.half), NAME(a.brain, b.brain));                     \
    }

#define CS_WHOLE(NAME)                                                                    \
    CS_FN cs_integer NAME(cs_integer a, cs_integer b) { return cs_integer(NAME(a.value, b.value)); }

// Operations on two types, one of them a literal.
#define CS_MIXED(NAME)                                                                    \
    template <class A, class B>                                                           \
    CS_FN auto NAME(A a, B b) -> cs_common<A, B> {                                        \
        typedef cs_common<A, B> T;                                                        \
        return NAME(T(a), T(b));                                                          \
    }

CS_EACH(cs_add) CS_EACH(cs_sub) CS_EACH(cs_mul) CS_EACH(cs_div) CS_EACH(cs_rem)
CS_WHOLE(cs_add) CS_WHOLE(cs_sub) CS_WHOLE(cs_mul) CS_WHOLE(cs_div) CS_WHOLE(cs_rem)
CS_WHOLE(cs_and) CS_WHOLE(cs_or) CS_WHOLE(cs_xor) CS_WHOLE(cs_shl) CS_WHOLE(cs_shr)
CS_MIXED(cs_add) CS_MIXED(cs_sub) CS_MIXED(cs_mul) CS_MIXED(cs_div) CS_MIXED(cs_rem)
CS_MIXED(cs_and) CS_MIXED(cs_or) CS_MIXED(cs_xor) CS_MIXED(cs_shl) CS_MIXED(cs_shr)

CS_FN cs_real cs_neg(cs_real a) {
    return cs_real(-a.single, -a.wide, cs_neg(a.half), cs_neg(a.brain));
}
CS_FN cs_integer cs_neg(cs_integer a) { return cs_integer(cs_neg(a.value)); }
CS_FN cs_integer cs_not(cs_integer a) { return cs_integer(~a.value); }

// Comparisons.
#define CS_COMPARED(OPERATOR)                                                             \
    CS_FN bool operator OPERATOR(cs_real a, cs_real b) { return a.wide OPERATOR b.wide; } \
    CS_FN bool operator OPERATOR(cs_integer a, cs_integer b) {                            \
        return a.value OPERATOR b.value;                                                  \
    }                                                                                     \
    template <class T> CS_FN bool operator OPERATOR(T a, cs_real b) { return a OPERATOR T(b); }    \
    template <class T> CS_FN bool operator OPERATOR(cs_real a, T b) { return T(a) OPERATOR b; }    \
    template <class T> CS_FN bool operator OPERATOR(T a, cs_integer b) { return a OPERATOR T(b); } \
    template <class T> CS_FN bool operator OPERATOR(cs_integer a, T b) { return T(a) OPERATOR b; }

CS_COMPARED(==) CS_COMPARED(!=) CS_COMPARED(<) CS_COMPARED(<=) CS_COMPARED(>) CS_COMPARED(>=)
