//! The backward pass of a step, and the gradients that it adds to.

use crate::array::AnyArray;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use smallvec::SmallVec;

use super::distinct_parts::DistinctParts;
use crate::error::Result;

/// The gradients of a step's results, by the number of the result; `None` for a result that nothing
/// was computed from.
pub(crate) type Upstream = SmallVec<[Option<AnyArray>; 1]>;

/// The function that passes the gradients of a step's results back to the values that the step
/// read.
pub(crate) trait Backward {
    /// Passes gradients back for the last time. Frees the saved values, and `upstream` as soon as
    /// it was read.
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()>;

    /// Returns a copy.
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
    /// The bytes of the arrays that it saves.
    pub(crate) saved_bytes: u64,
    /// True if the backward pass records steps that gradients must pass through at once.
    pub(crate) runs_again: bool,
    /// True if the gradient of a narrow result may be in the type that it is computed in. Such a
    /// step passes the gradient on, or converts it.
    pub(crate) takes_unrounded: bool,
    /// The operation's name if gradients of its gradients are not known: it saved something besides
    /// its operands and results.
    pub(crate) only_once: Option<&'static str>,
}

/// Gradients by the number of their values, each as an array of its own.
#[derive(Debug)]
pub(crate) struct Gradients {
    pub(super) sums: HashMap<u32, GradientSum, BuildHasherDefault<NumberHasher>>,
    /// The values that the present step contributed to, if gradients are checked for NaN.
    pub(super) touched: Option<Vec<u32>>,
    /// True if a tape tracks the sums, so that nothing is written in place.
    pub(super) are_tracked: bool,
    /// The buckets that provide memory for some of the gradients.
    pub(super) placer: Option<Rc<dyn Placer>>,
}

/// The sum of the contributions to one gradient.
///
/// Invariants: the arrays have the shape of the value. `array` has the value's type or the type
/// that it is computed in. `more` is `Some` only if both arrays are narrow.
#[derive(Debug)]
pub(super) struct GradientSum {
    pub(super) array: AnyArray,
    /// The second contribution, which is added when the sum is handed out, or a third one arrives.
    pub(super) more: Option<AnyArray>,
    /// The parts that were written, if the sum is narrow and no element has two contributions.
    pub(super) parts: Option<DistinctParts>,
}

/// A hasher of value numbers. A tape counts them up, so that no input can choose colliding numbers.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The golden ratio of 2^64 spreads consecutive numbers over the high bits, too.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Provider of memory for gradients, so that they are computed at their final address.
pub(crate) trait Placer: fmt::Debug {
    /// Returns memory for the gradient of the value `value`, of that value's shape. Nothing else
    /// reads or writes the memory until the gradient is complete.
    fn place_of(&self, value: u32) -> Result<Option<AnyArray>>;
}
