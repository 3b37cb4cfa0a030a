//! The costs of a driver's memory calls, and a ledger that sums the costs.

mod ledger;
mod table;

pub use ledger::DriverLedger;
pub use table::{DriverCall, DriverCosts};
