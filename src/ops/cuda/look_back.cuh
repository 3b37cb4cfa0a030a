// Concurrent tiles that pass prefix sums to each other by decoupled look-back (Merrill and Garland,
// 2016). A tile first publishes its own sum. Then it searches backwards for the nearest tile that
// published its inclusive sum, the sum of all tiles up to itself. To this sum, the tile adds the
// own sums of the tiles in between, in their order, and finally its own sum. The result is the
// tile's inclusive sum, which it publishes.
//
// Invariant: the inclusive sum of a tile is the inclusive sum of the tile before it, merged with
// the tile's own sum. This holds both for a sum that the tile publishes and for a sum that a later
// tile adds up. So every bit of the sum is equal on each run.
//
// A tile waits only for tiles with lower numbers. The number is a ticket that a block takes when it
// runs. Therefore all tiles that a tile waits for have started, in whatever order the device starts
// blocks.
//
// The source that includes this file must define `S` and `cs_merge`.

// The status of a tile. The memory is 0 before the launch.
#define CS_TOLD_NOTHING 0u
#define CS_TOLD_OWN 1u
#define CS_TOLD_ALL 2u

struct cs_tiles {
    unsigned long long* ticket;
    // The status of each tile, and its sums. The sums are read after the status, because they are
    // too wide for one word with the status. Both sums are stored, because the first sum may be
    // read while the second is written.
    u32* told;
    S* own;
    S* all;
};

// Reads and writes that bypass the L1 cache of the multiprocessor.
CS_FN u32 cs_told(const u32* at) { return *(const volatile u32*)at; }
CS_FN void cs_tell(u32* at, u32 what) { *(volatile u32*)at = what; }

union cs_words {
    S sum;
    u64 words[sizeof(S) / 8];
};
static_assert(sizeof(S) % 8 == 0, "sums are whole words");

CS_FN S cs_seen(const S* at) {
    cs_words seen;
#pragma unroll
    for (u32 word = 0; word < sizeof(S) / 8; ++word) seen.words[word] = ((const volatile u64*)at)[word];
    return seen.sum;
}

CS_FN void cs_show(S* at, S sum) {
    cs_words shown;
    shown.sum = sum;
#pragma unroll
    for (u32 word = 0; word < sizeof(S) / 8; ++word) ((volatile u64*)at)[word] = shown.words[word];
}

// Returns the nearest tile before number `tile` that published its inclusive sum. First waits until
// the tiles in between have published their own sums. `tile` is not the first. `told` is the status
// of the first tile of the line. All threads of the warp must call this function together. The
// published sums may be read once all threads that read them are behind a fence.
CS_FN u64 cs_nearest(const u32* told, u64 tile) {
    const u32 lane = threadIdx.x % 32;
    u64 end = tile;
    for (;;) {
        // There is no tile before the first one. The first one publishes its inclusive sum, so the
        // search ends there.
        const u32 what = lane < end ? cs_told(told + (end - 1 - lane)) : CS_TOLD_NOTHING;
        const u32 all = __ballot_sync(0xffffffffu, what == CS_TOLD_ALL);
        const u32 nothing = __ballot_sync(0xffffffffu, what == CS_TOLD_NOTHING);
        // The lowest bit belongs to the nearest tile.
        const u32 nearest = all & (0u - all);
        if ((nothing & (nearest - 1u)) != 0) continue;
        if (nearest == 0) {
            end -= 32;
            continue;
        }
        u32 back = 0;
        while ((nearest >> back) != 1u) ++back;
        return end - 1 - back;
    }
}

// Returns the sum of all tiles before number `tile`. The tile number `nearest` published its
// inclusive sum, and the tiles between `nearest` and `tile` published their own sums. Sums of tiles
// are `step` apart.
CS_FN S cs_before(const S* own, const S* all, u64 step, u64 nearest, u64 tile) {
    S sum = cs_seen(all + nearest * step);
    for (u64 next = nearest + 1; next < tile; next += 4) {
        // All loads are issued before the first value is needed.
        S more[4];
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (next + k < tile) more[k] = cs_seen(own + (next + k) * step);
        }
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            if (next + k < tile) sum = cs_merge(sum, more[k]);
        }
    }
    return sum;
}
