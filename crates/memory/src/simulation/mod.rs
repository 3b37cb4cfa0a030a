//! A simulated driver: counts the calls for memory, and charges a cost for each call.
//!
//! The cost of each call is from a table of published measurements, [`DriverCosts`]. So the times
//! are simulated: no GPU was run. A [`DriverLedger`] adds the times up.
//!
//! # Examples
//!
//! ```
//! use cachescope_memory::simulation::{DriverCall, DriverCosts, DriverLedger};
//!
//! let costs = DriverCosts::named("h100")?;
//! let mut ledger = DriverLedger::new(&costs);
//! ledger.charge(DriverCall::MemAlloc, 1 << 30);
//! assert_eq!(ledger.calls(), 1);
//! assert_eq!(ledger.microseconds(), costs.nanos(DriverCall::MemAlloc, 1 << 30) / 1e3);
//! # Ok::<(), cachescope_memory::Error>(())
//! ```

mod device;
pub(crate) mod memory;

pub use crate::costs::{DriverCall, DriverCosts, DriverLedger};
