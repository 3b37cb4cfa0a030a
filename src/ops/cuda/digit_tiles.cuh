// How many elements of each digit stand in the tiles of a line before one, told from tile to tile
// (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016).
// Elsewhere: `told_t`, of so many bits that the length of a line leaves the upper two free. (Sums
// that are wider than a word with its mark: `look_back.cuh`.)
//
// Of each digit a tile has a word. It is 0 at first, then what stands in the tile, and in the end
// what stands in the tile and in all before it. A word is written and read whole, its mark with its
// number, and says nothing of other memory: so no fence is needed. The first tile of a line tells
// the end at once, and every other waits for those before it alone, so whoever waits goes on if
// tiles are begun in their order.

// What stands in the tile; in the tile and in all before it.
#define CS_OWN ((told_t)1 << (8 * sizeof(told_t) - 2))
#define CS_ALL ((told_t)2 << (8 * sizeof(told_t) - 2))
#define CS_DIGITS 256

CS_FN void cs_tell(told_t* word, told_t mark, told_t number) {
    *(volatile told_t*)word = mark | number;
}

// Of this digit in all tiles before the one whose word it is, which is not the first.
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
