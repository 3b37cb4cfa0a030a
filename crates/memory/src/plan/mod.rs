//! Static memory planning: computes the offsets of buffers from their lifetimes.
//!
//! Packs buffers with known lifetimes into one slab. This task is the dynamic storage allocation
//! problem: strip packing with fixed horizontal positions. [`Policy::Plan`](crate::Policy::Plan)
//! packs a scope's allocations with this planner. A compiler or an inference engine can use the
//! planner directly. [`pack_quickly`] makes a few passes over the buffers, and [`validate`] checks
//! any plan.
//!
//! The crate `cachescope-tools` has more. `plan::pack` searches for the smallest slab until a time
//! limit. `plan::pack_constrained` plans buffers with alignments and gaps. `trace::Lifetime` reads
//! lifetimes from files.
//!
//! The planner only computes: it calls no device and touches no memory.
//!
//! # Examples
//!
//! ```
//! # extern crate cachescope_memory as cachescope;
//! use cachescope::plan::{BufferInterval, pack_quickly, validate};
//!
//! // Two activations that never live together can share their bytes.
//! let buffers = [
//!     BufferInterval { lower: 0, upper: 4, size_bytes: 4096 },
//!     BufferInterval { lower: 0, upper: 2, size_bytes: 1024 },
//!     BufferInterval { lower: 2, upper: 4, size_bytes: 1024 },
//! ];
//! let plan = pack_quickly(&buffers);
//! assert_eq!(plan.slab_bytes, 5120);
//! validate(&buffers, &plan.offsets, plan.slab_bytes)?;
//! # Ok::<(), cachescope::plan::Conflict>(())
//! ```

// The steps are in order of cost: `components` decomposes the input, and `sections` reduces time to
// the maximal cliques. `incumbent` has the best plan of a component. The heuristics of `incumbent`
// are `skyline` best fit and `greedy` first fit, each a pass over the items. The exact search and
// the tests of the planner are in `cachescope-tools`.

pub(crate) mod components;
pub(crate) mod deadline;
pub(crate) mod greedy;
pub(crate) mod incumbent;
mod interval;
pub(crate) mod kd_tree;
pub(crate) mod occupancy;
pub(crate) mod ordering;
pub(crate) mod pack;
pub(crate) mod sections;
pub(crate) mod skyline;
mod validate;
pub(crate) mod weights;

pub use interval::BufferInterval;
pub(crate) use pack::pack_around;
pub use pack::{Packing, pack_quickly};
pub use validate::{Conflict, validate};
