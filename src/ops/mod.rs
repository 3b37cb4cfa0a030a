//! Operations: lazy expressions and what evaluates them.
//!
//! An operation is a row of a table: [`elementwise`] for what maps elements, [`reductions`] for
//! what folds them. Its uses (eager, fused, reduced, in place) all follow from the expression type.
//!
//! Architecture invariant: building an expression neither fails nor allocates device memory, and
//! only [`host`] touches memory.

mod assign;
mod compare;
mod declare;
mod elementwise;
mod eval;
mod expr;
mod host;
mod index;
mod node;
mod operators;
mod order;
mod print;
mod products;
mod random;
mod reductions;
mod scan;
pub(crate) mod written;

pub use elementwise::select;
pub use expr::{Expr, IntoExpr, Lazy};
pub use index::{concat, stack};
pub use node::{Apply, Function};
pub use random::{Generator, manual_seed};
