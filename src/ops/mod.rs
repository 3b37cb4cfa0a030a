//! Operations: lazy expressions and what evaluates them.
//!
//! An operation is a row of a table: [`elementwise`] for what maps elements, [`reductions`] for
//! what folds them. Its uses (eager, fused, reduced, in place) all follow from the expression type.
//!
//! Architecture invariant: building an expression neither fails nor allocates device memory, and
//! only [`host`] and [`cuda`] touch memory.

/// Calls the function of that name of the device's part of the operations: of [`host`], or of [`cuda`],
/// whose functions take their device first.
macro_rules! on_device {
    ($device:expr, $name:ident $(::<$($of:tt),+>)? ($($argument:expr),* $(,)?)) => {
        match $device.backend().cuda() {
            None => $crate::ops::host::$name$(::<$($of),+>)?($($argument),*),
            Some(gpu) => $crate::ops::cuda::$name$(::<$($of),+>)?(gpu, $($argument),*),
        }
    };
}

mod aliasing;
mod assign;
mod boxed;
mod compare;
mod compound;
mod cuda;
mod declare;
mod elementwise;
mod eval;
mod expr;
mod formula;
mod hoist;
mod host;
mod index;
mod lines;
mod node;
pub(crate) mod nodes;
mod not_yet;
mod operators;
mod order;
mod precompiled;
mod print;
mod products;
mod random;
mod reductions;
mod scan;
mod together;
mod tree;
mod view_mut;
mod warn;
pub(crate) mod written;

pub use boxed::{Boxed, BoxedLazy};
pub use elementwise::select;
pub use expr::{Expr, IntoExpr, Lazy};
pub use host::{Arguments, BlockLoop, Loops, block_loop};
pub use index::{concat, stack};
pub use node::{Apply, Function};
pub use random::{Generator, manual_seed};
pub use together::{Several, Targets, Values, eval, update};
pub use view_mut::ArrayViewMut;
