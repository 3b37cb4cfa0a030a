//! Operations: lazy expressions and what evaluates them.
//!
//! An operation is a row of a table: [`elementwise`] for what maps elements, [`reductions`] for
//! what folds them. Its uses (eager, fused, reduced, in place) all follow from the expression type.
//!
//! Architecture invariant: building an expression neither fails nor allocates device memory, and
//! only [`host`] and [`cuda`] touch memory.

/// `on_device!(device, touching operands, name(…))` calls the function of that name of [`host`] or
/// of [`cuda`] for work on `operands`, by its place in the order of streams: after what other
/// streams do with their memory. A recording tells its time, with the line that called the function
/// around this.
macro_rules! on_device {
    (
        $device:expr, touching $operands:expr, $name:ident $(::<$($of:tt),+>)? ($($argument:expr),* $(,)?)
    ) => {{
        let device: &$crate::context::Device = $device;
        let operands: &dyn $crate::ops::order::Operands = $operands;
        $crate::ops::derivatives::check(operands)?;
        let _timed = $crate::context::Timed::begin(device);
        match device.backend().cuda() {
            None => {
                let order = $crate::ops::order::HostOrder::new(device, operands)?;
                $crate::ops::host::$name$(::<$($of),+>)?(order, $($argument),*)
            }
            Some(gpu) => {
                let order = $crate::ops::order::CudaOrder::new(gpu, device, operands);
                $crate::ops::cuda::$name$(::<$($of),+>)?(order, $($argument),*)
            }
        }
    }};
}

mod aliasing;
mod assign;
mod attention;
mod boxed;
mod compare;
mod compound;
mod convolution;
mod cuda;
mod declare;
pub(crate) mod derivatives;
mod diff;
mod einsum;
mod elementwise;
mod eval;
mod expr;
#[cfg(feature = "fft")]
pub(crate) mod fft;
mod formula;
mod hoist;
mod host;
mod index;
mod kron;
mod lanes;
#[cfg(feature = "linalg")]
pub(crate) mod linalg;
mod node;
pub(crate) mod nodes;
mod norms;
mod not_yet;
mod operators;
mod order;
mod pooling;
mod precompiled;
mod print;
mod products;
mod random;
mod reductions;
mod scan;
mod together;
mod transfer;
mod tree;
mod view_mut;
mod warn;
pub(crate) mod written;

pub use attention::attention;
pub use boxed::{Boxed, BoxedLazy};
pub use convolution::ConvOptions;
pub use einsum::{EinsumOperands, einsum};
pub use elementwise::{complex, select};
pub use expr::{Expr, IntoExpr, Lazy};
pub use host::{Arguments, BlockLoop, Loops, block_loop};
pub use index::{PadMode, concat, stack};
pub use node::{Apply, Function, call_of};
pub use random::{Generator, manual_seed};
pub use together::{Several, Targets, Values, eval, update};
pub use tree::Call;
pub use view_mut::ArrayViewMut;
