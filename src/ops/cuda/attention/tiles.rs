//! The tiles of each kernel: their sizes, shared memory and source.

use std::fmt::Write;

use super::super::prelude;
use super::super::walk::Numbering;
use super::table::{TileSizes, TileTable};
use crate::array::DType;
use crate::device::cuda::{Cuda, Grid, KernelKey, KernelSource};
use crate::ops::descriptors::AttentionSizes;

/// The instructions that multiply tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileProducts {
    /// Fused multiplication and addition of `f32`.
    Fma,
    /// Tensor cores, on `f32` rounded to TF32.
    Tf32,
    /// Tensor cores, on `f16`.
    F16,
    /// Tensor cores, on `bf16`.
    Bf16,
}

/// The first compute capability whose tensor cores multiply `bf16` and TF32.
const TENSOR_CORES: (u32, u32) = (8, 0);

impl TileProducts {
    /// Returns the products of elements of `dtype`, or `None` if there are none on this device.
    pub(super) fn of(gpu: &Cuda, dtype: DType) -> Option<Self> {
        let has_tensor_cores = gpu.capability() >= TENSOR_CORES;
        match dtype {
            DType::F32 if has_tensor_cores && gpu.allows_tf32() => Some(Self::Tf32),
            DType::F32 => Some(Self::Fma),
            DType::F16 if has_tensor_cores => Some(Self::F16),
            DType::Bf16 if has_tensor_cores => Some(Self::Bf16),
            _ => None,
        }
    }

    fn item(self) -> &'static str {
        match self {
            Self::Fma | Self::Tf32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    fn item_bytes(self) -> usize {
        match self {
            Self::Fma | Self::Tf32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Returns `CS_MATH` of the sources.
    fn math(self) -> u32 {
        match self {
            Self::Fma => 0,
            Self::Tf32 => 1,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// A pass over the scores, by one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttentionPass {
    Forward,
    OfQueries,
    OfKeys,
    OfValues,
    /// The gradients of keys and values.
    OfBoth,
}

impl AttentionPass {
    /// Returns the passes that compute the gradients of keys and values.
    pub(super) fn of_keys_and_values(sizes: &AttentionSizes) -> &'static [Self] {
        match padded(sizes.depth.max(sizes.width)) <= WIDEST_OF_BOTH {
            true => &[Self::OfBoth],
            false => &[Self::OfKeys, Self::OfValues],
        }
    }

    fn text(self) -> String {
        match self {
            Self::Forward => include_str!("forward.cuh").to_owned(),
            Self::OfQueries => include_str!("queries.cuh").to_owned(),
            Self::OfKeys | Self::OfValues | Self::OfBoth => {
                let of_keys = u8::from(self != Self::OfValues);
                let of_values = u8::from(self != Self::OfKeys);
                format!(
                    "#define CS_OF_KEYS {of_keys}\n#define CS_OF_VALUES {of_values}\n{}",
                    include_str!("keys.cuh")
                )
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Forward => "attention",
            Self::OfQueries => "the gradient of attention's queries",
            Self::OfKeys => "the gradient of attention's keys",
            Self::OfValues => "the gradient of attention's values",
            Self::OfBoth => "the gradients of attention's keys and values",
        }
    }
}

/// The maximum width of a head.
pub(super) const WIDEST: usize = 256;

/// The maximum width of a head at which the registers of a warp hold two gradients.
const WIDEST_OF_BOTH: usize = 128;

/// The size of a query's `cs_weights` and `cs_mean`, in bytes.
const ROW_BYTES: usize = 16;

/// Returns the width of a tile for heads of `width`.
fn padded(width: usize) -> usize {
    width.next_multiple_of(32)
}

/// A kernel: a pass, its products, and the sizes of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionKernel {
    pass: AttentionPass,
    products: TileProducts,
    sizes: TileSizes,
    /// The padded width of queries and keys.
    depth: usize,
    /// The padded width of values.
    width: usize,
}

impl AttentionKernel {
    /// Returns the kernel of a pass, or `None` if a head is too wide.
    pub(super) fn new(
        table: &TileTable,
        pass: AttentionPass,
        products: TileProducts,
        sizes: &AttentionSizes,
    ) -> Option<Self> {
        let (depth, width) = (padded(sizes.depth), padded(sizes.width));
        let widest = depth.max(width);
        if widest > WIDEST {
            return None;
        }
        let row_bytes = widest * products.item_bytes();
        let sizes = table.sizes(pass, row_bytes);
        // The threads of a block copy a row at once, 16 bytes each.
        if row_bytes / 16 > sizes.warps * 32 {
            return None;
        }
        Some(Self {
            pass,
            products,
            sizes,
            depth,
            width,
        })
    }

    fn rows(&self) -> usize {
        self.sizes.warps * 16
    }

    /// Returns the dynamic shared memory of a block, in bytes.
    pub(super) fn shared_bytes(&self) -> u32 {
        let widths = self.depth + self.width;
        let (elements, row_bytes) = match self.pass {
            AttentionPass::Forward => (self.rows() * self.depth + self.sizes.columns * widths, 0),
            // The block copies a tile while it works on another.
            AttentionPass::OfQueries => ((self.rows() + 2 * self.sizes.columns) * widths, 0),
            _ => ((self.rows() + 2 * self.sizes.columns) * widths, ROW_BYTES),
        };
        let rows = 2 * self.sizes.columns * row_bytes;
        (elements * self.products.item_bytes() + rows) as u32
    }

    /// Returns the number of blocks for `heads`, or `None` if there are too many for one launch.
    pub(super) fn blocks(&self, heads: usize, sizes: &AttentionSizes) -> Option<u32> {
        let rows = match self.pass {
            AttentionPass::Forward | AttentionPass::OfQueries => sizes.queries,
            AttentionPass::OfKeys | AttentionPass::OfValues | AttentionPass::OfBoth => sizes.keys,
        };
        let blocks = heads.checked_mul(rows.div_ceil(self.rows()))?;
        i32::try_from(blocks).ok().map(|blocks| blocks as u32)
    }

    pub(super) fn grid(&self, blocks: u32) -> Grid {
        Grid {
            blocks: [blocks, 1],
            threads: self.sizes.warps as u32 * 32,
            shared_bytes: self.shared_bytes(),
        }
    }

    pub(super) fn key(&self, numbering: Numbering, is_aligned: bool) -> KernelKey {
        /// The kernels of attention.
        struct Attention;
        let widths = (self.depth / 32 * 16 + self.width / 32) as u32;
        let variant = self.products as u32 | (self.pass as u32) << 2;
        let form = variant << 1 | u32::from(is_aligned);
        KernelKey::of::<Attention>((widths << 6 | form) << 4 | numbering.form())
    }

    pub(super) fn source(&self, numbering: Numbering, is_aligned: bool) -> KernelSource {
        let mut text = numbering.text();
        let (item, math) = (self.products.item(), self.products.math());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "typedef {item} item_t;
#define CS_MATH {math}
#define CS_ALIGNED {}
#define CS_THREADS {}
#define CS_ROWS {}
#define CS_COLUMNS {}
#define CS_DEPTH {}
#define CS_WIDTH {}",
            u8::from(is_aligned),
            self.sizes.warps * 32,
            self.rows(),
            self.sizes.columns,
            self.depth,
            self.width
        );
        text.push_str(include_str!("tiles.cuh"));
        text.push_str(include_str!("rows.cuh"));
        text.push_str(&self.pass.text());
        prelude::source(format!("{} of {item}", self.pass.name()), &text)
    }
}
