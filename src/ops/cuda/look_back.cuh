// Tiles that are summed side by side, and learn what comes before them from each other: by
// decoupled look-back (Merrill and Garland, 2016). A tile tells its own sum, and once it knows the
// sum of all before it, that of all up to itself. Whoever needs what is before it goes back to the
// nearest tile that told the sum of all, and adds the own sums of the tiles from there on, in their
// order.
//
// Invariant: the sum of all up to a tile is that of all up to the tile before it, merged with its
// own. It is so whether one tile tells it or the next one adds it up, so that every bit of it is
// the same on each run.
//
// A tile waits for tiles of lower numbers alone. A number is a ticket that a block takes when it
// runs, so those it waits for run too, in whatever order the device starts blocks.
//
// Elsewhere: `S` and `cs_merge`.

// What a tile has told. The memory is 0 before the launch.
#define CS_TOLD_NOTHING 0u
#define CS_TOLD_OWN 1u
#define CS_TOLD_ALL 2u

struct cs_tiles {
    unsigned long long* ticket;
    // What each tile has told, and its sums, which are read after that: they are too wide to stand
    // in one word with it. Both sums have a place, because the first may be read while the second
    // is written.
    u32* told;
    S* own;
    S* all;
};

// Reads and writes that pass by what a multiprocessor has cached.
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

// The nearest tile before the one number `tile`, which is not the first, that told the sum of all,
// where those between the two told their own. `told` is that of the first tile of their line. The
// threads of a warp come here together; what the tiles told may be read once all threads that read
// it are behind a fence.
CS_FN u64 cs_nearest(const u32* told, u64 tile) {
    const u32 lane = threadIdx.x % 32;
    u64 end = tile;
    for (;;) {
        // Before the first tile nothing is ever told; it tells of all, so nobody looks further.
        const u32 what = lane < end ? cs_told(told + (end - 1 - lane)) : CS_TOLD_NOTHING;
        const u32 all = __ballot_sync(0xffffffffu, what == CS_TOLD_ALL);
        const u32 nothing = __ballot_sync(0xffffffffu, what == CS_TOLD_NOTHING);
        // The lowest bit is of the nearest tile.
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

// The sum of all before the one number `tile`, where the tile number `nearest` told the sum of all.
// The sums of tiles are `step` apart.
CS_FN S cs_before(const S* own, const S* all, u64 step, u64 nearest, u64 tile) {
    S sum = cs_seen(all + nearest * step);
    for (u64 next = nearest + 1; next < tile; next += 4) {
        // All are asked for before the first is needed.
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
