#![doc = include_str!("../README.md")]

#[macro_use]
mod naming;

// The layers, from the bottom up: each names only those before it.
mod error;
mod size;
mod sync;

mod device;

mod source;

mod pool;

#[cfg_attr(
    not(feature = "cli"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the command line uses all of it, the caches the quick part"
    )
)]
mod plan;

#[cfg(feature = "cli")]
mod replay;

mod memory;

mod cache;

mod context;

mod array;

mod ops;

pub mod graph;

mod interop;

mod macros;

pub use array::{Array, Bitwise, Buffer, Element, Float, Integer, Numeric, Shape};
pub use cache::{AllocationRecord, CacheConfig, CacheStats, Invalidation, Policy};
pub use context::{Device, DeviceConfig, DeviceGuard, PressureGuard, Stream, StreamGuard};
pub use error::{Error, ErrorKind, Result};
pub use memory::{MemoryReport, MemoryStats, PhaseReport};
pub use ndarray;
pub use ops::{Expr, Generator, IntoExpr, Lazy, concat, manual_seed, select, stack};
pub use pool::PoolKind;
pub use source::fault::FaultPlan;

/// What a training loop needs: `use cachescope::prelude::*;`
pub mod prelude {
    pub use crate::{
        Array, Device, Error, Expr, IntoExpr, Lazy, Policy, Result, cache_scope, concat,
        elementwise, invalidate_cache, manual_seed, ndarray::s, select, stack, uncached,
    };
}

/// Scopes without the macro, and handles to pass them on to other threads.
pub mod scope {
    pub use crate::cache::{CacheReport, ScopeReport};
    pub use crate::context::scope::{ScopeGuard, ScopeHandle, current, report};
}

/// NumPy's files of several arrays; those of one are [`Array::read_npy`] and [`Array::write_npy`].
#[cfg(feature = "npy")]
pub mod npy {
    pub use crate::interop::npy::{NpzReader, NpzWriter};
}

/// What the command line and the benchmarks of this repository are made of; none of it is stable.
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli {
    pub use crate::plan::Step;
    pub use crate::plan::lifetimes::{Lifetime, PlanWriter};
    pub use crate::plan::{Buffer, Conflict, Options, Packing, pack, pack_quickly, validate};
    pub use crate::replay::placements::Placements;
    pub use crate::replay::run::{Outcome, Run, Settings};
    pub use crate::replay::simulator::{Allocation, Simulator};
    pub use crate::replay::trace::Trace;
    pub use crate::size::parse_bytes;
}

/// What the macros expand to; nothing here is for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::array::scalar::lane::Lane;
    pub use crate::array::scalar::{lane, math};
    pub use crate::cache::CallSite;
    pub use crate::context::scope::{
        ScopeOptions, enter, enter_named, enter_site, enter_uncached, exit,
    };
    pub use crate::ops::written::{apply1, apply2, apply3, apply4, element, text};
    pub use crate::ops::{Apply, Function};
    pub use cachescope_macros::{expand_cache_scope, expand_elementwise, expand_uncached};
    pub use scopeguard;
}

/// [`Device::invalidate_cache`] on the current device.
pub fn invalidate_cache(name: &str) -> Invalidation {
    Device::with_current(|device| device.invalidate_cache(name))
}

/// [`Device::cache_stats`] on the current device.
pub fn cache_stats(name: &str) -> Option<CacheStats> {
    Device::with_current(|device| device.cache_stats(name))
}
