//! Sorting along an axis, by the keys of the elements: short lanes by a sorting network in one
//! launch, longer lanes by radix sort.

mod digits;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use super::launch::THREADS;
use super::memory::{address_of, computed};
use super::prelude::source;
use super::workspace::Workspace;
use crate::array::{AnyElement, Array, Element, Layout, Shape, Walk};
use crate::device::cuda::{Arguments, Grid, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::Direction;
use crate::ops::order::CudaOrder;

pub(super) const KEYS: &str = include_str!("../keys.cuh");
const NETWORK: &str = include_str!("../sort.cuh");

/// The most elements that a block sorts in shared memory.
const ITEMS: usize = 2048;

/// The most blocks. If there are more lanes or tiles, each block processes several.
const MOST_BLOCKS: usize = 1 << 20;

/// The kernels that sort short lanes.
struct Network<T>(PhantomData<T>);

/// Returns the elements of `array` in sorted order along its axis `at`. The sort is stable.
#[track_caller]
pub(in crate::ops) fn sorted<T: Element>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    at: usize,
) -> Result<Array<T>> {
    let shape = array.layout().shape();
    along(order, array, at, Direction::Ascending, shape, |address| {
        [address, 0]
    })
}

/// Returns the positions of the elements along the axis `at` of `array` in sorted order. The sort
/// is stable. The result has the first positions only: as many as this axis of `shape` is long.
#[track_caller]
pub(in crate::ops) fn ranked<T: Element>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    at: usize,
    direction: Direction,
    shape: &Shape,
) -> Result<Array<i64>> {
    along(order, array, at, direction, shape, |address| [0, address])
}

/// Returns an array of `shape` with the sorted lanes along the axis `at`. `target` maps its address
/// to the address of values and the address of positions.
#[track_caller]
fn along<T: Element, O: AnyElement>(
    order: CudaOrder<'_>,
    array: &Array<T>,
    at: usize,
    direction: Direction,
    shape: &Shape,
    target: fn(u64) -> [u64; 2],
) -> Result<Array<O>> {
    let workspace = Workspace::new(order);
    let lanes = SortLanes::along(address_of(array).0, array.layout(), at);
    let kept = shape.dims()[at];
    assert!(kept <= lanes.length, "sorted to a longer axis");
    computed(order.device, shape, |output| {
        let [values, positions] = target(output.address.0);
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
            of: PhantomData::<T>,
        };
        if lanes.length <= ITEMS {
            sort.network(&lanes, target)
        } else {
            sort.by_digits(lanes, target)
        }
    })
}

/// The lanes of an array along an axis, in the layout of `cs_lines`.
#[derive(Clone, Copy, Debug)]
struct SortLanes {
    address: u64,
    length: usize,
    step: isize,
    /// The walk over the other axes, from the first element on.
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

    /// Returns as many contiguous lanes from `address` on.
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

/// The destination of sorted lanes, in the layout of `cs_sorted`.
#[derive(Clone, Copy, Debug)]
struct SortTarget {
    kept: usize,
    inner: usize,
    /// The addresses of values and of positions; 0 if they are not written.
    values: u64,
    positions: u64,
}

impl SortTarget {
    fn push(&self, arguments: &mut Arguments) {
        let [kept, inner] = [self.kept, self.inner].map(|member| member as u64);
        arguments.push_all([kept, inner, self.values, self.positions]);
    }
}

/// The parameters of the launches that sort elements of `T`.
struct Sort<'a, T> {
    workspace: Workspace<'a>,
    /// The bits of keys that are inverted: all of them for descending order.
    turned: u64,
    of: PhantomData<T>,
}

impl<T: Element> Sort<'_, T> {
    /// Sorts lanes of up to [`ITEMS`].
    #[track_caller]
    fn network(&self, lanes: &SortLanes, target: SortTarget) -> Result<()> {
        let padded = lanes.length.next_power_of_two();
        // The lanes of one block: not so many that other blocks are idle.
        let together = (lanes.count() / 512).clamp(1, ITEMS / padded);
        let mut arguments = Arguments::default();
        lanes.push(&mut arguments);
        target.push(&mut arguments);
        arguments.push(padded as u64);
        arguments.push(together as u64);
        arguments.push(self.turned);
        let grid = grid(lanes.count().div_ceil(together));
        let key = KernelKey::of::<Network<T>>(0);
        self.workspace
            .launch(key, &network_source::<T>, grid, &arguments)
    }
}

fn network_source<T: Element>() -> KernelSource {
    let is_wide = u8::from(size_of::<T>() > 4);
    let sizes = format!("#define CS_ITEMS {ITEMS}\n#define CS_WIDE {is_wide}\n");
    let text = [&keys::<T>(), KEYS, &sizes, NETWORK].concat();
    source(format!("sort of {}", T::DTYPE.in_cuda()), &text)
}

/// Returns the beginning of a text that uses keys of `T`.
pub(super) fn keys<T: Element>() -> String {
    let bits = 8 * size_of::<T>();
    // Only floats have a negative zero, which their keys do not distinguish.
    let (order, infinite) = if T::from_f64(-0.0).is_merged() {
        let infinite: u64 = T::from_f64(f64::INFINITY).key().into();
        (2, infinite ^ 1 << (bits - 1))
    } else {
        let zero: u64 = T::zero().key().into();
        (u8::from(zero > 0), 0)
    };
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
