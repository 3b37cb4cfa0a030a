//! Budgets for the memory that steps save for the backward pass.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::rc::Rc;

use crate::ops::derivatives::{Budget, BudgetCounts};
use crate::size::ByteSize;
use crate::sorting::sort_descending;
use crate::sync::OfThisThread;

/// Limits the bytes that the calling thread saves for its backward passes. The limit is `bytes`,
/// and lasts while the guard lives.
///
/// [`value_and_grad`](super::value_and_grad), [`value_and_step`](super::value_and_step),
/// [`Tape`](super::Tape), [`jvp`](super::jvp) and [`hvp`](super::hvp) save arrays that their
/// gradients are computed from. If the saved arrays exceed the budget, the arrays with the least
/// recomputation time per byte are released. If the backward pass needs a released array, it
/// recomputes this array, and also the released arrays that this array depends on (Kirisame et al.
/// 2021, "Dynamic Tensor Rematerialization"). The results of elementwise functions and norms are
/// released before the results of softmax. Matrix products are released next, and convolutions
/// last. Random numbers are drawn again from their counters. The gradients are bitwise equal to
/// gradients without a budget.
///
/// The budget counts each array that an operation saves, even if the program holds the array as
/// well. It counts intermediate values, and constants such as a batch or a mask. It does not count
/// parameters, gradients, or the working memory of an operation in the backward pass. If the
/// program writes to a saved array in place, the saved values do not change. Budgets nest: the
/// smallest budget applies. In a scope under [`Bump`](crate::Policy::Bump), a released block is not
/// reused before the scope exits. In such a scope, a budget raises the reserved memory, because
/// recomputed arrays need additional blocks.
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::{activation_budget, value_and_grad};
///
/// let x = Array::<f32>::full([256, 256], 0.5)?;
/// let loss = |x: &Array<f32>| {
///     let mut y = x.clone();
///     for _ in 0..16 {
///         y = y.sin().eval()?;
///     }
///     y.sum()
/// };
/// let (_, all) = value_and_grad(&x, loss)?;
///
/// let budget = activation_budget(1 << 20); // 4 of the 16 arrays.
/// let (_, some) = value_and_grad(&x, loss)?;
/// assert_eq!(some, all);
/// let report = budget.report();
/// assert!(report.saved_bytes <= 1 << 20 && report.recomputed_operations > 0);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// A backward pass returns [`InvalidArgument`](crate::ErrorKind::InvalidArgument), with the least
/// possible budget, if arrays that cannot be recomputed exceed the budget. Constants cannot be
/// recomputed. The results of these operations cannot be recomputed either: a
/// [`checkpoint`](super::checkpoint), a factorization, a Fourier transform, `scatter`, `diag`,
/// triangles, and a write to a part of an array. If the operands of a result would have to be saved
/// only for its recomputation, the result is not recomputed, either.
pub fn activation_budget(bytes: u64) -> BudgetGuard {
    BudgetGuard {
        budget: Budget::begin(bytes),
        thread: PhantomData,
    }
}

/// A guard that limits the bytes saved for backward passes, from [`activation_budget`].
#[must_use = "the budget ends when this guard drops"]
#[derive(Debug)]
pub struct BudgetGuard {
    budget: Rc<Budget>,
    /// Marker that makes the guard `!Send`.
    thread: OfThisThread,
}

impl BudgetGuard {
    /// Returns the saved and the recomputed amounts since the budget began.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::{activation_budget, value_and_grad};
    ///
    /// let x = Array::<f32>::ones(1000)?;
    /// let budget = activation_budget(u64::MAX); // To measure.
    /// value_and_grad(&x, |x| x.sin().eval()?.square().sum())?;
    /// let report = budget.report();
    /// assert_eq!((report.saved_bytes, report.recomputed_bytes), (4000, 0));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    pub fn report(&self) -> BudgetReport {
        let lines = self.budget.recomputed();
        BudgetReport {
            budget_bytes: self.budget.limit_bytes(),
            saved_bytes: self.budget.saved_bytes(),
            recomputed_bytes: lines.iter().map(|(_, counts)| counts.bytes).sum(),
            recomputed_operations: lines.iter().map(|(_, counts)| counts.operations).sum(),
            lines,
        }
    }
}

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        self.budget.end();
    }
}

/// The effect of an [`activation_budget`]. `Display` writes the totals, and the source lines whose
/// operations ran again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BudgetReport {
    /// The limit of the saved bytes.
    pub budget_bytes: u64,
    /// The maximum of the saved bytes, measured after each operation.
    pub saved_bytes: u64,
    /// The bytes of the results that were computed again.
    pub recomputed_bytes: u64,
    /// The number of operations that ran again.
    pub recomputed_operations: u64,
    lines: Vec<(&'static Location<'static>, BudgetCounts)>,
}

impl fmt::Display for BudgetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "saved {} of a budget of {}; computed {} again in {} operations",
            ByteSize(self.saved_bytes),
            ByteSize(self.budget_bytes),
            ByteSize(self.recomputed_bytes),
            self.recomputed_operations
        )?;
        let mut lines: Vec<_> = self.lines.iter().collect();
        sort_descending(&mut lines, |(_, counts)| counts.bytes);
        for (line, counts) in lines {
            let bytes = ByteSize(counts.bytes).to_string();
            writeln!(f, "{bytes:>12} {:>8} ×  {line}", counts.operations)?;
        }
        Ok(())
    }
}
