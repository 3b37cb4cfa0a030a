// Maps the order of elements to the order of unsigned integers: NaN comes last, and both zeros are
// equal. The source that includes this file must define `bits_t`, with the number of bits of an
// element, and `CS_ORDER`. `CS_ORDER` is 0 for unsigned integers, 1 for signed integers and 2 for
// floats. For floats, it must also define `CS_INFINITE`, the bits of infinity.

#define CS_SIGN ((bits_t)((bits_t)1 << (8 * sizeof(bits_t) - 1)))

// Returns the key of an element. The key is less if the element comes earlier. For descending
// order, `turned` has all bits set.
CS_FN bits_t cs_key(bits_t bits, bits_t turned) {
#if CS_ORDER == 0
    return bits ^ turned;
#elif CS_ORDER == 1
    return bits ^ CS_SIGN ^ turned;
#else
    // Magnitudes rise with their bits, so the bits of negative values are inverted.
    const bits_t key = bits > CS_SIGN ? (bits_t)~bits : (bits_t)(bits | CS_SIGN);
    const bool is_nan = (bits_t)(bits & (bits_t)~CS_SIGN) > (bits_t)(CS_INFINITE);
    return (is_nan ? (bits_t)~(bits_t)0 : key) ^ turned;
#endif
}

// The lines of an array along one axis, numbered in row-major order of the other axes.
struct cs_lines {
    u64 address;
    // The number of elements of a line, and the stride between them.
    u64 length;
    i64 step;
    u64 lines;
    // The other axes, the slowest first, and their strides.
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

// The destination of sorted lines: the first `kept` elements of each line, for `inner` interleaved
// lines. The elements go to `values`, and their former positions go to `positions`.
struct cs_sorted {
    u64 kept, inner;
    u64 values, positions;
};

// Returns the index of the first element of a line. The next elements are `inner` apart.
CS_FN u64 cs_first_of(const cs_sorted& to, u64 line) {
    if (to.inner == 1) return line * to.kept;
    return line / to.inner * (to.kept * to.inner) + line % to.inner;
}
