// The intermediate states of reductions and scans, and their exchange between threads.

// Returns a value of another thread: applies `shuffle` to each word of `value`. All threads of the
// warp must call this function together. If there is no such thread, the result is meaningless.
template <class S, class F>
CS_FN S cs_shuffled(S value, F shuffle) {
    union {
        S value;
        u32 words[(sizeof(S) + 3) / 4];
    } from, to;
    from.value = value;
#pragma unroll
    for (u32 word = 0; word < (sizeof(S) + 3) / 4; ++word) to.words[word] = shuffle(from.words[word]);
    return to.value;
}

// Returns the value of the thread that is `delta` places later, among each `width` threads of a
// warp.
template <class S>
CS_FN S cs_from_above(S value, u32 delta, u32 width) {
    return cs_shuffled(value, [=](u32 word) { return __shfl_down_sync(0xffffffffu, word, delta, (int)width); });
}

// Returns the value of the thread that is `delta` places earlier, among each `width` threads of a
// warp.
template <class S>
CS_FN S cs_from_below(S value, u32 delta, u32 width) {
    return cs_shuffled(value, [=](u32 word) { return __shfl_up_sync(0xffffffffu, word, delta, (int)width); });
}

// Returns the value of the thread number `lane` of each `width` threads.
template <class S>
CS_FN S cs_from(S value, u32 lane, u32 width) {
    return cs_shuffled(value, [=](u32 word) { return __shfl_sync(0xffffffffu, word, (int)lane, (int)width); });
}

// Returns the value of the thread whose number differs from this thread's by the bit `apart`.
template <class S>
CS_FN S cs_across(S value, u32 apart, u32 width) {
    return cs_from(value, (threadIdx.x % width) ^ apart, width);
}

// A sum in a type that is wide enough.
template <class A>
struct cs_plain {
    A sum;
};

template <class A>
CS_FN cs_plain<A> cs_merge(cs_plain<A> a, cs_plain<A> b) {
    return cs_plain<A>{cs_add(a.sum, b.sum)};
}

// Returns the sum with one more element.
template <class A>
CS_FN cs_plain<A> cs_with(cs_plain<A> a, A value) {
    return cs_plain<A>{cs_add(a.sum, value)};
}

template <class A>
CS_FN A cs_value(cs_plain<A> a) {
    return a.sum;
}

// A product in a type that is wide enough.
template <class A>
struct cs_product {
    A product;
};

template <class A>
CS_FN cs_product<A> cs_merge(cs_product<A> a, cs_product<A> b) {
    return cs_product<A>{cs_mul(a.product, b.product)};
}

template <class A>
CS_FN A cs_value(cs_product<A> a) {
    return a.product;
}

// A sum and its rounding error, by Knuth's TwoSum. So the error of the sum does not grow with the
// number of merged values.
template <class A>
struct cs_compensated {
    A sum, error;
};

template <class A>
CS_FN cs_compensated<A> cs_merge(cs_compensated<A> a, cs_compensated<A> b) {
    A sum = a.sum + b.sum;
    A gained = sum - a.sum;
    A lost = (a.sum - (sum - gained)) + (b.sum - gained);
    return cs_compensated<A>{sum, (a.error + b.error) + lost};
}

template <class A>
CS_FN cs_compensated<A> cs_with(cs_compensated<A> a, A value) {
    A sum = a.sum + value;
    A gained = sum - a.sum;
    A lost = (a.sum - (sum - gained)) + (value - gained);
    return cs_compensated<A>{sum, a.error + lost};
}

// An infinite sum makes the error NaN, which is then ignored.
template <class A>
CS_FN A cs_value(cs_compensated<A> a) {
    return a.error != a.error ? a.sum : a.sum + a.error;
}

// The state of a sum of `A`. Integers need no rounding error.
template <class A, bool ROUNDS = cs_rounds<A>::value> struct cs_sum_of { typedef cs_plain<A> type; };
template <class A> struct cs_sum_of<A, true> { typedef cs_compensated<A> type; };
template <class A> using cs_sum = typename cs_sum_of<A>::type;

// An element and its index.
template <class T>
struct cs_place {
    T value;
    i64 index;
};

// Returns the first of the largest elements; NaN is larger than everything.
template <class T>
CS_FN cs_place<T> cs_first_max(cs_place<T> a, cs_place<T> b) {
    bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    bool better = b.value > a.value || (b_is_nan && !a_is_nan);
    bool equal = b.value == a.value || (b_is_nan && a_is_nan);
    return better || (equal && b.index < a.index) ? b : a;
}

// Returns the first of the smallest elements; NaN is smaller than everything.
template <class T>
CS_FN cs_place<T> cs_first_min(cs_place<T> a, cs_place<T> b) {
    bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    bool better = b.value < a.value || (b_is_nan && !a_is_nan);
    bool equal = b.value == a.value || (b_is_nan && a_is_nan);
    return better || (equal && b.index < a.index) ? b : a;
}

