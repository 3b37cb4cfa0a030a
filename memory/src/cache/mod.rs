//! Named caches over one device's memory, and the thread-local stack that says which of them a
//! request goes to.
//!
//! The way of a request is [`Caches::allocate`]: the current shard, that of the nearest enclosing
//! scope of this device, or a miss, which goes to the memory below. What comes back has the shard
//! as its home from then on.
//!
//! Architecture invariant: a cache owns idle blocks and nothing else. It never copies, never
//! touches what a block holds, and knows nothing of arrays.

mod allocate;
mod allocator;
mod arena;
mod caches;
#[cfg(all(test, loom))]
mod model;
mod named;
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
mod stats;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod totals;

pub(crate) use caches::{
    BlockHandle, Caches, CachesConfig, CachesRef, Shard, WeakCaches, is_planned,
};
pub use policy::Policy;
pub use record::AllocationRecord;
pub use report::{CacheReport, Growth, LineGrowth, ScopeReport};
pub use scope::CallSite;
pub(crate) use scope::{Entered, KeptStream, current_stream};
pub use settings::CacheConfig;
pub(crate) use settings::EntryOptions;
pub use stats::{CacheStats, Invalidation};
