// The norm of each row. A row is read and written once.
//
// Elements are multiplied by a power of two, so that the largest element and the root of epsilon
// are below 4. Therefore no square overflows, and squares that underflow are negligible. A first
// mean has rounding errors. It is subtracted, and the mean of the differences corrects it.

// The largest size of an element, and half of the mean with rounding errors. The mean itself might
// overflow.
struct cs_extent {
    A most, half_mean;
};

// Returns the larger number; NaN if either is NaN.
CS_FN A cs_larger(A a, A b) { return b > a || b != b ? b : a; }

CS_FN cs_extent cs_extent_of_row(cs_extent own) {
    __shared__ cs_extent room[CS_THREADS / 32];
    return cs_merged_across<CS_WARPS>(own, CS_LANES, room, [](cs_extent a, cs_extent b) {
        return cs_extent{cs_larger(a.most, b.most), a.half_mean + b.half_mean};
    });
}

// Returns the power of two that scales `most` to 1 up to 2, or up to 4 near the largest number.
// Returns 1 if `most` is 0, infinite or NaN. `A` can represent the power, and twice the power.
CS_FN f64 cs_power_for(f64 most) {
    const u64 least = sizeof(A) == 4 ? 1023 - 126 : 1, greatest = sizeof(A) == 4 ? 1023 + 127 : 2045;
    u64 exponent = cs_bits<u64>(most) >> 52;
    if (most == 0 || exponent > 2046) return 1;
    if (exponent < least) exponent = least;
    if (exponent > greatest) exponent = greatest;
    return cs_bits<f64>((2046 - exponent) << 52);
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const T* x, const T* weight, const T* bias, T* result, A* means, A* factors, const cs_rows all) {
    const u32 lane = threadIdx.x % CS_LANES, place = threadIdx.x / CS_LANES;
    const u32 units = (u32)(all.width / CS_UNIT);
    const f64 least = 2.2250738585072014e-308, infinity = cs_bits<f64>(0x7ffull << 52);
    // If epsilon is positive, factors are finite. For a constant row, 0 times an infinite factor
    // would be NaN.
    const f64 greatest = all.epsilon == 0 ? infinity : sizeof(A) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
    for (u64 tile = blockIdx.x; tile * CS_SIDE < all.rows; tile += gridDim.x) {
        const u64 row = tile * CS_SIDE + place;
        const u32 end = row < all.rows ? units : 0;
        cs_part own;
        own.read(x + row * all.width, lane, end);
        cs_extent extent = {0, 0};
        cs_each_held(lane, end, [&](u32 k, u32 j) {
            extent.most = cs_larger(extent.most, cs_abs(own.at[k][j]));
            extent.half_mean += own.at[k][j] * (A)(all.inverse / 2);
        });
        extent = cs_extent_of_row(extent);
        const f64 most = (f64)extent.most;
        const f64 power = cs_power_for(all.root > most ? all.root : most);
        const A shift = CS_CENTRED ? extent.half_mean * (A)(2 * power) : (A)0;
        A sum = 0, squares = 0;
        cs_each_held(lane, end, [&](u32 k, u32 j) {
            const A apart = own.at[k][j] * (A)power - shift;
            own.at[k][j] = apart;
            sum += apart;
            squares += apart * apart;
        });
        const cs_sums sums = cs_sums_of_row(cs_sums{(f64)sum, (f64)squares});
        const f64 rest = CS_CENTRED ? sums.first * all.inverse : 0;
        f64 variance = sums.second * all.inverse - rest * rest;
        // The elements of a row differ by more, or not at all.
        const f64 rounding = rest * rest / (1ull << 40);
        if (variance <= rounding) variance = 0;
        f64 epsilon = all.epsilon * power * power;
        if (all.epsilon > 0 && epsilon < least) epsilon = least;
        const f64 factor = rsqrt(variance + epsilon);
        const A scale = (A)(factor > greatest ? greatest : factor);
        cs_part factors_of_columns;
        factors_of_columns.read(weight, lane, end);
#if CS_CENTRED
        cs_part addends;
        addends.read(bias, lane, end);
#endif
        cs_each_held(lane, end, [&](u32 k, u32 j) {
            const A normal = (own.at[k][j] - (A)rest) * scale;
#if CS_CENTRED
            own.at[k][j] = fma(normal, factors_of_columns.at[k][j], addends.at[k][j]);
#else
            own.at[k][j] = normal * factors_of_columns.at[k][j];
#endif
        });
        own.write(result + row * all.width, lane, end);
        if (lane == 0 && end > 0) {
            const f64 whole = factor * power;
            factors[row] = (A)(whole > greatest ? greatest : whole);
#if CS_CENTRED
            means[row] = (A)(((f64)shift + rest) / power);
#endif
        }
    }
}
