//! The costs of a driver's calls for memory, and a ledger that adds them up.

mod ledger;
mod table;

pub use ledger::DriverLedger;
pub use table::{DriverCall, DriverCosts};
