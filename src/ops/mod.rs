//! Operations: lazy expressions and their evaluation.
//!
//! An operation that maps elements is a row of a table in [`elementwise`](expression::elementwise).
//! An operation that reduces elements is a row of a table in [`reductions`](lanes::reductions). The
//! uses of an operation (eager, fused, reduced, in place) follow from the expression type.
//!
//! | Folder | What it is |
//! |---|---|
//! | `expression` | expressions: their types, their graph, and the functions that they apply |
//! | `dispatch` | the choice of a device and of a loop |
//! | `order` | the order of work among streams, and what must not be touched meanwhile |
//! | `derivatives` | the tape, and the rules of gradients |
//! | `descriptors` | the arguments of an operation on a device: lengths, lanes, regions |
//! | `host`, `cuda` | the devices |
//! | `write`, `lanes`, `linear`, `network`, `index`, `random`, `fft`, `print` | the operations, a file or a folder a family |
//!
//! Architecture invariant: building an expression neither fails nor allocates device memory, and
//! only [`host`] and [`cuda`] touch memory.

/// Calls the function `name` of [`host`] or [`cuda`]: `on_device!(device, touching operands,
/// name(…))`. The function enqueues work on `operands`. The work is ordered after other streams'
/// work on the operands' memory. A recording reports the time and the call site of the work. The
/// call site is the line that called the function with the macro.
///
/// If the arguments of the two functions differ, write the two calls:
/// `on_device!(device, touching operands, order => host::f(order, …), cuda::f(order, …))`.
macro_rules! on_device {
    (
        $device:expr, touching $operands:expr, $name:ident $(::<$($of:tt),+>)? ($($argument:expr),* $(,)?)
    ) => {
        on_device!(
            $device,
            touching $operands,
            order => $crate::ops::host::$name$(::<$($of),+>)?(order, $($argument),*),
            $crate::ops::cuda::$name$(::<$($of),+>)?(order, $($argument),*)
        )
    };
    ($device:expr, touching $operands:expr, $order:ident => $host:expr, $cuda:expr $(,)?) => {{
        let device: &$crate::context::Device = $device;
        let operands: &dyn $crate::ops::order::TouchedMemory = $operands;
        $crate::ops::order::check_untracked(operands)?;
        let _timed = $crate::context::Timed::begin(device);
        match device.backend().cuda() {
            None => {
                let $order = $crate::ops::order::HostOrder::new(device, operands)?;
                $host
            }
            #[cfg(feature = "cuda")]
            Some(gpu) => {
                let $order = $crate::ops::order::CudaOrder::new(gpu, device, operands);
                $cuda
            }
            #[cfg(not(feature = "cuda"))]
            Some(gpu) => match *gpu {},
        }
    }};
}

mod checkpoint;
#[cfg(feature = "cuda")]
mod cuda;
pub(crate) mod derivatives;
mod descriptors;
mod dispatch;
pub(crate) mod expression;
#[cfg(feature = "fft")]
pub(crate) mod fft;
mod host;
mod index;
mod lanes;
pub(crate) mod linear;
mod network;
pub(crate) mod order;
mod print;
mod random;
mod write;

#[cfg(feature = "collective")]
pub(crate) use cachescope_kernels::elementwise::loops::BlockLoop;
pub(crate) use checkpoint::checkpointed;
pub(crate) use expression::any_lazy::AnyLazy;
pub use expression::boxed::{Boxed, BoxedLazy};
#[cfg(feature = "collective")]
pub(crate) use expression::elementwise::arithmetic::{Added, Over};
#[cfg(feature = "collective")]
pub(crate) use expression::elementwise::cast::cast;
#[cfg(feature = "collective")]
pub(crate) use expression::elementwise::functions::{Maximum, Minimum};
pub use expression::elementwise::{complex, select};
pub use expression::expr::{Expr, IntoExpr, Lazy};
pub use expression::node::{binary, quaternary, ternary, unary};
pub(crate) use index::interpolate::{Arms, interpolated};
pub use index::{PadMode, concat, stack};
pub use linear::einsum::{EinsumOperands, einsum};
pub use network::attention::attention;
pub use network::convolution::ConvOptions;
pub(crate) use network::convolution::{conv_transpose2d, conv2d};
pub(crate) use network::norms::{
    check_epsilon, group_norm, layer_norm, rms_norm, scale_of, scale_of_squares, widened,
};
pub use random::{Generator, manual_seed};
pub(crate) use random::{keeping_generator, replace_thread_state, split_thread_generator};
pub(crate) use write::scaled::{add_scaled, scaled, scaled_wide};
pub use write::together::{Several, Targets, Values, eval, update};
pub use write::view_mut::ArrayViewMut;
