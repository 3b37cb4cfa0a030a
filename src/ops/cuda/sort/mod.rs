//! The sort along an axis, by the keys of the elements. A sorting network sorts short lanes in one
//! launch. Radix sort sorts longer lanes.

mod digits;
#[cfg(test)]
mod tests;

use half::{bf16, f16};

use super::launch::THREADS;
use super::memory::{address_of, computed};
use super::prelude::source;
use super::workspace::Workspace;
use crate::array::{AnyArray, Bits, DType, Layout, Shape, Walk, bits_of};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::Direction;
use crate::ops::expression::tree::Operand;
use crate::ops::order::CudaOrder;

pub(super) const KEYS: &str = include_str!("../keys.cuh");
const NETWORK: &str = include_str!("../sort.cuh");

/// The maximum number of elements that a block sorts in shared memory.
const ITEMS: usize = 2048;

/// The maximum number of blocks. If there are more lanes or tiles, each block processes several.
const MOST_BLOCKS: usize = 1 << 20;

/// The kernels that sort short lanes, for each type of elements.
struct Network;

/// Returns the elements of `array` in sorted order along its axis `at`. The sort is stable.
#[track_caller]
pub(in crate::ops) fn sorted(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    at: usize,
) -> Result<AnyArray> {
    let shape = array.layout.shape();
    along(
        order,
        array,
        (at, Direction::Ascending),
        Sorted::Values,
        shape,
    )
}

/// Returns the positions of the elements along the axis `at` of `array`, in sorted order. The sort
/// is stable. If `shape` is shorter along this axis, returns only the first positions.
#[track_caller]
pub(in crate::ops) fn ranked(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    at: usize,
    direction: Direction,
    shape: &Shape,
) -> Result<AnyArray> {
    along(order, array, (at, direction), Sorted::Positions, shape)
}

/// The result of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorted {
    /// The sorted elements.
    Values,
    /// The positions of the sorted elements, in `i64`.
    Positions,
}

/// Sorts the lanes along the axis `at`, and returns `result` as an array of `shape`.
#[track_caller]
fn along(
    order: CudaOrder<'_>,
    array: Operand<'_>,
    (at, direction): (usize, Direction),
    result: Sorted,
    shape: &Shape,
) -> Result<AnyArray> {
    let workspace = Workspace::new(order);
    let lanes = SortLanes::along(address_of(array).0, array.layout, at);
    let kept = shape.dims()[at];
    assert!(
        kept <= lanes.length,
        "the result is longer than the sorted axis"
    );
    let dtype = match result {
        Sorted::Values => array.dtype,
        Sorted::Positions => DType::I64,
    };
    computed(order.device, dtype, shape, |output| {
        let address = output.address.0;
        let (values, positions) = match result {
            Sorted::Values => (address, 0),
            Sorted::Positions => (0, address),
        };
        let target = SortTarget {
            kept,
            inner: shape.dims()[at + 1..].iter().product(),
            values,
            positions,
        };
        let sort = Sort {
            workspace,
            turned: match direction {
                Direction::Ascending => 0,
                Direction::Descending => u64::MAX,
            },
            dtype: array.dtype,
        };
        if lanes.length <= ITEMS {
            sort.network(&lanes, target)
        } else {
            sort.by_digits(lanes, target)
        }
    })
}

/// The lanes of an array along an axis: `cs_lines` in CUDA C++.
#[derive(Clone, Copy, Debug)]
struct SortLanes {
    address: u64,
    length: usize,
    step: isize,
    /// The walk over the axes except the sorted axis, relative to the first element of the array.
    others: Walk<1>,
}

impl SortLanes {
    fn along(address: u64, layout: &Layout, at: usize) -> Self {
        let (dims, strides) = (layout.dims(), layout.strides());
        let others = (0..dims.len()).filter(|&axis| axis != at);
        let others = others.map(|axis| (dims[axis], [strides[axis]]));
        Self {
            address,
            length: dims[at],
            step: strides[at],
            others: Walk::over([0], others),
        }
    }

    fn count(&self) -> usize {
        self.others.count()
    }

