//! Plans for memory whose use is known beforehand: lifetimes in, offsets out.
//!
//! This is what [`Policy::Plan`](crate::Policy::Plan) packs a scope's allocations with, and is useful by itself:
//! static memory of a network, arenas of a compiler, registers of any size. [`pack`](pack()) looks for the smallest slab
//! until its time is up, and [`pack_quickly`] makes a few passes over the buffers. [`validate`] checks any plan. Files of
//! lifetimes are read by [`trace::Lifetime`](crate::trace::Lifetime).
//!
//! All of it is arithmetic: no device is asked, and no memory is touched.
//!
//! # Examples
//!
//! ```
//! use cachescope::plan::{Buffer, Options, pack, validate};
//!
//! // Two activations that never live together can share their bytes.
//! let buffers = [
//!     Buffer { lower: 0, upper: 4, size_bytes: 4096 },
//!     Buffer { lower: 0, upper: 2, size_bytes: 1024 },
//!     Buffer { lower: 2, upper: 4, size_bytes: 1024 },
//! ];
//! let plan = pack(&buffers, &Options::default());
//! assert_eq!(plan.slab_bytes, 5120);
//! validate(&buffers, &plan.offsets, plan.slab_bytes)?;
//! # Ok::<(), cachescope::plan::Conflict>(())
//! ```

// From the cheap to the dear: `parts` takes the input apart, and `sections` turns its time into the moments that matter. A
// `draft` begins with what costs a pass over the buffers: `dive`, which builds from the bottom up, and `greedy`, which
// takes the large ones first. `improve` spends the time that is left on searches that are `exact`.

mod clock;
mod dive;
mod draft;
mod exact;
mod greedy;
mod improve;
mod inside;
mod lessons;
mod occupied;
mod order;
mod pack;
mod parts;
mod sections;
#[cfg(test)]
mod tests;
mod validate;

pub(crate) use pack::pack_around;
pub use pack::{Buffer, Options, Packing, pack, pack_quickly};
pub use validate::{Conflict, validate};
