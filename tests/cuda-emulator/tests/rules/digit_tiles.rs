//! Tests of the look-back of the radix sort (`digit_tiles.cuh`). The test writes the words that
//! concurrent tiles would publish, because the emulator never runs tiles concurrently.

use crate::rules::device::{Device, ok};

const TEXT: &str = concat!(
    "#define CS_FN __device__ __forceinline__\n",
    "typedef unsigned u32;\ntypedef unsigned long long u64;\n",
    "typedef TOLD told_t;\n",
    include_str!("../../../../src/ops/cuda/digit_tiles.cuh"),
    r#"
extern "C" __global__ void __launch_bounds__(CS_DIGITS)
kernel(told_t* words, u64* befores, u64 tile, u64 count) {
    told_t* const word = words + tile * CS_DIGITS + threadIdx.x;
    const told_t before = cs_before(word);
    cs_tell(word, CS_ALL, before + (told_t)count);
    befores[threadIdx.x] = before;
}
"#
);

const TILES: usize = 6;
const DIGITS: usize = 256;

/// Returns a tile's count of a digit. The first tile's count is large, so the sum of all counts
/// nearly fills the bits below the flags.
fn own(tile: usize, digit: usize, bits: u32) -> u64 {
    match tile {
        0 => (1 << (bits - 2)) - 20_000,
        _ => ((tile * 31 + digit * 7) % 1000) as u64,
    }
}

fn up_to(tile: usize, digit: usize, bits: u32) -> u64 {
    (0..=tile).map(|tile| own(tile, digit, bits)).sum()
}

fn check(told: &str, bits: u32) {
    let device = Device::new();
    let stream = device.stream();
    let kernel = device.kernel(&TEXT.replace("TOLD", told));
    // Depending on the digit, a tile has published its inclusive count or only its own count. The
    // first tile has always published its inclusive count.
    let word = |tile: usize, digit: usize| {
        let is_all = tile == 0 || digit >> (tile - 1) & 1 != 0;
        match is_all {
            true => 2 << (bits - 2) | up_to(tile, digit, bits),
            false => 1 << (bits - 2) | own(tile, digit, bits),
        }
    };
    let bytes = bits as usize / 8;
    let words: Vec<u8> = (0..TILES * DIGITS)
        .flat_map(|at| word(at / DIGITS, at % DIGITS).to_le_bytes()[..bytes].to_vec())
        .collect();
    let (memory, befores) = (
        device.memory((TILES + 2) * DIGITS * bytes),
        device.memory(DIGITS * 8),
    );
    device.fill(memory, 0, (TILES + 2) * DIGITS * bytes / 4, stream);
    // SAFETY: `memory` has space for more tiles than `words` contains, and the length of `words` is
    // copied.
    ok(unsafe {
        cudarc::driver::sys::cuMemcpyHtoDAsync_v2(
            memory,
            words.as_ptr().cast(),
            words.len(),
            stream,
        )
    });
    for (tile, more) in [(TILES, 0), (TILES + 1, 700)] {
        let arguments = [memory, befores, tile as u64, 700];
        ok(device.launch(kernel, [1, DIGITS as u32, 0], &arguments, stream));
        let found = device.words(befores, 2 * DIGITS, stream);
        for (digit, pair) in found.chunks(2).enumerate() {
            let expected = up_to(TILES - 1, digit, bits) + more;
            assert_eq!(
                u64::from(pair[0]) | u64::from(pair[1]) << 32,
                expected,
                "{told}: digit {digit} before tile {tile}"
            );
        }
    }
}

#[test]
fn a_tile_adds_the_counts_of_earlier_tiles() {
    check("u32", 32);
    check("u64", 64);
}