// The sums over a few elements of their distances from `shift`, which is the first element, and of
// the squares of the distances. Both sums may be out of the range of `A`.
template <class A>
struct cs_block {
    A shift;
    double sum, squares;
};

// Starts a block with one element. `value - value` is NaN, not 0, if the element is infinite or
// NaN.
template <class A>
CS_FN cs_block<A> cs_opened(A value) {
    return cs_block<A>{value, (double)(value - value), (double)(value - value)};
}

template <class A>
CS_FN cs_block<A> cs_stepped(cs_block<A> a, A value) {
    double distance = (double)(value - a.shift);
    return cs_block<A>{a.shift, a.sum + distance, a.squares + distance * distance};
}

// The number of elements, their mean as a sum of two numbers, and the sum of their squared
// distances from the mean. For the means of long blocks, one number would be enough. The means of
// these blocks differ by less than the rounding error of a large mean.
struct cs_moments {
    double count, mean, rest, squares;
};

// Adds `by` to a mean. The part of the sum that `mean` cannot hold goes to `rest`.
CS_FN cs_moments cs_moved(double count, double mean, double rest, double by, double squares) {
    double moved = mean + by;
    double gained = moved - mean;
    double lost = (mean - (moved - gained)) + (by - gained);
    // If the sum is beyond the largest numbers, there is no rest.
    return cs_moments{count, moved, lost != lost ? 0.0 : rest + lost, squares};
}

template <class A>
CS_FN cs_moments cs_moments_of(cs_block<A> a, u32 n) {
    double count = (double)n, sum = a.sum;
    double mean = sum / count;
    double squares = a.squares - sum * mean;
    // Rounding must not make the sum negative; NaN remains.
    return cs_moved(count, (double)a.shift, 0.0, mean, squares < 0.0 ? 0.0 : squares);
}

// Merges two moments as in Chan, Golub and LeVeque, 1979.
CS_FN cs_moments cs_merge(cs_moments a, cs_moments b) {
    double count = a.count + b.count;
    double apart = (b.mean - a.mean) + (b.rest - a.rest);
    double share = b.count / count;
    return cs_moved(count, a.mean, a.rest, apart * share,
                    a.squares + b.squares + apart * apart * a.count * share);
}

// The sums of squares of large, middle and small elements (Anderson, 2017). Only elements of `f64`
// have squares that do not fit `f64`.
struct cs_squares {
    double large, middle, small;
};

#define CS_LARGE cs_bits<double>((u64)(1023 + 486) << 52)
#define CS_SMALL cs_bits<double>((u64)(1023 - 511) << 52)
#define CS_DOWN cs_bits<double>((u64)(1023 - 538) << 52)
#define CS_UP cs_bits<double>((u64)(1023 + 537) << 52)

template <class T>
CS_FN cs_squares cs_square(cs_squares a, T value) {
    double x = (double)value;
    return cs_squares{a.large, a.middle + x * x, a.small};
}

CS_FN cs_squares cs_square(cs_squares a, double value) {
    double x = cs_abs(value);
    // NaN is neither large nor small.
    double large = x > CS_LARGE ? x * CS_DOWN : 0.0;
    double small = x < CS_SMALL ? x * CS_UP : 0.0;
    double middle = large == 0.0 && small == 0.0 ? x : 0.0;
    return cs_squares{a.large + large * large, a.middle + middle * middle, a.small + small * small};
}

CS_FN cs_squares cs_merge(cs_squares a, cs_squares b) {
    return cs_squares{a.large + b.large, a.middle + b.middle, a.small + b.small};
}

CS_FN double cs_root(cs_squares a) {
    // `!=` is true for NaN too. Small elements are negligible beside large ones.
    if (a.large != 0.0) return sqrt(a.large + a.middle * CS_DOWN * CS_DOWN) / CS_DOWN;
    double middle = sqrt(a.middle);
    if (a.small != 0.0) {
        double small = sqrt(a.small) / CS_UP;
        double less = small < middle ? small : middle, more = small < middle ? middle : small;
        double ratio = less / more;
        return more * sqrt(1.0 + ratio * ratio);
    }
    return middle;
}

// The sum of exp(x - `scale`) over several x. The scale is the largest x, which may be infinite. If
// x equals the scale, their distance counts as 0.
template <class A>
struct cs_exponents {
    A scale, sum;
};

template <class A>
CS_FN cs_exponents<A> cs_merge(cs_exponents<A> a, cs_exponents<A> b) {
    A apart = b.scale == a.scale ? (A)0 : b.scale - a.scale;
    A ratio = exp(-cs_abs(apart));
    // The sum with the smaller scale is scaled down.
    if (b.scale > a.scale) return cs_exponents<A>{b.scale, a.sum * ratio + b.sum};
    return cs_exponents<A>{a.scale, a.sum + b.sum * ratio};
}
