//! The leaves of kernels: an array's elements, seen in the order of a frame.

use std::mem::MaybeUninit;
use std::ptr::copy_nonoverlapping;

use super::kernel::{Kernel, RUN, Run};
use super::tile::{Open, Part, Rows, TILE, gather_tile};
use crate::array::scalar::lane::Lane;
use crate::array::{Array, Element, Layout, MAX_RANK, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;

/// The order in which a kernel numbers the elements of an expression.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    shape: Shape,
    // The axes of `shape`, slowest first; the first `shape.ndim()` of these.
    axes: [usize; MAX_RANK],
    is_row_major: bool,
}

impl Frame {
    /// Row-major order of `shape`.
    pub(crate) fn row_major(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            axes: [0, 1, 2, 3, 4, 5, 6, 7],
            is_row_major: true,
        }
    }

    /// Row-major order of the axes of `shape` in the order of `axes`, which names each once.
    pub(crate) fn reordered(shape: &Shape, axes: [usize; MAX_RANK]) -> Self {
        Self {
            shape: *shape,
            axes,
            is_row_major: axes[..shape.ndim()].is_sorted(),
        }
    }

    /// The shape whose axes are put in order.
    pub(in crate::ops) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The axes of the shape, slowest first, before others that say nothing.
    pub(in crate::ops) fn axes(&self) -> [usize; MAX_RANK] {
        self.axes
    }

    /// The number of elements.
    pub(super) fn count(&self) -> usize {
        self.shape.dims().iter().product()
    }

    /// Where the elements of an operand stand, in the order of this frame, over the fewest axes.
    ///
    /// # Panics
    ///
    /// Where the operand does not broadcast to the frame, which the expression's shape excludes.
    fn place(&self, operand: &Layout) -> Layout {
        let placed = operand.broadcast_to(&self.shape);
        let ordered = placed.and_then(|layout| layout.permute(&self.axes[..self.shape.ndim()]));
        match ordered {
            Ok(layout) => layout.coalesced(),
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Whether the elements of an operand stand one after another in the order of this frame.
    fn is_order_of(&self, operand: &Layout) -> bool {
        self.is_row_major && operand.is_contiguous() && operand.shape() == &self.shape
    }
}

/// The elements of an array in the host's memory.
///
/// Invariant: the elements that `order` reaches from `base` lie in the array's buffer and have been
/// written, by the invariants of [`Array`].
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    base: *const T,
    order: Order,
}

/// How the elements of a view follow one another.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// One after another from the base on.
    Contiguous,
    /// The first `period` elements over and over, as where a row is broadcast; at most [`RUN`].
    Periodic { period: usize, layout: Layout },
    /// In any other way.
    Strided { layout: Layout },
}

/// Where a view's elements are gathered: those of one run, what all runs of a periodic view share, or
/// those of a tile.
#[derive(Debug)]
pub struct Gathered<T> {
    elements: [MaybeUninit<T>; TILE.elements()],
    tile: Open,
}

// SAFETY: a view only reads, and what it reads is plain data that is not written to meanwhile, by
// the contract of `Kernel::run`.
unsafe impl<T: Sync> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<T> {}

impl<T: Element> View<T> {
    /// The elements of `array` over `frame`.
    #[inline(always)]
    pub(crate) fn new(array: &Array<T>, frame: &Frame) -> Self {
        let base: *const T = host_pointer(DevicePtr(array.buffer().address())).cast();
        if frame.is_order_of(array.layout()) {
            return Self {
                base: base.wrapping_add(array.layout().offset()),
                order: Order::Contiguous,
            };
        }
        Self::placed(base, frame.place(array.layout()))
    }

    /// What `layout`, over the fewest axes, reaches from `base`.
    fn placed(base: *const T, layout: Layout) -> Self {
        let (dims, strides) = (layout.dims(), layout.strides());
        if layout.ndim() == 0 || (layout.ndim() == 1 && strides[0] == 1) {
            return Self {
                base: base.wrapping_add(layout.offset()),
                order: Order::Contiguous,
            };
        }
        let period: usize = dims[1..].iter().product();
        let order = if strides[0] == 0 && period <= RUN {
            Order::Periodic { period, layout }
        } else {
            Order::Strided { layout }
        };
        Self { base, order }
    }

    /// The address of `count` elements from number `start` on, where they stand one after another;
    /// elsewhere they are gathered to `scratch` first.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::run`].
    unsafe fn pick(
        &self,
        layout: &Layout,
        start: usize,
        count: usize,
        scratch: &mut Gathered<T>,
    ) -> *const T {
        let (length, stride) = layout.row();
        let (index, at) = coordinates(layout, start);
        if stride == 1 && count <= length - index[layout.ndim() - 1] {
            return self.base.wrapping_add(at);
        }
        if let Some(row) = scratch.tile.row_at(start, count) {
            return scratch.elements[row..].as_ptr().cast();
        }
        // SAFETY: the caller keeps this contract.
        unsafe { gather(self.base, layout, start, &mut scratch.elements[..count]) };
        scratch.tile = Open::NONE;
        scratch.elements.as_ptr().cast()
    }
}

