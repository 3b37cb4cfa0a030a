//! Tests of the tiles, and of compiled kernels. The tests need no device.

use super::obstacle::{DeviceLimits, Obstacle};
use super::table::{TileSettings, TileTable};
use super::tiles::{AttentionKernel, AttentionPass, TileProducts};
use crate::array::{DType, Shape};
use crate::ops::descriptors::AttentionSizes;

const PASSES: [AttentionPass; 5] = [
    AttentionPass::Forward,
    AttentionPass::OfQueries,
    AttentionPass::OfKeys,
    AttentionPass::OfValues,
    AttentionPass::OfBoth,
];

const PRODUCTS: [TileProducts; 4] = [
    TileProducts::Fma,
    TileProducts::Tf32,
    TileProducts::F16,
    TileProducts::Bf16,
];

fn sizes(depth: usize, width: usize) -> AttentionSizes {
    AttentionSizes {
        heads: Shape::from([2, 3]),
        queries: 100,
        keys: 200,
        depth,
        width,
    }
}

/// Returns the kernel of a pass on a device without measured sizes.
fn kernel_of(
    pass: AttentionPass,
    products: TileProducts,
    sizes: &AttentionSizes,
) -> Option<AttentionKernel> {
    let table = TileTable::new((8, 0), TileSettings::default());
    AttentionKernel::new(&table, pass, products, sizes)
}

/// Returns the passes that kernels for these sizes have.
fn passes(sizes: &AttentionSizes) -> Vec<AttentionPass> {
    let first = [AttentionPass::Forward, AttentionPass::OfQueries];
    first
        .iter()
        .chain(AttentionPass::of_keys_and_values(sizes))
        .copied()
        .collect()
}

#[test]
fn every_width_up_to_256_has_tiles_in_shared_memory() {
    for width in [1, 31, 32, 33, 64, 65, 96, 128, 129, 192, 255, 256] {
        let sizes = sizes(width, width);
        for products in PRODUCTS {
            for pass in PASSES {
                let kernel = kernel_of(pass, products, &sizes).unwrap();
                // The shared memory of a block on compute capability 8.0.
                assert!(kernel.shared_bytes() <= 163 << 10, "{kernel:?}");
            }
        }
    }
    assert_eq!(
        kernel_of(AttentionPass::Forward, TileProducts::F16, &sizes(257, 8)),
        None
    );
    assert_eq!(
        kernel_of(AttentionPass::Forward, TileProducts::F16, &sizes(8, 257)),
        None
    );
}

#[test]
fn an_attention_without_kernels_has_a_reason() {
    let limits = |shared_bytes| DeviceLimits {
        table: TileTable::new((8, 0), TileSettings::default()),
        shared_bytes,
    };
    let halves = (Some(TileProducts::Bf16), DType::Bf16);
    let obstacle = |shared_bytes, sizes: &AttentionSizes| {
        let obstacle = Obstacle::to(&limits(shared_bytes), halves, sizes);
        obstacle.map(|own| own.to_string()).unwrap_or_default()
    };
    let most = 163 << 10;
    assert_eq!(obstacle(most, &sizes(256, 256)), "");
    assert!(obstacle(most, &sizes(64, 300)).starts_with("heads of 300 columns (at most 256)"));
    assert!(obstacle(48 << 10, &sizes(256, 256)).starts_with("the device's shared memory"));
    let mut long = sizes(64, 64);
    long.keys = 1 << 31;
    assert_eq!(obstacle(most, &long), "2147483648 queries or keys");
    let old = Obstacle::to(&limits(most), (None, DType::F16), &sizes(64, 64));
    assert_eq!(old, Some(Obstacle::Type(DType::F16)));
}

#[test]
fn sizes_of_tiles_can_be_set_for_each_pass() {
    let set: TileSettings = "forward:8x128,keys:2x32".parse().unwrap();
    let table = TileTable::new((9, 0), set);
    let sizes = |pass| {
        let sizes = table.sizes(pass, 128);
        (sizes.warps, sizes.columns)
    };
    assert_eq!(sizes(AttentionPass::Forward), (8, 128));
    assert_eq!(sizes(AttentionPass::OfQueries), (4, 64));
    for pass in &PASSES[2..] {
        assert_eq!(sizes(*pass), (2, 32));
    }
    for text in [
        "",
        "forward",
        "forward:8",
        "both:8x64",
        "keys:3x32",
        "keys:8x48",
        "keys:1x64",
        "keys:4x32,",
    ] {
        let error = text.parse::<TileSettings>().unwrap_err();
        assert!(
            error.to_string().contains("forward:8x64"),
            "{text}: {error}"
        );
    }
}

#[test]
fn wide_heads_have_a_launch_for_keys_and_one_for_values() {
    let of = |depth, width| AttentionPass::of_keys_and_values(&sizes(depth, width));
    assert_eq!(of(128, 97), [AttentionPass::OfBoth]);
    assert_eq!(of(129, 8), [AttentionPass::OfKeys, AttentionPass::OfValues]);
    assert_eq!(of(8, 129), [AttentionPass::OfKeys, AttentionPass::OfValues]);
}

