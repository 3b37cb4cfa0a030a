//! A simulated device: the memory calls of its driver are counted and charged.
//!
//! A [`DeviceReplay`] runs a recorded program through a device's complete memory: source, pool and
//! growth. The simulated driver only counts calls. The cost of each call is from [`DriverCosts`], a
//! table of published measurements. So no GPU is required, and the times are simulated. The results
//! show how often the memory calls the driver, and which calls it makes.
//!
//! # Examples
//!
//! ```
//! # extern crate cachescope_tools as cachescope;
//! use cachescope::PoolKind;
//! use cachescope::simulation::{DeviceReplay, DriverCall, DriverCosts};
//! use cachescope::trace::TraceEvent::{Allocate, Free};
//!
//! let costs = DriverCosts::named("h100")?;
//! let mut replay = DeviceReplay::new(PoolKind::BestFit, &costs, None)?;
//! let step = [Allocate { slot: 0, bytes: 1 << 30 }, Free { slot: 0 }];
//! replay.apply(&step);
//! let first = replay.outcome();
//! assert_eq!((first.calls_of(DriverCall::MemCreate), first.calls_of(DriverCall::MemSetAccess)), (1, 1));
//! replay.apply(&step);
//! assert_eq!(replay.outcome().calls, first.calls, "a warm step asks for nothing");
//! # Ok::<(), cachescope::Error>(())
//! ```

mod replay;
#[cfg(test)]
mod tests;

#[doc(inline)]
pub use cachescope_memory::simulation::{DriverCall, DriverCosts, DriverLedger};
pub use replay::{DeviceOutcome, DeviceReplay};
