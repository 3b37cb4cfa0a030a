//! Named caches over one device's memory, and the thread-local stack that determines which cache
//! serves a request.
//!
//! [`Caches::allocate`] serves a request from the current shard: the shard of the nearest enclosing
//! scope of this device. On a miss, the device's memory provides the block. The shard then becomes
//! the home of the block.
//!
//! Architecture invariant: a cache owns only idle blocks. It never copies or accesses the contents
//! of a block, and does not use arrays.

mod allocate;
mod allocate_arena;
mod allocator;
mod arena;
#[cfg(all(test, loom))]
mod model;
mod observe;
mod policy;
mod reclaim;
mod record;
mod registry;
mod report;
mod request;
pub(crate) mod scope;
mod settings;
mod shard;
mod shared;
mod stats;
mod store;
mod sweep;
#[cfg(all(test, not(loom)))]
mod tests;
mod totals;

pub use policy::Policy;
pub use record::AllocationRecord;
pub use report::{CacheReport, Growth, ScopeReport};
pub use scope::CallSite;
pub(crate) use scope::Place;
pub(crate) use scope::{Entered, StreamLease, current_stream};
pub use settings::CacheConfig;
pub(crate) use settings::EntryOptions;
pub(crate) use shard::{
    BlockHandle, Caches, CachesConfig, CachesRef, Pinned, WeakCaches, is_planned,
};
pub use shared::{SharedBlock, SharedCache};
pub use stats::{CacheStats, Invalidation};
