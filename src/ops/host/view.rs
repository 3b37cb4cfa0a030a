//! The leaves of kernels: an array's elements, seen in the order of a frame.

use std::mem::MaybeUninit;
use std::ptr::copy_nonoverlapping;

use super::kernel::{Kernel, RUN, Run, Stage, stage};
use crate::array::{Array, Element, Layout, MAX_RANK, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::error::Result;

/// The order in which a kernel numbers the elements of an expression.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    shape: Shape,
    // The axes of `shape`, slowest first; the first `shape.ndim()` of these.
    axes: [usize; MAX_RANK],
}

impl Frame {
    /// Row-major order of `shape`.
    pub(crate) fn row_major(shape: &Shape) -> Self {
        Self {
            shape: *shape,
            axes: std::array::from_fn(|axis| axis),
        }
    }

    /// Row-major order of the axes of `shape` in the order of `axes`, which names each once.
    pub(crate) fn reordered(shape: &Shape, axes: [usize; MAX_RANK]) -> Self {
        Self {
            shape: *shape,
            axes,
        }
    }

    /// The number of elements.
    pub(crate) fn count(&self) -> Result<usize> {
        self.shape.len()
    }

    /// Where the elements of an operand stand, in the order of this frame.
    fn place(&self, operand: &Layout) -> Result<Layout> {
        let placed = if operand.shape() == &self.shape {
            *operand
        } else {
            operand.broadcast_to(&self.shape)?
        };
        Ok(placed.permute(&self.axes[..self.shape.ndim()])?.coalesced())
    }
}

/// The elements of an array in the host's memory.
///
/// Invariant: the elements that `layout` reaches from `base` lie in the array's buffer and have been
/// written, by the invariants of [`Array`].
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    base: *const T,
    layout: Layout,
    order: Order,
}

/// How the elements of a view follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One after another.
    Contiguous,
    /// In any other way.
    Strided,
}

// SAFETY: a view only reads, and what it reads is plain data that is not written to meanwhile, by
// the contract of `Kernel::run`.
unsafe impl<T: Sync> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<T> {}

impl<T: Element> View<T> {
    /// The elements of `array` over `frame`.
    pub(crate) fn new(array: &Array<T>, frame: &Frame) -> Result<Self> {
        let layout = frame.place(array.layout())?;
        let contiguous = matches!(layout.row(), (_, 1) | (0..=1, _)) && layout.ndim() <= 1;
        Ok(Self {
            base: host_pointer(DevicePtr(array.buffer().address())).cast(),
            layout,
            order: if contiguous {
                Order::Contiguous
            } else {
                Order::Strided
            },
        })
    }

    /// The address of `count` elements from number `start` on, which are gathered to `scratch`
    /// where they do not stand one after another.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::run`].
    #[inline]
    unsafe fn locate(&self, start: usize, count: usize, scratch: &mut Stage<T>) -> *const T {
        if self.order == Order::Contiguous {
            return self.base.wrapping_add(self.layout.offset() + start);
        }
        // SAFETY: the caller keeps this contract.
        unsafe { self.gather(start, count, scratch) }
    }

    /// As [`locate`](Self::locate), of a view that is not contiguous.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::run`].
    unsafe fn gather(&self, start: usize, count: usize, scratch: &mut Stage<T>) -> *const T {
        let dims = self.layout.dims();
        let strides = self.layout.strides();
        let inner = dims.len() - 1;
        let (mut index, mut at) = coordinates(&self.layout, start);
        let (length, stride) = self.layout.row();
        if stride == 1 && count <= length - index[inner] {
            return self.base.wrapping_add(at);
        }
        let mut rest = &mut scratch[..count];
        loop {
            let here = rest.len().min(length - index[inner]);
            let (part, after) = rest.split_at_mut(here);
            // SAFETY: `here` elements from `at` on in steps of `stride` are elements of the view's
            // innermost axis, which lie in the array's buffer by the invariant.
            unsafe { copy_row(self.base.wrapping_add(at), stride, part) };
            rest = after;
            if rest.is_empty() {
                return scratch.as_ptr().cast();
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
    type Scratch = Stage<T>;
    type Run = InMemory<T>;

    #[inline(always)]
    fn scratch() -> Stage<T> {
        stage()
    }

    #[inline(always)]
    fn is_flat(&self) -> bool {
        self.order == Order::Contiguous
    }

    #[inline(always)]
    unsafe fn run(&self, start: usize, count: usize, scratch: &mut Stage<T>) -> InMemory<T> {
        debug_assert!(count <= RUN || self.is_flat());
        // SAFETY: the caller keeps this contract.
        InMemory(unsafe { self.locate(start, count, scratch) })
    }
}

/// A run of elements that stand one after another.
#[derive(Clone, Copy, Debug)]
pub struct InMemory<T>(*const T);

impl<T: Element> Run for InMemory<T> {
    type Item = T;

    #[inline(always)]
    unsafe fn at(self, index: usize) -> T {
        // SAFETY: `index` is below the count that `locate` made the run for.
        unsafe { self.0.add(index).read() }
    }

    #[inline(always)]
    fn in_memory(self) -> Option<*const T> {
        Some(self.0)
    }
}
