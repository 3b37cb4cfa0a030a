//! The check that decides whether an assignment may write in place. The check compares the memory
//! of the expression and the target.

use crate::array::{AnyArray, Buffer, DType, Layout};
use crate::context::Device;
use crate::ops::expression::tree::{Operand, Tree, operands};

/// A type-erased array that is assigned to.
///
/// Invariant: the array is borrowed exclusively while a target exists.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Target<'a>(Operand<'a>);

impl<'a> Target<'a> {
    pub(in crate::ops) fn new(array: &'a mut AnyArray) -> Self {
        array.buffer.forget_constant();
        Self(array.operand())
    }

    /// Returns the operand as a target. The caller must exclude all other uses of the memory while
    /// it writes.
    pub(in crate::ops) fn of(operand: &Operand<'a>) -> Self {
        Self(*operand)
    }

    /// Returns a target with the elements that `layout` selects from the array's memory. `layout`
    /// must not reach beyond the array's own layout.
    pub(in crate::ops) fn part(array: &'a mut AnyArray, layout: &'a Layout) -> Self {
        let Self(whole) = Self::new(array);
        Self(Operand { layout, ..whole })
    }

    pub(in crate::ops) fn buffer(&self) -> &'a Buffer {
        self.0.buffer
    }

    pub(in crate::ops) fn layout(&self) -> &'a Layout {
        self.0.layout
    }

    pub(in crate::ops) fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub(in crate::ops) fn device(&self) -> &'a Device {
        self.0.buffer.device()
    }

    pub(in crate::ops) fn is_read_by(&self, tree: &dyn Tree) -> bool {
        let mut reads = false;
        operands(tree, &mut |operand| {
            reads |= operand.buffer.is_same(self.0.buffer);
        });
        reads
    }
}

impl<'a> From<&Target<'a>> for Operand<'a> {
    fn from(target: &Target<'a>) -> Self {
        target.0
    }
}

/// The reason why a target cannot be overwritten while its new elements are computed.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum Obstacle {
    /// Another handle shares the target's memory, or the target repeats an element.
    Shared,
    /// An expression reads the elements in another order than they are written.
    Reordered,
}

/// Targets that can be overwritten element by element, each element after it was read. The
/// expressions were checked, and the arrays are borrowed exclusively, so that the targets remain
/// overwritable.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Overwritable<'a>(&'a [Target<'a>]);

impl<'a> Overwritable<'a> {
    /// Returns `targets` if one pass can overwrite all of them with the expressions `read`. The
    /// expressions `held` hold handles of the memory, but are not read in this pass.
    pub(in crate::ops) fn new(
        targets: &'a [Target<'a>],
        read: &[&dyn Tree],
        held: &[&dyn Tree],
    ) -> Result<Self, Obstacle> {
        for target in targets {
            let aliasing = Aliasing::of(target, read, held);
            if !aliasing.is_exclusive {
                return Err(Obstacle::Shared);
            }
            if aliasing.is_reordered {
                return Err(Obstacle::Reordered);
            }
        }
        Ok(Self(targets))
    }

    pub(in crate::ops) fn targets(self) -> &'a [Target<'a>] {
        self.0
    }
}

/// The relation between an array's memory and the expressions that are assigned to the array.
pub(in crate::ops) struct Aliasing {
    /// True if only the expressions share the array's memory, and the array repeats no element.
    pub(in crate::ops) is_exclusive: bool,
    /// True if an expression reads the array's memory with another layout than the array's layout.
    is_reordered: bool,
    /// True if the array and every operand are on one device, dense, and of one shape.
    pub(in crate::ops) is_dense: bool,
    /// True if an expression reads the array's memory.
    pub(in crate::ops) is_read: bool,
    /// The number of bytes that are read to compute one element of all expressions.
    pub(in crate::ops) bytes_read: usize,
}

impl Aliasing {
    /// Checks `target` against the expressions `read`. These expressions are evaluated in one pass.
    /// The expressions `held` hold handles of the memory, but are not read in this pass.
    #[inline]
    pub(in crate::ops) fn of(target: &Target<'_>, read: &[&dyn Tree], held: &[&dyn Tree]) -> Self {
        let Target(Operand { buffer, layout, .. }) = *target;
        let device = buffer.device();
        let mut handles = 1;
        let mut is_reordered = false;
        let mut is_dense = layout.is_contiguous();
        let mut bytes_read = 0;
        let mut see = |operand: Operand<'_>| {
            let other = operand.layout;
            if operand.buffer.is_same(buffer) {
                handles += 1;
                is_reordered |= other != layout;
            }
            is_dense &= other.is_contiguous() && other.shape() == layout.shape();
            is_dense &= operand.buffer.device() == device;
            bytes_read += operand.dtype.size_bytes();
        };
        read.iter().for_each(|tree| operands(*tree, &mut see));
        let is_read = handles > 1;
        let mut hold =
            |operand: Operand<'_>| handles += usize::from(operand.buffer.is_same(buffer));
        held.iter().for_each(|tree| operands(*tree, &mut hold));
        Self {
            is_exclusive: buffer.holders() == handles && !layout.repeats(),
            is_reordered,
            is_dense,
            is_read,
            bytes_read,
        }
    }

    /// Returns whether the array can be overwritten element by element, each element after it was
    /// read.
    pub(in crate::ops) fn allows_overwriting(&self) -> bool {
        self.is_exclusive && !self.is_reordered
    }
}
