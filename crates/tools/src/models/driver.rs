//! The driver below a model.

use crate::simulation::{DriverCall, DriverLedger};

/// Counts and charges a model's calls, if costs are computed.
#[derive(Debug, Default)]
pub(super) struct Driver {
    pub(super) ledger: Option<DriverLedger>,
}

impl Driver {
    pub(super) fn call(&mut self, call: DriverCall, bytes: u64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.charge(call, bytes);
        }
    }

    /// Fills a range of addresses with memory, by handles of `handle_bytes` bytes each. The handles
    /// are new, or were unmapped elsewhere.
    pub(super) fn map(&mut self, new_handles: u64, old_handles: u64, handle_bytes: u64) {
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        if new_handles + old_handles == 0 {
            return;
        }
        for _ in 0..new_handles {
            ledger.charge(DriverCall::MemCreate, handle_bytes);
        }
        for _ in 0..new_handles + old_handles {
            ledger.charge(DriverCall::MemMap, handle_bytes);
        }
        let mappings = (0..new_handles + old_handles).map(|_| handle_bytes);
        ledger.charge_each(DriverCall::MemSetAccess, mappings);
    }

    /// Charges one call for each of several handles.
    pub(super) fn each(&mut self, call: DriverCall, handles: u64, handle_bytes: u64) {
        if let Some(ledger) = &mut self.ledger {
            (0..handles).for_each(|_| ledger.charge(call, handle_bytes));
        }
    }
}
