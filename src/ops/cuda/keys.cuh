// The order of elements as that of numbers without a sign: NaN comes last, and both zeros are
// equal. Elsewhere: `bits_t`, which has as many bits as an element; `CS_ORDER`, 0 for numbers
// without a sign, 1 for integers with one and 2 for floats, of which `CS_INFINITE` is the bits of
// infinity.

#define CS_SIGN ((bits_t)((bits_t)1 << (8 * sizeof(bits_t) - 1)))

// What is less where the element comes earlier.
CS_FN bits_t cs_key(bits_t bits, bits_t turned) {
#if CS_ORDER == 0
    return bits ^ turned;
#elif CS_ORDER == 1
    return bits ^ CS_SIGN ^ turned;
#else
    // Magnitudes rise with their bits, so those of negative values are turned.
    const bits_t key = bits > CS_SIGN ? (bits_t)~bits : (bits_t)(bits | CS_SIGN);
    const bool is_nan = (bits_t)(bits & (bits_t)~CS_SIGN) > (bits_t)(CS_INFINITE);
    return (is_nan ? (bits_t)~(bits_t)0 : key) ^ turned;
#endif
}

// The lines of an array along one axis, numbered in row-major order of the others.
struct cs_lines {
    u64 address;
    // Elements of a line, and the step between them.
    u64 length;
    i64 step;
    u64 lines;
    // The other axes, the slowest first, and their steps.
    u64 rank;
    u64 dims[7];
    i64 steps[7];
};

CS_FN const bits_t* cs_line(const cs_lines& from, u64 line) {
    const bits_t* first = (const bits_t*)from.address;
    for (u64 axis = from.rank; axis-- > 1;) {
        first += (i64)(line % from.dims[axis]) * from.steps[axis];
        line /= from.dims[axis];
    }
    return from.rank > 0 ? first + (i64)line * from.steps[0] : first;
}

// Where sorted lines go: the first `kept` of their elements, `inner` lines side by side; to
// `values` themselves, or to `positions` where they stood.
struct cs_sorted {
    u64 kept, inner;
    u64 values, positions;
};

// The number of the first element of a line; the next ones are `inner` apart.
CS_FN u64 cs_first_of(const cs_sorted& to, u64 line) {
    if (to.inner == 1) return line * to.kept;
    return line / to.inner * (to.kept * to.inner) + line % to.inner;
}
