// Sorts lines of up to `CS_ITEMS` elements in shared memory by a sorting network. The network is
// Batcher's, with the first step of each merge reversed: the lower of two positions always gets the
// lesser item. Items are keys with their original positions. So no two items are equal, and the
// sort is stable. A line has `padded` positions, a power of two. A block has `together` lines.

#if CS_WIDE
struct item_t {
    u64 key;
    u64 at;
};
CS_FN item_t cs_item(bits_t key, u32 at) { return item_t{(u64)key, at}; }
CS_FN bool cs_comes_before(const item_t& a, const item_t& b) {
    return a.key < b.key || (a.key == b.key && a.at < b.at);
}
CS_FN u32 cs_at(const item_t& item) { return (u32)item.at; }
#else
typedef u64 item_t;
CS_FN item_t cs_item(bits_t key, u32 at) { return (u64)key << 32 | at; }
CS_FN bool cs_comes_before(item_t a, item_t b) { return a < b; }
CS_FN u32 cs_at(item_t item) { return (u32)item; }
#endif

CS_FN void cs_exchange(item_t* items, u32 low, u32 high) {
    const item_t a = items[low], b = items[high];
    if (cs_comes_before(b, a)) {
        items[low] = b;
        items[high] = a;
    }
}

extern "C" __global__ void __launch_bounds__(CS_THREADS)
kernel(const cs_lines from, const cs_sorted to, const u64 padded, const u64 together, const u64 turned) {
    __shared__ item_t items[CS_ITEMS];
    const u32 width = (u32)padded, side = (u32)together, used = side * width;
    for (u64 tile = blockIdx.x; tile * side < from.lines; tile += gridDim.x) {
        for (u32 place = threadIdx.x; place < used; place += CS_THREADS) {
            const u64 line = tile * side + place / width;
            const u32 at = place % width;
            // Positions beyond the elements of a line sort last.
            bits_t key = (bits_t)~(bits_t)0;
            if (line < from.lines && at < from.length) {
                key = cs_key(cs_line(from, line)[(i64)at * from.step], (bits_t)turned);
            }
            items[place] = cs_item(key, at);
        }
        for (u32 run = 2; run <= width; run *= 2) {
            const u32 half = run / 2;
            __syncthreads();
            for (u32 pair = threadIdx.x; pair < used / 2; pair += CS_THREADS) {
                const u32 within = pair & (half - 1), first = (pair - within) * 2;
                cs_exchange(items, first + within, first + run - 1 - within);
            }
            for (u32 apart = half / 2; apart > 0; apart /= 2) {
                __syncthreads();
                for (u32 pair = threadIdx.x; pair < used / 2; pair += CS_THREADS) {
                    const u32 within = pair & (apart - 1), low = (pair - within) * 2 + within;
                    cs_exchange(items, low, low + apart);
                }
            }
        }
        __syncthreads();
        for (u32 place = threadIdx.x; place < used; place += CS_THREADS) {
            const u64 line = tile * side + place / width;
            const u32 rank = place % width;
            if (line >= from.lines || rank >= to.kept) continue;
            const u32 at = cs_at(items[place]);
            const u64 target = cs_first_of(to, line) + rank * to.inner;
            if (to.values) ((bits_t*)to.values)[target] = cs_line(from, line)[(i64)at * from.step];
            if (to.positions) ((i64*)to.positions)[target] = at;
        }
        __syncthreads();
    }
}
