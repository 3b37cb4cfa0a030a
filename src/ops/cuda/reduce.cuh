// Reductions. For each of several outputs, a block has `lanes` threads. Each thread reduces every
// `lanes`-th unit of its output: it reduces a few units into a `Partial`, and the partials into a
// `Total`. The totals of the lanes are merged as a tree. If there are few outputs, an output has
// several parts, each for one block. The shape, and whether several elements are read at once,
// determine which elements are reduced together.
//
// The source that includes this file must define `T`, `element`, `Operands` and `index_t` of the
// expression; and `Partial`, `Total`, `R` and the functions `cs_open`, `cs_step`, `cs_total`,
// `cs_join` and `cs_finish` of the reducer.

// A unit is the elements that a thread reads at once: with `CS_PACKED`, elements of one output;
// with `CS_ACROSS`, one element of each of several outputs; else one element. Loads of 128 bytes,
// or of 32 elements, are issued before the first value is needed. With a quarter of these loads, a
// reduction took a seventh longer on an H200. Across outputs, half of these loads is faster,
// because each output has a state.
#if CS_PACKED || CS_ACROSS
#define CS_UNIT CS_WIDTH
#else
#define CS_UNIT 1
#endif
// The number of elements of a unit that belong to one output, and the number of outputs of a unit.
#define CS_OWN (CS_ACROSS ? 1 : CS_UNIT)
#define CS_OUTPUTS (CS_UNIT / CS_OWN)
#define CS_IN_FLIGHT ((sizeof(T) > 4 ? 128 / sizeof(T) : 32) / (CS_ACROSS ? 2 : 1))
#define CS_UNITS (CS_UNIT < CS_IN_FLIGHT ? CS_IN_FLIGHT / CS_UNIT : 1)
// The number of rounds that are reduced into a partial before the partial is merged into a total.
#define CS_ROUNDS 4

// Reads the unit number `unit` of the outputs whose first unit has number `start`, in units.
CS_FN void cs_read(const Operands& operands, index_t start, index_t step, index_t unit, T (&x)[CS_UNIT]) {
#if CS_PACKED || CS_ACROSS
    elements(operands, start + unit * step, x);
#else
    x[0] = element(operands, start + unit * step);
#endif
}

// Reduces the units `first`, `first + lanes` and so on before `end` into the totals of their
// outputs. There is at least one unit.
CS_FN void cs_of_lane(const Operands& operands, index_t start, index_t step, index_t first,
                      index_t end, index_t lanes, Total (&totals)[CS_OUTPUTS]) {
    index_t at = first;
    do {
        const bool opens = at == first;
        Partial partials[CS_OUTPUTS];
        u32 taken = 0;
        for (u32 round = 0; round < CS_ROUNDS && at < end; ++round) {
            T x[CS_UNITS][CS_UNIT];
#pragma unroll
            for (u32 k = 0; k < CS_UNITS; ++k) {
                if (at + k * lanes < end) cs_read(operands, start, step, at + k * lanes, x[k]);
            }
#pragma unroll
            for (u32 k = 0; k < CS_UNITS; ++k) {
                const index_t unit = at + k * lanes;
                if (unit < end) {
#pragma unroll
                    for (u32 j = 0; j < CS_UNIT; ++j) {
                        const index_t i = unit * CS_OWN + j % CS_OWN;
                        Partial& partial = partials[j / CS_OWN];
                        // The first `k` of each round always has a unit.
                        const bool is_first = k == 0 && j % CS_OWN == 0 && round == 0;
                        partial = is_first ? cs_open(x[k][j], i) : cs_step(partial, x[k][j], i);
                    }
                    taken += CS_OWN;
                }
            }
            at += CS_UNITS * lanes;
        }
#pragma unroll
        for (u32 o = 0; o < CS_OUTPUTS; ++o) {
            const Total more = cs_total(partials[o], taken);
            totals[o] = opens ? more : cs_join(totals[o], more);
        }
    } while (at < end);
}

struct cs_folds {
    // The number of elements of an output, and the number of outputs along the faster axes.
    u64 length, inner;
    u64 outputs;
    u64 parts, part_length;
    // The number of threads of an output, a power of two, and whether the threads are adjacent.
    u64 lanes, is_beside;
};

// Stores the results, or the totals if `results` is null.
extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const Operands operands, const cs_folds folds, R* results, Total* totals) {
    __shared__ Total room[CS_THREADS];
    static_assert(sizeof(Total) <= CS_TOTAL_BYTES, "the room for totals");
    const u32 lanes = (u32)folds.lanes, side = CS_THREADS / lanes, thread = threadIdx.x;
    const u32 lane = folds.is_beside ? thread % lanes : thread / side;
    const u32 place = folds.is_beside ? thread / lanes : thread % side;
    const index_t length = (index_t)(folds.length / CS_OWN);
    const index_t inner = (index_t)(folds.inner / CS_OUTPUTS);
    const u64 units = folds.outputs / CS_OUTPUTS;
    const u64 rest = folds.length - blockIdx.y * folds.part_length;
    const index_t begin = (index_t)(blockIdx.y * folds.part_length / CS_OWN);
    const index_t count = (index_t)((rest < folds.part_length ? rest : folds.part_length) / CS_OWN);
    for (u64 tile = blockIdx.x; tile * side < units; tile += gridDim.x) {
        const index_t number = (index_t)(tile * side + place);
        u32 valid = count < lanes ? (u32)count : lanes;
        if (tile * side + place >= units) valid = 0;
        Total own[CS_OUTPUTS];
#pragma unroll
        for (u32 o = 0; o < CS_OUTPUTS; ++o) own[o] = Total();
        if (lane < valid) {
            const index_t start = folds.inner == 1 ? number * length
                                                   : number / inner * (length * inner) + number % inner;
            cs_of_lane(operands, start, inner, begin + lane, begin + count, lanes, own);
        }
#pragma unroll
        for (u32 o = 0; o < CS_OUTPUTS; ++o) {
            const Total total = folds.is_beside ? cs_merged_beside(own[o], lane, lanes, valid, room)
                                                : cs_merged_apart(own[o], lane, lanes, valid, room);
            if (lane == 0 && valid > 0) {
                const u64 output = (u64)number * CS_OUTPUTS + o;
                if (results) {
                    results[output] = cs_finish(total, folds.length);
                } else {
                    totals[output * folds.parts + blockIdx.y] = total;
                }
            }
        }
    }
}
