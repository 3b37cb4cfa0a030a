//! Where segments come from. `direct` asks the backend; the adaptors wrap any other source and
//! compose in any order.

use std::fmt;

use crate::device::DevicePtr;
use crate::error::Result;

pub(crate) mod direct;
pub(crate) mod fault;
pub(crate) mod limit;
#[cfg(test)]
mod testing;

/// A supplier of segments.
pub(crate) trait Source: fmt::Debug + Send + Sync {
    /// Reserves a segment of `bytes` (not 0); `None` where this source or one below it is
    /// exhausted, an error where the device itself failed.
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>>;

    /// Gives back what [`reserve`](Self::reserve) gave, with the same `bytes`.
    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn reserve(&self, bytes: u64) -> Result<Option<DevicePtr>> {
        (**self).reserve(bytes)
    }

    fn release(&self, address: DevicePtr, bytes: u64) -> Result<()> {
        (**self).release(address, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::direct::Direct;
    use super::fault::{Fault, FaultPlan};
    use super::limit::Limit;
    use super::testing::{Tally, reserve, reserve_none};
    use super::*;
    use crate::device::host::HostBackend;
    use crate::sync::Arc;

    #[test]
    fn the_direct_source_gives_memory_of_the_device() {
        let source = Direct::new(Arc::new(HostBackend::new()));
        let first = reserve(&source, 4096);
        let second = reserve(&source, 512);
        assert!(first.0.is_multiple_of(512) && second.0.is_multiple_of(512));
        assert!(first.0 + 4096 <= second.0 || second.0 + 512 <= first.0);
        source.release(first, 4096).unwrap();
        source.release(second, 512).unwrap();
        reserve_none(&source, u64::MAX);
    }

    /// Each order of both adaptors over a source of 2000 bytes, a limit of 1000 and a fault at the
    /// second reservation that reaches the fault.
    #[test]
    fn adaptors_compose_in_both_orders() {
        let plan = FaultPlan::Nth(2);

        let source = Limit::new(Fault::new(Tally::new(2000), plan).unwrap(), Some(1000));
        let first = reserve(&source, 600);
        // The limit refuses first, so that this one is not the fault's second.
        reserve_none(&source, 500);
        reserve_none(&source, 400);
        assert_eq!(source.reserved_bytes(), 600);
        reserve(&source, 400);
        source.release(first, 600).unwrap();
        assert_eq!(source.reserved_bytes(), 400);

        let source = Fault::new(Limit::new(Tally::new(2000), Some(1000)), plan).unwrap();
        let first = reserve(&source, 600);
        reserve_none(&source, 400);
        reserve_none(&source, 500);
        reserve(&source, 400);
        reserve_none(&source, 1);
        source.release(first, 600).unwrap();
        reserve(&source, 600);
    }

    /// Every stack of up to three adaptors over the host gives usable memory, and takes it back.
    #[test]
    fn every_stack_of_adaptors_reserves_and_releases() {
        type Adaptor = fn(Box<dyn Source>) -> Box<dyn Source>;
        let adaptors: [Adaptor; 3] = [
            |source| Box::new(Limit::new(source, Some(8192))),
            |source| Box::new(Fault::new(source, FaultPlan::Nth(3)).unwrap()),
            |source| Box::new(source),
        ];
        for outer in adaptors {
            for middle in adaptors {
                for inner in adaptors {
                    let direct = Direct::new(Arc::new(HostBackend::new()));
                    let source = outer(middle(inner(Box::new(direct))));
                    let first = reserve(&source, 4096);
                    let second = reserve(&source, 4096);
                    assert_ne!(first, second);
                    source.release(first, 4096).unwrap();
                    source.release(second, 4096).unwrap();
                }
            }
        }
    }
}
