//! RMM's benchmark `random_allocations`.

/// Returns the high bits of the next state of a linear congruential generator.
pub fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// Returns `count` allocations of up to `most_bytes`, and `count` frees of random live allocations.
/// Below `most_live_bytes`, 73 % of the steps allocate. `allocate(slot, bytes)` and `free(slot)`
/// make the steps.
pub fn random_allocations<Step>(
    count: u32,
    most_bytes: u64,
    most_live_bytes: u64,
    allocate: impl Fn(u32, u64) -> Step,
    free: impl Fn(u32) -> Step,
) -> Vec<Step> {
    let (mut random, mut steps, mut live) = (1, Vec::new(), Vec::new());
    let (mut slot, mut live_bytes) = (0, 0);
    while steps.len() < 2 * count as usize {
        let bytes = 1 + (next(&mut random) << 10) % most_bytes;
        let fits = slot < count && live_bytes + bytes < most_live_bytes;
        if live.is_empty() || fits && next(&mut random) % 100 < 73 {
            steps.push(allocate(slot, bytes));
            live.push((slot, bytes));
            (slot, live_bytes) = (slot + 1, live_bytes + bytes);
        } else {
            let index = next(&mut random) as usize % live.len();
            let (slot, bytes) = live.swap_remove(index);
            steps.push(free(slot));
            live_bytes -= bytes;
        }
    }
    steps
}
