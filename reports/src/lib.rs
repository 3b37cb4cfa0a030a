//! Reports over what was recorded of a device: plain data in, text out. Nothing here knows devices or arrays.
//!
//! A [`Profile`] is the input of every report; each is one module with a function that writes it.

mod lifetimes;
pub mod page;
mod profile;

pub use lifetimes::{Lifetime, Peak, lifetimes, live_at, peak};
pub use profile::{CallSite, Event, EventKind, Frame, Profile, Segment};
