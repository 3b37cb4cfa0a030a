// Counts of the elements of each digit in all tiles of a line before a tile. The counts are passed
// from tile to tile (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
// Look-back", 2016). The source that includes this file must define `told_t`. The bits of `told_t`
// except the upper two must be enough for the length of a line. (For sums that do not fit a word
// with their flag, see `look_back.cuh`.)
//
// A tile has a word for each digit. The word is 0 at first. Then it is the count in the tile. In
// the end, it is the count in the tile and in all tiles before it. A word is read and written
// whole, its flag with its count. A word guards no other memory, so no fence is needed. The first
// tile of a line publishes the final count at once. Every other tile waits only for tiles before
// it. So if tiles are begun in their order, every tile that waits makes progress.

// Flags of the count in the tile, and of the count in the tile and in all tiles before it.
#define CS_OWN ((told_t)1 << (8 * sizeof(told_t) - 2))
#define CS_ALL ((told_t)2 << (8 * sizeof(told_t) - 2))
#define CS_DIGITS 256

CS_FN void cs_tell(told_t* word, told_t mark, told_t number) {
    *(volatile told_t*)word = mark | number;
}

// Returns the count of this digit in all tiles before the tile of `word`, which is not the first.
CS_FN told_t cs_before(const told_t* word) {
    told_t sum = 0, told;
    do {
        word -= CS_DIGITS;
        do {
            told = *(const volatile told_t*)word;
        } while (told == 0);
        sum += told & (CS_OWN - 1);
    } while (told < CS_ALL);
    return sum;
}
