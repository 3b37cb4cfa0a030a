// The offsets of elements of several operands, numbered in row-major order of common axes.
//
// `index_t` is unsigned. It has 32 bits if every number and every offset fits 31 bits, else 64
// bits. Intermediate offsets may wrap, because strides may be negative; the final offsets are
// within their operands.

/// The length of an axis, the multiplier and the shift of a division by it, and the strides of the
/// operands along it.
template <int OPERANDS>
struct Axis {
    index_t length;
    index_t multiplier;
    index_t shift;
    index_t steps[OPERANDS];
};

/// Invariant: axes that only fill up the rank are outermost, so the quotient is 0 when they are
/// reached.
template <int AXES, int OPERANDS>
struct Walk {
    index_t first[OPERANDS];
    Axis<OPERANDS> axes[AXES];
};

/// Divides `number` by the length of `axis`, and returns the remainder.
template <int OPERANDS>
CS_FN index_t divided(index_t& number, const Axis<OPERANDS>& axis) {
    const index_t rest = cs_quotient(number, axis.length, axis.multiplier, axis.shift);
    const index_t coordinate = number - rest * axis.length;
    number = rest;
    return coordinate;
}

/// Computes the offsets, in all operands, of the element with this number.
template <int AXES, int OPERANDS>
CS_FN void place(const Walk<AXES, OPERANDS>& walk, index_t number, index_t (&at)[OPERANDS]) {
#pragma unroll
    for (int operand = 0; operand < OPERANDS; ++operand) {
        at[operand] = walk.first[operand];
    }
#pragma unroll
    for (int axis = AXES - 1; axis >= 0; --axis) {
        const index_t coordinate = axis == 0 ? number : divided(number, walk.axes[axis]);
#pragma unroll
        for (int operand = 0; operand < OPERANDS; ++operand) {
            at[operand] += coordinate * walk.axes[axis].steps[operand];
        }
    }
}

/// Returns the index of this thread in the grid. `all_threads` returns the number of threads.
CS_FN index_t thread_number() {
    return (index_t)blockIdx.x * blockDim.x + threadIdx.x;
}

CS_FN index_t all_threads() {
    return (index_t)gridDim.x * blockDim.x;
}
