//! Static memory planning: the smallest slab for buffers with known lifetimes.
//!
//! [`pack`](pack()) searches until its time limit. [`pack_constrained`] also honours alignments,
//! and gaps in which a buffer uses a part of its bytes. The heuristics are in
//! `cachescope_memory::plan`, because Policy Plan also uses them at run time.
//! [`Lifetime`](crate::trace::Lifetime) reads lifetimes from files.
//!
//! # Examples
//!
//! ```
//! # extern crate cachescope_tools as cachescope;
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

// After the heuristics, `improve` runs the branch and bound of `exact` until the time limit.
// `constrained` has separate heuristics and a separate search.

mod constrained;
mod exact;
mod improve;
mod pack;
#[cfg(test)]
mod tests;

pub use cachescope_memory::plan::{BufferInterval, Conflict, Packing, pack_quickly, validate};
pub use constrained::{ConstrainedBuffer, Gap, pack_constrained, validate_constrained};
pub use pack::{Options, pack};
