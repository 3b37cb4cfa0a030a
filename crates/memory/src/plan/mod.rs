//! Static memory planning: lifetimes in, offsets out.
//!
//! Packs buffers with known lifetimes into one slab. This is the dynamic storage allocation
//! problem: strip packing with fixed horizontal positions. [`Policy::Plan`](crate::Policy::Plan)
//! packs a scope's allocations with it; a compiler or an inference engine can use it by itself.
//! [`pack`](pack()) searches for the smallest slab until its time limit; [`pack_quickly`] makes a
//! few passes over the buffers. [`validate`] checks any plan. [`pack_constrained`] plans buffers
//! with alignments, and with gaps in which they use a part of their bytes. `trace::Lifetime` of the
//! crate `cachescope-tools` reads lifetimes from files.
//!
//! The planner only computes: it calls no device and touches no memory.
//!
//! # Examples
//!
//! ```
//! # extern crate cachescope_memory as cachescope;
//! use cachescope::plan::{BufferInterval, Options, pack, validate};
//!
//! // Two activations that never live together can share their bytes.
//! let buffers = [
//!     BufferInterval { lower: 0, upper: 4, size_bytes: 4096 },
//!     BufferInterval { lower: 0, upper: 2, size_bytes: 1024 },
//!     BufferInterval { lower: 2, upper: 4, size_bytes: 1024 },
//! ];
//! let plan = pack(&buffers, &Options::default());
//! assert_eq!(plan.slab_bytes, 5120);
//! validate(&buffers, &plan.offsets, plan.slab_bytes)?;
//! # Ok::<(), cachescope::plan::Conflict>(())
//! ```

// In order of cost: `components` decomposes the input, and `sections` reduces time to the maximal
// cliques. `incumbent` holds the best plan of a component. Its heuristics are `skyline` best fit
// and `greedy` first fit, each a pass over the items. `improve` spends the remaining time on the
// branch and bound of `exact`. `constrained` has heuristics and a search of its own.

mod components;
mod constrained;
mod deadline;
mod exact;
mod greedy;
mod improve;
mod incumbent;
mod interval;
mod kd_tree;
mod occupancy;
mod ordering;
mod pack;
mod sections;
mod skyline;
#[cfg(test)]
mod tests;
mod validate;
mod weights;

pub use constrained::{ConstrainedBuffer, Gap, pack_constrained, validate_constrained};
pub use interval::BufferInterval;
pub(crate) use pack::pack_around;
pub use pack::{Options, Packing, pack, pack_quickly};
pub use validate::{Conflict, validate};