/// Copies the elements of `layout` from number `start` on to all of `out`, which is not empty.
///
/// # Safety
///
/// What `layout` reaches from `base` must be readable, alive and not written to, and hold as many
/// elements.
unsafe fn gather<T: Copy>(
    base: *const T,
    layout: &Layout,
    start: usize,
    out: &mut [MaybeUninit<T>],
) {
    let dims = layout.dims();
    let strides = layout.strides();
    let inner = dims.len() - 1;
    let (length, stride) = layout.row();
    let (mut index, mut at) = coordinates(layout, start);
    let mut rest = out;
    loop {
        let here = rest.len().min(length - index[inner]);
        let (part, after) = rest.split_at_mut(here);
        // SAFETY: `here` elements from `at` on in steps of `stride` are elements of the view's
        // innermost axis, which lie in the array's buffer by the invariant.
        unsafe { copy_row(base.wrapping_add(at), stride, part) };
        rest = after;
        if rest.is_empty() {
            return;
        }
        // To the beginning of the next row, like an odometer.
        at = at.wrapping_add_signed(-(index[inner] as isize * stride));
        index[inner] = 0;
        let mut axis = inner;
        while axis > 0 {
            axis -= 1;
            index[axis] += 1;
            at = at.wrapping_add_signed(strides[axis]);
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
            at = at.wrapping_add_signed(-(dims[axis] as isize * strides[axis]));
        }
    }
}

/// The coordinates of the element of number `number` in row-major order, and where it stands.
pub(super) fn coordinates(layout: &Layout, number: usize) -> ([usize; MAX_RANK], usize) {
    let mut index = [0; MAX_RANK];
    let mut at = layout.offset();
    let mut rest = number;
    let axes = layout.dims().iter().zip(layout.strides());
    for (axis, (&length, &stride)) in axes.enumerate().rev() {
        index[axis] = rest % length;
        rest /= length;
        at = at.wrapping_add_signed(index[axis] as isize * stride);
    }
    (index, at)
}

/// Copies elements that stand `stride` apart.
///
/// # Safety
///
/// `from` and the elements `stride` apart after it, as many as `to` has, must be readable and
/// outside `to`.
#[inline]
unsafe fn copy_row<T: Copy>(from: *const T, stride: isize, to: &mut [MaybeUninit<T>]) {
    match stride {
        // SAFETY: by this function's contract.
        1 => unsafe { copy_nonoverlapping(from, to.as_mut_ptr().cast(), to.len()) },
        // SAFETY: by this function's contract.
        0 => to.fill(MaybeUninit::new(unsafe { from.read() })),
        _ => {
            for (index, slot) in to.iter_mut().enumerate() {
                // SAFETY: by this function's contract.
                slot.write(unsafe { from.wrapping_offset(index as isize * stride).read() });
            }
        }
    }
}

impl<T: Element> Kernel for View<T> {
    type Item = T;
    type Scratch = Gathered<T>;
    type Run = InMemory<T>;

    #[inline(always)]
    fn is_flat(&self) -> bool {
        matches!(self.order, Order::Contiguous)
    }

    #[inline(always)]
    unsafe fn prepare(&self, scratch: *mut Gathered<T>) {
        // SAFETY: the scratch is the caller's, by the contract.
        unsafe { (&raw mut (*scratch).tile).write(Open::NONE) };
        if let Order::Periodic { period, layout } = &self.order {
            // SAFETY: as above, and the elements need no initial value.
            let elements = unsafe { &mut (*scratch).elements };
            // A run begins within the first period and has at most `RUN` elements.
            let shared = layout.len().min(period + RUN);
            // SAFETY: by the invariant, and the caller keeps this contract.
            unsafe { gather(self.base, layout, 0, &mut elements[..shared]) };
        }
    }

    #[inline(always)]
    fn crosswise(&self) -> Option<Rows> {
        match &self.order {
            Order::Strided { layout } => Rows::read_crosswise(layout),
            _ => None,
        }
    }

    #[inline(always)]
    unsafe fn open(&self, start: usize, part: Part, scratch: *mut Gathered<T>) {
        let Order::Strided { layout } = &self.order else {
            return;
        };
        // Another operand's rows may not be this one's.
        if Rows::read_crosswise(layout) != Some(part.rows) {
            return;
        }
        // SAFETY: the scratch is the caller's, by the contract, and has been prepared.
        let scratch = unsafe { &mut *scratch };
        let (_, at) = coordinates(layout, start);
        // SAFETY: by the invariant, the part lies in the frame, and the caller keeps this contract.
        unsafe {
            gather_tile(
                self.base.wrapping_add(at),
                layout,
                part,
                &mut scratch.elements,
            );
        }
        scratch.tile = Open::new(start, part);
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: *mut Gathered<T>) -> InMemory<T> {
        InMemory(match &self.order {
            Order::Contiguous => self.base.wrapping_add(start),
            Order::Periodic { period, .. } => {
                // SAFETY: this only computes an address in the scratch.
                let elements = unsafe { &raw const (*scratch).elements };
                elements.cast::<T>().wrapping_add(start % period)
            }
            // SAFETY: the caller keeps this contract.
            Order::Strided { layout } => unsafe { self.pick(layout, start, count, &mut *scratch) },
        })
    }
}

/// A run of elements that stand one after another.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<T>(*const T);

// SAFETY: a run is an address, which is only read from by `Run::at`, whose contract it is that the
// elements are there and not written to.
unsafe impl<T: Sync> Send for InMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for InMemory<T> {}

impl<T: Element> InMemory<T> {
    /// The elements of `array`, which must be dense.
    #[inline(always)]
    pub(crate) fn new(array: &Array<T>) -> Self {
        let base: *const T = host_pointer(DevicePtr(array.buffer().address())).cast();
        Self(base.wrapping_add(array.layout().offset()))
    }
}

impl<T: Element> Run for InMemory<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at<L: Lane>(self, _lane: &mut L, index: usize) -> T {
        // SAFETY: `index` is below the count that the run was made for.
        unsafe { self.0.add(index).read() }
    }

    #[inline(always)]
    fn in_memory(self) -> Option<*const T> {
        Some(self.0)
    }
}
