//! Tests of the look-back of a scan's tile (`look_back.cuh`) while other tiles publish their sums
//! in any order. The emulator runs blocks sequentially. So in a whole scan, all earlier sums are
//! published before a tile looks back. In these tests, threads of another warp act as the other
//! tiles.

use std::iter;

use cudarc::driver::sys;

use crate::rules::device::{Device, ok};

const LOOK_BACK: &str = include_str!("../../../../src/ops/cuda/look_back.cuh");

/// The type of the sums. A sum depends on the order and the grouping of its terms.
const BEFORE: &str = r"
typedef unsigned int u32;
typedef unsigned long long u64;
#define CS_FN __device__ __forceinline__
struct S { u64 sum, rest; };
CS_FN S cs_merge(S a, S b) { return S{a.sum * 31 + b.sum, a.rest * 33 + b.sum + 3 * b.rest}; }
CS_FN S own_of(u64 tile) { return S{5 * tile + 1, 7 * tile}; }
";

/// A kernel whose first warp looks back from `tile`. Its second warp publishes sums as the script
/// specifies. The first `ahead` steps of the script precede the look-back.
const KERNEL: &str = r#"
CS_FN void told(u64 step, u32* told, S* own, S* all) {
    const u64 tile = step / 4;
    if (step % 4 == CS_TOLD_OWN) {
        cs_show(own + tile, own_of(tile));
    } else {
        S sum = own_of(0);
        for (u64 next = 1; next <= tile; ++next) sum = cs_merge(sum, own_of(next));
        cs_show(all + tile, sum);
    }
    __threadfence();
    cs_tell(told + tile, (u32)(step % 4));
}
extern "C" __global__ void kernel(u32* tiles, S* own, S* all, const u64* script, u64 ahead, u64 steps, u64 tile,
                                  u64* results) {
    const bool looks = threadIdx.x < 32;
    if (threadIdx.x == 32) {
        for (u64 step = 0; step < ahead; ++step) told(script[step], tiles, own, all);
    }
    __syncthreads();
    if (looks) {
        const u64 nearest = cs_nearest(tiles, tile);
        __threadfence();
        __syncwarp();
        const S sum = cs_before(own, all, 1, nearest, tile);
        results[3 * threadIdx.x] = nearest;
        results[3 * threadIdx.x + 1] = sum.sum;
        results[3 * threadIdx.x + 2] = sum.rest;
    } else {
        for (u64 step = ahead; step < steps; ++step) {
            if (threadIdx.x == 32) told(script[step], tiles, own, all);
            __syncwarp();
        }
    }
}
"#;

const OWN: u64 = 1;
const ALL: u64 = 2;

/// Returns the sequential sum of all tiles before `tile`.
fn expected(tile: u64) -> [u64; 2] {
    let own = |tile: u64| [5 * tile + 1, 7 * tile];
    (1..tile)
        .map(own)
        .fold(own(0), |[sum, rest], [more, other]| {
            let rest = rest.wrapping_mul(33).wrapping_add(more);
            [
                sum.wrapping_mul(31).wrapping_add(more),
                rest.wrapping_add(3 * other),
            ]
        })
}

struct Looking {
    device: Device,
    kernel: sys::CUfunction,
    stream: sys::CUstream,
    addresses: [u64; 5],
}

/// The maximum number of tiles. A script has at most twice as many steps.
const MOST: usize = 128;

impl Looking {
    fn new() -> Self {
        let device = Device::new();
        let kernel = device.kernel(&[BEFORE, LOOK_BACK, KERNEL].concat());
        let stream = device.stream();
        let bytes = [4 * MOST, 16 * MOST, 16 * MOST, 16 * MOST, 3 * 32 * 8];
        let addresses = bytes.map(|bytes| device.memory(bytes));
        Self {
            device,
            kernel,
            stream,
            addresses,
        }
    }

