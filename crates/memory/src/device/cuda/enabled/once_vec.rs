//! An append-only vector with lock-free reads.

use crate::sync::OnceLock;

/// A vector of 65536 slots, each set at most once.
///
/// Slots are allocated in chunks of doubling length, so no slot ever moves.
#[derive(Debug)]
pub(super) struct OnceVec<T>([OnceLock<Box<[OnceLock<T>]>>; CHUNKS]);

/// The number of chunks for all 16-bit numbers.
const CHUNKS: usize = 17;

impl<T> Default for OnceVec<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; CHUNKS])
    }
}

impl<T> OnceVec<T> {
    fn slot(&self, number: u16) -> &OnceLock<T> {
        let place = u32::from(number) + 1;
        let part = place.ilog2();
        let length = 1 << part;
        let slots =
            self.0[part as usize].get_or_init(|| (0..length).map(|_| OnceLock::new()).collect());
        &slots[(place - length) as usize]
    }

    pub(super) fn get(&self, number: u16) -> Option<&T> {
        self.slot(number).get()
    }

    /// Sets a slot. If the slot is already set, returns `value` as the error.
    pub(super) fn set(&self, number: u16, value: T) -> Result<(), T> {
        self.slot(number).set(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let parts = self.0.iter().filter_map(OnceLock::get);
        parts.flat_map(|part| part.iter()).filter_map(OnceLock::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_slot_of_its_own() {
        let slots = OnceVec::default();
        for number in 0..=u16::MAX {
            assert_eq!(slots.get(number), None);
            assert_eq!(slots.set(number, number), Ok(()));
        }
        assert!((0..=u16::MAX).all(|number| slots.get(number) == Some(&number)));
        assert!(slots.iter().copied().eq(0..=u16::MAX));
        assert_eq!(slots.set(7, 8), Err(8));
    }
}