#[test]
fn too_many_blocks_for_one_launch_are_no_launch() {
    let mut many = sizes(64, 64);
    let kernel = kernel_of(AttentionPass::Forward, TileProducts::F16, &many).unwrap();
    many.queries = 64;
    assert_eq!(kernel.blocks(1 << 30, &many), Some(1 << 30));
    many.queries = 65 + 64;
    assert_eq!(kernel.blocks(1 << 30, &many), None);
    assert_eq!(kernel.blocks(usize::MAX, &many), None);
}

#[cfg(feature = "cuda")]
mod compiled {
    use super::*;
    use crate::device::cuda::{compile_for_all, ptx_of, resources_of};
    use crate::ops::cuda::walk::Numbering;

    fn numbering(rank: usize) -> Numbering {
        Numbering::new(rank, usize::MAX)
    }

    /// The shared memory of a multiprocessor of compute capability 8.0 and 9.0, and the number of
    /// its registers.
    const SHARED_BYTES: [u32; 2] = [164 << 10, 228 << 10];
    const REGISTERS: u32 = 1 << 16;

    /// Kernels of tensor cores hold all sums in registers. A multiprocessor runs at least two
    /// blocks of heads up to 128 columns, and one block of wider heads.
    #[test]
    fn tensor_cores_need_no_local_memory() {
        for (width, products) in [
            (64, TileProducts::F16),
            (64, TileProducts::Bf16),
            (96, TileProducts::Bf16),
            (128, TileProducts::Bf16),
            (256, TileProducts::Bf16),
        ] {
            let sizes = sizes(width, width);
            for pass in passes(&sizes) {
                let kernel = kernel_of(pass, products, &sizes).unwrap();
                let source = kernel.source(numbering(1), true);
                for (at, capability) in [(8, 0), (9, 0)].into_iter().enumerate() {
                    let Some(resources) = resources_of(&source, capability) else {
                        return;
                    };
                    let threads = kernel.grid(1).threads;
                    let shared = kernel.shared_bytes() + 1024 + resources.shared_bytes as u32;
                    let by_memory = SHARED_BYTES[at] / shared;
                    let by_registers =
                        REGISTERS / (resources.registers.next_multiple_of(8) * threads);
                    let blocks = by_memory.min(by_registers);
                    assert_eq!(resources.local_bytes, 0, "{kernel:?}: {resources:?}");
                    let least = if width <= 128 { 2 } else { 1 };
                    assert!(blocks >= least, "{kernel:?}: {resources:?}");
                }
            }
        }
    }

    /// The products are instructions of tensor cores, their operands come from shared memory by
    /// `ldmatrix`, and tiles by asynchronous copies.
    #[test]
    fn halves_are_multiplied_by_tensor_cores() {
        let sizes = sizes(64, 64);
        for (products, item) in [(TileProducts::F16, "f16"), (TileProducts::Bf16, "bf16")] {
            for pass in PASSES {
                let kernel = kernel_of(pass, products, &sizes).unwrap();
                for architecture in [80, 90] {
                    let Some(ptx) = ptx_of(&kernel.source(numbering(1), true), architecture) else {
                        return;
                    };
                    let count = |text: &str| ptx.matches(text).count();
                    let multiply =
                        format!("mma.sync.aligned.m16n8k16.row.col.f32.{item}.{item}.f32");
                    assert!(count(&multiply) >= 64, "{pass:?}: {ptx}");
                    for other in ["ldmatrix.sync", ".x4.trans", "cp.async.cg.shared.global"] {
                        assert!(count(other) > 0, "{pass:?} has no {other}");
                    }
                    // Operands are not converted. Weights are rounded, two at a time.
                    let widened = format!("cvt.f32.{item}");
                    let most = if pass == AttentionPass::OfQueries {
                        2
                    } else {
                        0
                    };
                    assert!(count(&widened) <= most, "{pass:?}");
                }
            }
        }
    }

    #[test]
    fn tf32_is_multiplied_by_tensor_cores() {
        let sizes = sizes(64, 64);
        for pass in PASSES {
            let kernel = kernel_of(pass, TileProducts::Tf32, &sizes).unwrap();
            let Some(ptx) = ptx_of(&kernel.source(numbering(1), true), 80) else {
                return;
            };
            let multiply = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
            assert!(ptx.matches(multiply).count() >= 64, "{pass:?}");
        }
    }

    /// Kernels by FMA run on every architecture. The others compile for layouts of each rank, and
    /// for rows that are not aligned.
    #[test]
    fn every_kernel_compiles() {
        let sizes = sizes(96, 64);
        for pass in passes(&sizes) {
            let kernel = kernel_of(pass, TileProducts::Fma, &sizes).unwrap();
            compile_for_all(&[kernel.source(numbering(3), true)]);
            for products in [TileProducts::Tf32, TileProducts::Bf16, TileProducts::Fma] {
                let kernel = kernel_of(pass, products, &sizes).unwrap();
                resources_of(&kernel.source(numbering(9), false), (8, 0));
            }
        }
    }
}