    /// Looks back from `tile`, and checks the sum. Returns the tile whose inclusive sum was used,
    /// for each thread order of the emulator.
    fn look(&self, script: &[u64], ahead: usize, tile: u64) -> [u64; 2] {
        [(); 2].map(|()| {
            let [told, own, all, steps, results] = self.addresses;
            let (device, stream) = (&self.device, self.stream);
            device.fill(told, 0, MOST, stream);
            // Before a sum is published, its memory is invalid.
            device.fill(own, 0xdead_beef, 4 * MOST, stream);
            device.fill(all, 0xdead_beef, 4 * MOST, stream);
            let bytes = size_of_val(script);
            // SAFETY: `steps` has 16 × `MOST` bytes. A script has at most 2 × `MOST` steps of 8
            // bytes each.
            ok(unsafe { sys::cuMemcpyHtoD_v2(steps, script.as_ptr().cast(), bytes) });
            let counts = [ahead as u64, script.len() as u64, tile];
            let arguments = [&[told, own, all, steps][..], &counts, &[results]].concat();
            ok(device.launch(self.kernel, [1, 64, 0], &arguments, stream));
            let words = device.words(results, 3 * 32 * 2, stream);
            let numbers: Vec<u64> = words
                .chunks(2)
                .map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32)
                .collect();
            let [nearest, sum, rest] = numbers[..3] else {
                unreachable!("three numbers");
            };
            assert_eq!(
                [sum, rest],
                expected(tile),
                "tile {tile} from {nearest}: {script:?}"
            );
            assert!(
                numbers
                    .chunks(3)
                    .all(|of_thread| of_thread == &numbers[..3]),
                "every thread has it"
            );
            nearest
        })
    }
}

#[test]
fn sums_begin_at_the_nearest_tile_that_knows_all() {
    let looking = Looking::new();
    let before = looking.device.control.complaints();
    for tile in [1, 2, 3, 31, 32, 33, 34, 64, 65, 66, 97, 128] {
        for nearest in (0..tile).filter(|nearest| nearest % 5 < 2 || tile - nearest < 3) {
            let what = |own: u64| match own {
                0 => ALL,
                _ if own == nearest || own + 40 == nearest => ALL,
                _ => OWN,
            };
            let script: Vec<u64> = (0..tile).map(|own| 4 * own + what(own)).collect();
            assert_eq!(looking.look(&script, script.len(), tile), [nearest; 2]);
        }
    }
    assert_eq!(looking.device.control.complaints(), before);
}

#[test]
fn a_tile_waits_for_a_late_predecessor() {
    let looking = Looking::new();
    let before = looking.device.control.complaints();
    let mut state = 7u64;
    let mut number = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (state >> 33) as usize % below
    };
    for tile in [1, 2, 5, 32, 33, 40, 64, 65, 100] {
        for round in 0..6 {
            // Each tile publishes its own sum, and then its inclusive sum. The first tile publishes
            // only its inclusive sum. The order of the tiles is random.
            let mut script: Vec<u64> = (0..tile).flat_map(|own| [own; 2]).skip(1).collect();
            for place in (1..script.len()).rev() {
                script.swap(place, number(place + 1));
            }
            let mut seen = vec![false; tile as usize];
            seen[0] = true;
            for step in &mut script {
                let own = *step as usize;
                let what = if seen[own] { ALL } else { OWN };
                seen[own] = true;
                *step = 4 * *step + what;
            }
            // In this round, the tiles publish only their own sums. The first tile publishes last,
            // so all tiles wait for it.
            if round == 0 {
                script.retain(|&step| step != ALL);
                script.extend(iter::once(ALL));
                script.retain(|&step| step % 4 == OWN || step == ALL);
            }
            let ahead = number(script.len());
            let nearest = looking.look(&script, ahead, tile);
            assert!(nearest.iter().all(|&nearest| nearest < tile));
        }
    }
    assert_eq!(looking.device.control.complaints(), before);
}
