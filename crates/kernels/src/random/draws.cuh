
// The random words of a seed, as in `philox.rs`: Philox 4x32-10 over a counter.
struct Draws {
    u64 seed;
    alignas(8) u32 sequence;
    u64 start;
};

// Writes a block of four words, after `refusals` refusals.
CS_FN void words_of(const Draws& d, u64 index, u32 refusals, u32 (&words)[4]) {
    u32 low = (u32)d.seed, high = (u32)(d.seed >> 32);
    words[0] = (u32)index;
    words[1] = (u32)(index >> 32);
    words[2] = d.sequence;
    words[3] = refusals;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 first = __umulhi(0xD2511F53u, words[0]), first_low = 0xD2511F53u * words[0];
        u32 second = __umulhi(0xCD9E8D57u, words[2]), second_low = 0xCD9E8D57u * words[2];
        words[0] = second ^ words[1] ^ low;
        words[1] = second_low;
        words[2] = first ^ words[3] ^ high;
        words[3] = first_low;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
}

// Returns the number that consists of the words at `at`.
CS_FN u64 number_at(const u32 (&words)[4], int at) {
    return (u64)words[at + 1] << 32 | words[at];
}

// The number of digits of a float's significand, and the number of elements that a block of words
// makes.
template <class S> struct cs_digits;
template <> struct cs_digits<f32> { enum { value = 24, elements = 4 }; };
template <> struct cs_digits<f16> { enum { value = 11, elements = 4 }; };
template <> struct cs_digits<bf16> { enum { value = 8, elements = 4 }; };
template <> struct cs_digits<f64> { enum { value = 53, elements = 2 }; };