    /// Returns lanes with the count and length of `self` that are contiguous from `address` on.
    fn dense(&self, address: u64) -> Self {
        Self {
            address,
            step: 1,
            others: Walk::over([0], [(self.count(), [self.length as isize])]),
            ..*self
        }
    }

    fn push(&self, arguments: &mut Arguments) {
        let mut members = [0; 19];
        members[0] = self.address;
        members[1] = self.length as u64;
        members[2] = self.step as u64;
        members[3] = self.count() as u64;
        members[4] = self.others.axes().len() as u64;
        for (axis, (length, [step])) in self.others.axes().enumerate() {
            members[5 + axis] = length as u64;
            members[12 + axis] = step as u64;
        }
        arguments.push_all(members);
    }
}

/// The destination of sorted lanes: `cs_sorted` in CUDA C++.
#[derive(Clone, Copy, Debug)]
struct SortTarget {
    kept: usize,
    inner: usize,
    /// The addresses of values and of positions. If the values or the positions are not written,
    /// their address is 0.
    values: u64,
    positions: u64,
}

impl SortTarget {
    fn push(&self, arguments: &mut Arguments) {
        let [kept, inner] = [self.kept, self.inner].map(|member| member as u64);
        arguments.push_all([kept, inner, self.values, self.positions]);
    }
}

/// The parameters of the launches of a sort.
struct Sort<'a> {
    workspace: Workspace<'a>,
    /// The mask of the key bits that are inverted. In descending order, all bits are inverted.
    turned: u64,
    dtype: DType,
}

impl Sort<'_> {
    /// Sorts lanes of at most [`ITEMS`] elements by a sorting network.
    #[track_caller]
    fn network(&self, lanes: &SortLanes, target: SortTarget) -> Result<()> {
        let padded = lanes.length.next_power_of_two();
        // A block processes several lanes, as long as at least 512 blocks remain.
        let together = (lanes.count() / 512).clamp(1, ITEMS / padded);
        let mut arguments = Arguments::default();
        lanes.push(&mut arguments);
        target.push(&mut arguments);
        arguments.push(padded as u64);
        arguments.push(together as u64);
        arguments.push(self.turned);
        let grid = grid(lanes.count().div_ceil(together));
        let key = KernelKey::of::<Network>(self.dtype as u32);
        let source = || network_source(self.dtype);
        self.workspace.launch(key, &source, grid, &arguments)
    }
}

fn network_source(dtype: DType) -> KernelSource {
    let is_wide = u8::from(dtype.size_bytes() > 4);
    let sizes = format!("#define CS_ITEMS {ITEMS}\n#define CS_WIDE {is_wide}\n");
    let text = [&keys(dtype), KEYS, &sizes, NETWORK].concat();
    source(format!("sort of {}", dtype.in_cuda()), &text)
}

/// Returns the definitions that must precede [`KEYS`] in a source, for ordered elements of `dtype`.
pub(super) fn keys(dtype: DType) -> String {
    let bits = 8 * dtype.size_bytes();
    // `CS_ORDER` is 0 for unsigned integers and `bool`, 1 for signed integers, and 2 for floats.
    // `CS_INFINITE` has the bits of the floats' infinity.
    let (order, infinite) = match dtype {
        DType::F32 => (2, bits_of(f32::INFINITY)),
        DType::F64 => (2, bits_of(f64::INFINITY)),
        DType::F16 => (2, bits_of(f16::INFINITY)),
        DType::Bf16 => (2, bits_of(bf16::INFINITY)),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (1, Bits::default()),
        _ => (0, Bits::default()),
    };
    let infinite = infinite.low();
    format!(
        "#define CS_THREADS {THREADS}\ntypedef u{bits} bits_t;\n#define CS_ORDER {order}\n#define CS_INFINITE {infinite}ull\n"
    )
}

/// Returns a grid of `blocks` blocks, at least one and at most [`MOST_BLOCKS`].
fn grid(blocks: usize) -> Grid {
    Grid {
        blocks: [blocks.clamp(1, MOST_BLOCKS) as u32, 1],
        threads: THREADS,
        shared_bytes: 0,
    }
}
