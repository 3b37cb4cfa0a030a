//! The reasons why no fused kernels compute an attention.

use std::fmt;

use super::table::TileTable;
use super::tiles::{AttentionKernel, AttentionPass, TileProducts, WIDEST};
use crate::array::DType;
use crate::ops::descriptors::AttentionSizes;

/// The properties of a device that limit its fused kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceLimits {
    pub(super) table: TileTable,
    /// The maximum dynamic shared memory of a block, in bytes.
    pub(super) shared_bytes: u32,
}

/// A reason why no fused kernels compute an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// No kernel multiplies elements of this type on the device.
    Type(DType),
    /// The number of columns of a head.
    Width(usize),
    /// The number of queries or keys, or of the blocks that they need.
    Length(usize),
    /// The shared memory that a block needs, in bytes.
    SharedMemory(u32),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(dtype) => write!(f, "elements of {dtype} on this device"),
            Self::Width(columns) => write!(f, "heads of {columns} columns (at most {WIDEST})"),
            Self::Length(length) => write!(f, "{length} queries or keys"),
            Self::SharedMemory(bytes) => {
                write!(f, "the device's shared memory (a block needs {bytes} B)")
            }
        }
    }
}

impl Obstacle {
    /// Returns an obstacle to the attention of arrays of `dtype`, forward or backward. Returns
    /// `None` if fused kernels compute both.
    pub(super) fn to(
        limits: &DeviceLimits,
        (products, dtype): (Option<TileProducts>, DType),
        sizes: &AttentionSizes,
    ) -> Option<Self> {
        let Some(products) = products else {
            return Some(Self::Type(dtype));
        };
        // The kernels' lengths have 31 bits.
        let length = sizes.queries.max(sizes.keys);
        if i32::try_from(length).is_err() {
            return Some(Self::Length(length));
        }
        let first = [AttentionPass::Forward, AttentionPass::OfQueries];
        let passes = first.iter().chain(AttentionPass::of_keys_and_values(sizes));
        let mut obstacles = passes.filter_map(|pass| {
            let Some(kernel) = AttentionKernel::new(&limits.table, *pass, products, sizes) else {
                return Some(Self::Width(sizes.depth.max(sizes.width)));
            };
            if kernel.shared_bytes() > limits.shared_bytes {
                return Some(Self::SharedMemory(kernel.shared_bytes()));
            }
            let blocks = kernel.blocks(sizes.head_count(), sizes);
            blocks.is_none().then_some(Self::Length(length))
        });
        obstacles.next()
    }
}
