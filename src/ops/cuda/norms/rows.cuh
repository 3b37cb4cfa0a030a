// Rows that the threads of a norm hold in registers: `CS_LANES` threads hold a row, and a block has
// `CS_SIDE` rows at once. A thread has at most `CS_HELD` units of `CS_UNIT` contiguous elements.
//
// The source that includes this file must define `T`, the element type, `A`, the type of the
// computation, and these sizes. With `CS_CENTRED`, the mean of each row is subtracted.

#define CS_THREADS (CS_LANES * CS_SIDE)
#define CS_WARPS (CS_LANES / 32)

struct cs_rows {
    u64 width, rows;
    // 1 / width, and epsilon with its root.
    f64 inverse, epsilon, root;
};

// Two sums over a row.
struct cs_sums {
    f64 first, second;
};

CS_FN cs_sums cs_sums_of_row(cs_sums own) {
    __shared__ cs_sums room[CS_THREADS / 32];
    return cs_merged_across<CS_WARPS>(own, CS_LANES, room, [](cs_sums a, cs_sums b) {
        return cs_sums{a.first + b.first, a.second + b.second};
    });
}

// The elements of a row, or of a vector as long as a row, that a thread holds.
struct cs_part {
    A at[CS_HELD][CS_UNIT];

    // Reads the elements of the thread `lane`. Units from `end` on are 0.
    CS_FN void read(const T* row, u32 lane, u32 end) {
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
            const u32 unit = lane + k * CS_LANES;
            cs_pack<T, CS_UNIT> pack = {};
            if (unit < end) pack = *(const cs_pack<T, CS_UNIT>*)(row + unit * CS_UNIT);
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) at[k][j] = cs_wide(pack.at[j]);
        }
    }

    CS_FN void write(T* row, u32 lane, u32 end) const {
#pragma unroll
        for (u32 k = 0; k < CS_HELD; ++k) {
            const u32 unit = lane + k * CS_LANES;
            cs_pack<T, CS_UNIT> pack;
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) cs_store(&pack.at[j], at[k][j]);
            if (unit < end) *(cs_pack<T, CS_UNIT>*)(row + unit * CS_UNIT) = pack;
        }
    }
};

// Calls `each` for the indices of each element that a thread holds.
template <class F>
CS_FN void cs_each_held(u32 lane, u32 end, F each) {
#pragma unroll
    for (u32 k = 0; k < CS_HELD; ++k) {
        if (lane + k * CS_LANES < end) {
#pragma unroll
            for (u32 j = 0; j < CS_UNIT; ++j) each(k, j);
        }
    }
}
