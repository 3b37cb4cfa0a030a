// Copies an operand into the middle of the output, and writes one value around it.

/// The length of the output and the stride of the operand, as an `Axis`; and the start and the
/// length of the operand along the axis.
struct Padded {
    Axis<1> axis;
    index_t before;
    index_t inside;
};

struct Frame {
    index_t first;
    Padded axes[RANK];
};

extern "C" __global__ void __launch_bounds__(256)
kernel(const word_t* __restrict__ from, word_t* __restrict__ to, Frame frame, word_t value, u64 count) {
    const index_t step = all_threads();
    for (index_t start = thread_number(); start < count; start += UNROLLED * step) {
        word_t words[UNROLLED];
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            index_t number = start + part * step;
            index_t at = frame.first;
            bool within = number < count;
#pragma unroll
            for (int axis = RANK - 1; axis >= 0; --axis) {
                const Padded& padded = frame.axes[axis];
                const index_t coordinate = (axis == 0 ? number : divided(number, padded.axis)) - padded.before;
                // A coordinate before the operand has wrapped, so it is above every length.
                within = within && coordinate < padded.inside;
                at += coordinate * padded.axis.steps[0];
            }
            words[part] = value;
            if (within) {
                words[part] = from[at];
            }
        }
#pragma unroll
        for (int part = 0; part < UNROLLED; ++part) {
            if (start + part * step < count) {
                to[start + part * step] = words[part];
            }
        }
    }
}
