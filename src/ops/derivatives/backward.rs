//! The backward pass of a step, and the gradients that it adds to.

use crate::array::AnyArray;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use smallvec::SmallVec;

use super::distinct_parts::DistinctParts;
use crate::error::Result;

/// The gradients of a step's results, by result index. If nothing was computed from a result, its
/// gradient is `None`.
pub(crate) type Upstream = SmallVec<[Option<AnyArray>; 1]>;

/// The function that passes the gradients of a step's results back to the values that the step
/// read.
pub(crate) trait Backward {
    /// Passes gradients back for the last time. Frees the saved values. Frees the arrays of
    /// `upstream` as soon as they have been read.
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()>;

    /// Returns a copy of the function.
    fn share(&self) -> Box<dyn Backward>;
}

impl<F> Backward for F
where
    F: FnOnce(Upstream, &mut Gradients) -> Result<()> + Clone + 'static,
{
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()> {
        self(upstream, gradients)
    }

    fn share(&self) -> Box<dyn Backward> {
        Box::new(self.clone())
    }
}

pub(crate) struct BackwardStep {
    pub(crate) backward: Box<dyn Backward>,
    /// The size of the saved arrays in bytes.
    pub(crate) saved_bytes: u64,
    /// True if `backward` itself records steps, as for a checkpoint. Gradients then pass through
    /// these steps immediately.
    pub(crate) runs_again: bool,
    /// True if the step takes the unrounded gradient of a narrow result. The step passes the
    /// gradient on, or converts it.
    pub(crate) takes_unrounded: bool,
    /// The operation's name, if its gradients have no derivatives. If the operation saved an array
    /// other than its operands and results, its gradients have no derivatives.
    pub(crate) only_once: Option<&'static str>,
}

/// Gradients by the index of their value. Each gradient is a separate array.
#[derive(Debug)]
pub(crate) struct Gradients {
    pub(super) sums: HashMap<u32, GradientSum, BuildHasherDefault<NumberHasher>>,
    /// The values that the current step contributed to, if gradients are checked for NaN.
    pub(super) touched: Option<Vec<u32>>,
    /// True if a tape tracks the sums. Tracked sums are not written in place.
    pub(super) are_tracked: bool,
    /// The provider of memory for some gradients.
    pub(super) placer: Option<Rc<dyn Placer>>,
}

/// The sum of the contributions to one gradient.
///
/// Invariants: the arrays have the shape of the value. `array` has the value's type or the type
/// that the value is computed in. If `more` is `Some`, both arrays are narrow.
#[derive(Debug)]
pub(super) struct GradientSum {
    pub(super) array: AnyArray,
    /// The second contribution. It is added when the sum is taken, or when a third contribution
    /// follows.
    pub(super) more: Option<AnyArray>,
    /// The parts that were written, if the sum is narrow and no element has two contributions.
    pub(super) parts: Option<DistinctParts>,
}

/// A hasher of value indices. A tape numbers its values, so that no input can choose colliding
/// indices.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The factor is 2^64 divided by the golden ratio. It spreads consecutive indices over the
        // high bits, too.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A provider of memory for gradients, so that they are computed at their final address.
pub(crate) trait Placer: fmt::Debug {
    /// Returns memory for the gradient of `value`, with the shape of this value. Nothing else reads
    /// or writes the memory until the gradient is complete.
    fn place_of(&self, value: u32) -> Result<Option<AnyArray>>;
}
