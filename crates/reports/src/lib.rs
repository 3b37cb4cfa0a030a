//! Reports on the recorded events of a device: plain data in, text out. The crate does not depend
//! on devices or arrays.
//!
//! A [`Profile`] is the input of all reports. Each report is a module with a function that writes
//! it.

#![forbid(unsafe_code)]

pub mod dhat;
pub mod flame;
pub mod folded;
mod format;
mod growth;
mod json;
mod lifetimes;
mod nesting;
pub mod page;
pub mod perfetto;
mod place;
mod profile;
pub mod reservations;
mod sites;
mod size;
pub mod snapshot;
pub mod table;
mod timeline;

pub use format::Format;
pub use growth::{ScopeGrowth, SiteGrowth, growth};
pub use lifetimes::{AllocationLifetime, Peak, lifetimes, live_at, peak};
pub use profile::{CallSite, Event, EventKind, Frame, OtherReport, Profile, Segment};
pub use sites::{SiteSummary, by_call_site};
pub use size::ByteSize;

/// Items for other crates of the workspace, not for users.
#[doc(hidden)]
pub mod internal {
    pub use crate::snapshot::reserved::{AddressSpan, Range, Reserved};
}
