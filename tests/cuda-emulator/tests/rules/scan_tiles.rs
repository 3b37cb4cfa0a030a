//! Tests of whole tiled scan kernels. The earlier tiles have published only their own sums, as on a
//! device that runs tiles concurrently. The emulator itself completes each tile before the next one
//! starts.

use cudarc::driver::sys;

use crate::rules::device::{Device, ok};

macro_rules! text {
    ($($name:literal)*) => {
        concat!($(include_str!(concat!("../../../../src/ops/cuda/", $name)), "\n"),*)
    };
}

/// The part of the kernel that is generated from an expression. A sum up to an element is 31 times
/// the previous sum, plus the element. The sum depends on the order of the elements, but not on
/// their grouping.
const SUMS: &str = r"
#define CS_THREADS 256
#define CS_ROWS 4
typedef i64 T;
typedef u64 R;
typedef u64 W;
typedef u32 index_t;
struct Operands { const i64* values; };
CS_FN T element(const Operands& o, const index_t i) { return o.values[i]; }
struct S { u64 sum, factor_less_31; };
CS_FN S cs_merge(S a, S b) {
    const u64 factor = b.factor_less_31 + 31;
    return S{a.sum * factor + b.sum, (a.factor_less_31 + 31) * factor - 31};
}
CS_FN S cs_nothing() { return S{0, 1 - 31ull}; }
CS_FN u64 cs_value(S sum) { return sum.sum; }
";

const KERNEL: &str = r#"
extern "C" __global__ void kernel(const i64* values, R* results, unsigned long long* ticket, u32* told, S* own, S* all,
                                  u64 length, u64 inner, u64 lines, u64 lanes, u64 parts) {
    scanned(Operands{values}, cs_scans{length, inner, lines, lanes, parts}, results, cs_tiles{ticket, told, own, all});
}
"#;

fn kernel(way: u32) -> String {
    let tiles = text!("scan_tiles.cuh").replace(
        "extern \"C\" __global__ void __launch_bounds__(CS_THREADS)\nkernel(",
        "static void scanned(",
    );
    assert_eq!(tiles.matches("static void scanned(").count(), 2);
    let prelude = text!(
        "prelude/types.cuh" "prelude/arithmetic.cuh" "prelude/casts.cuh" "prelude/functions.cuh" "states.cuh"
    );
    let way = format!("#define CS_WAY {way}\n");
    let before = [prelude, SUMS, &way, text!("scan.cuh" "look_back.cuh")].concat();
    before + &tiles + KERNEL
}

/// A partial sum of one or more elements, in the kernel's representation.
type Sum = [u64; 2];

fn merged([sum, factor]: Sum, [more, other]: Sum) -> Sum {
    let other = other.wrapping_add(31);
    let factor = factor.wrapping_add(31).wrapping_mul(other);
    [
        sum.wrapping_mul(other).wrapping_add(more),
        factor.wrapping_sub(31),
    ]
}

const NOTHING: Sum = [0, 1u64.wrapping_sub(31)];

/// Lines of `length` elements with the stride `inner`, in tiles of `tile` elements. `lanes` threads
/// process the part of a line in a tile.
struct Scan {
    way: u32,
    length: usize,
    inner: usize,
    lanes: usize,
    tile: usize,
}

impl Scan {
    /// Runs the kernel on the tiles from `first` on, and checks all their results. Initially, tile
    /// `known` has published its inclusive sum. The tiles between `known` and `first` have
    /// published only their own sums.
    fn check(&self, device: &Device, kernel: sys::CUfunction, [known, first]: [usize; 2]) {
        let stream = device.stream();
        let (inner, parts) = (self.inner, self.length.div_ceil(self.tile));
        // With a stride, the lines are interleaved, and there are `inner` lines. Without a stride,
        // there are three lines.
        let lines = if inner > 1 { inner } else { 3 };
        let count = lines * self.length;
        let side = 256 / self.lanes;
        let groups = lines.div_ceil(side);
        let values: Vec<u64> = (0..count as u64).map(|n| n * n % 1009 + 1).collect();
        let at = |line: usize, step: usize| match inner {
            1 => line * self.length + step,
            _ => step * inner + line,
        };
        let slots = groups * parts * side;
        let mut told = vec![0u32; groups * parts];
        let mut own = vec![[0xdead_u64; 2]; slots];
        let mut all = vec![[0xbeef_u64; 2]; slots];
        for line in 0..lines {
            let mut sum = NOTHING;
            for part in 0..first {
                let steps = part * self.tile..(part + 1) * self.tile;
                let elements = steps.map(|step| [values[at(line, step)], 0]);
                let tile = elements.fold(NOTHING, merged);
                sum = merged(sum, tile);
                let number = line / side * parts + part;
                let slot = number * side + line % side;
                if part == known {
                    (told[number], all[slot]) = (2, sum);
                } else if part > known {
                    (told[number], own[slot]) = (1, tile);
                }
            }
        }
        let tickets = [(first * groups) as u64];
        let copied = |bytes: &[u8]| {
            let address = device.memory(bytes.len());
            // SAFETY: the memory has the length of `bytes`, which are copied.
            ok(unsafe { sys::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) });
            address
        };
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes: [Vec<u8>; 5] = [
            words(&values),
            words(&tickets),
            told.iter().flat_map(|what| what.to_ne_bytes()).collect(),
            words(own.as_flattened()),
            words(all.as_flattened()),
        ];
        let [values_at, ticket, told, own, all] = bytes.map(|bytes| copied(&bytes));
        let results = device.memory(8 * count);
        let counts = [self.length, inner, lines, self.lanes, parts].map(|count| count as u64);
        let addresses = [values_at, results, ticket, told, own, all];
        let arguments = [&addresses[..], &counts].concat();
        ok(device.launch(kernel, [2, 256, 0], &arguments, stream));
        let found = device.words(results, 2 * count, stream);
        for line in 0..lines {
            let mut sum = 0u64;
            for step in 0..self.length {
                let index = at(line, step);
                sum = sum.wrapping_mul(31).wrapping_add(values[index]);
                let found = u64::from(found[2 * index]) | u64::from(found[2 * index + 1]) << 32;
                let place = (self.way, known, first, line, step);
                assert!(found == sum || step < first * self.tile, "{place:?}");
            }
        }
        for address in [values_at, ticket, told, own, all, results] {
            // SAFETY: the memory is not used any more.
            ok(unsafe { sys::cuMemFree_v2(address) });
        }
    }
}

/// The tested states: the last tile with an inclusive sum, and the first unpublished tile. The two
/// tiles are adjacent, as far apart as a warp looks back at once, or further apart.
const STATES: [[usize; 2]; 8] = [
    [0, 1],
    [0, 2],
    [3, 9],
    [0, 32],
    [0, 33],
    [2, 34],
    [1, 35],
    [0, 36],
];

#[test]
fn tiles_continue_from_the_sums_of_others() {
    let device = Device::new();
    let before = device.control.complaints();
    let whole = device.kernel(&kernel(3));
    let lines = Scan {
        way: 3,
        length: 37 * 2048 + 100,
        inner: 1,
        lanes: 256,
        tile: 2048,
    };
    for state in STATES {
        lines.check(&device, whole, state);
    }
    let apart = device.kernel(&kernel(4));
    for (inner, lanes) in [(2, 128), (5, 8), (33, 4), (300, 1)] {
        let lines = Scan {
            way: 4,
            length: 37 * 4 * lanes + 3,
            inner,
            lanes,
            tile: 4 * lanes,
        };
        for state in STATES {
            lines.check(&device, apart, state);
        }
    }
    assert_eq!(device.control.complaints(), before);
}
