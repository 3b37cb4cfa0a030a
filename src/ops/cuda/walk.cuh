// Where the elements of several operands stand that are numbered in row-major order of common axes.
//
// `index_t` is unsigned, of 32 bits where every number and every place fits 31, else of 64. Places
// wrap on the way, as steps may be negative, and end within their operands.

/// The length of an axis with what a division by it takes, and the steps of the operands along it.
template <int OPERANDS>
struct Axis {
    index_t length;
    index_t multiplier;
    index_t shift;
    index_t steps[OPERANDS];
};

/// Invariant: axes that are there to fill the rank are outermost, so nothing is left for them to
/// divide.
template <int AXES, int OPERANDS>
struct Walk {
    index_t first[OPERANDS];
    Axis<OPERANDS> axes[AXES];
};

/// Divides `number` by the length of `axis`, and gives the remainder.
template <int OPERANDS>
CS_FN index_t divided(index_t& number, const Axis<OPERANDS>& axis) {
    const index_t rest = cs_quotient(number, axis.length, axis.multiplier, axis.shift);
    const index_t coordinate = number - rest * axis.length;
    number = rest;
    return coordinate;
}

/// Where the operands have the element of this number.
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

/// The number of this thread among all, and how many they are.
CS_FN index_t thread_number() {
    return (index_t)blockIdx.x * blockDim.x + threadIdx.x;
}

CS_FN index_t all_threads() {
    return (index_t)gridDim.x * blockDim.x;
}
