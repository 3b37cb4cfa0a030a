//! The simulated driver that a model calls.

use crate::simulation::{DriverCall, DriverLedger};

/// The simulated driver of a model. If costs are computed, `ledger` counts and charges its calls.
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

    /// Charges the calls that map a range with handles of `handle_bytes` bytes each. The new
    /// handles must also be created. The old handles exist, because they were unmapped from another
    /// address.
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

    /// Charges one call for each of `handles` handles.
    pub(super) fn each(&mut self, call: DriverCall, handles: u64, handle_bytes: u64) {
        if let Some(ledger) = &mut self.ledger {
            (0..handles).for_each(|_| ledger.charge(call, handle_bytes));
        }
    }
}
