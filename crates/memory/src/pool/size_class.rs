//! Size classes: eight classes per doubling, in units of 512 bytes.
//!
//! A class is a small floating-point number: the exponent and the three bits below the leading one.
//! Two-level segregated fit has these classes, too (TLSF, Masmano et al., ECRTS 2004). Below eight
//! units each unit is its own class. Neighbouring class bounds differ by at most 1/8, and classes
//! compare as their sizes do.

use crate::size::UNIT_BYTES;

/// The number of bits that a class keeps below the leading one of the size.
const MANTISSA_BITS: u32 = 3;

/// The number of classes per doubling.
const STEPS: u64 = 1 << MANTISSA_BITS;

/// The number of classes of all `u64` sizes.
pub(crate) const CLASSES: usize = floor_class(u64::MAX) + 1;

/// Returns the class of `bytes`. Every size of a higher class is larger.
#[inline]
pub(crate) const fn floor_class(bytes: u64) -> usize {
    let units = bytes / UNIT_BYTES;
    if units < STEPS {
        return units as usize;
    }
    let shift = units.ilog2() - MANTISSA_BITS;
    // The leading one of the shifted units adds the missing step of the exponent.
    (shift as u64 * STEPS + (units >> shift)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the smallest size of a class, by the definition: the exponent above the mantissa.
    fn class_bytes(class: usize) -> u64 {
        let class = class as u64;
        if class < STEPS {
            return class * UNIT_BYTES;
        }
        let shift = class / STEPS - 1;
        ((STEPS + class % STEPS) * UNIT_BYTES) << shift
    }

    /// Returns sizes around the bound of every class.
    fn edges() -> impl Iterator<Item = u64> {
        (0..CLASSES).flat_map(|class| {
            let least = class_bytes(class);
            [-513i64, -512, -511, -1, 0, 1, 511, 512, 513]
                .into_iter()
                .filter_map(move |delta| least.checked_add_signed(delta))
        })
    }

    /// Asserts that a size is between the bound of its class and the bound of the next class.
    fn bracket(bytes: u64) {
        let class = floor_class(bytes);
        assert!(class < CLASSES, "{bytes}");
        assert!(class_bytes(class) <= bytes, "{bytes}");
        assert!(
            class + 1 == CLASSES || bytes < class_bytes(class + 1),
            "{bytes}"
        );
    }

    #[test]
    fn there_are_eight_classes_a_doubling_of_55_bits_of_units() {
        assert_eq!(CLASSES, 8 + 52 * 8);
        assert_eq!(floor_class(u64::MAX), CLASSES - 1);
        assert_eq!(floor_class(0), 0);
    }

    #[test]
    fn every_class_begins_at_its_bytes() {
        for class in 0..CLASSES {
            let least = class_bytes(class);
            assert_eq!(least % UNIT_BYTES, 0);
            assert_eq!(floor_class(least), class);
            if class > 0 {
                assert_eq!(floor_class(least - 1), class - 1);
            }
        }
    }

    #[test]
    fn classes_are_at_most_an_eighth_wide() {
        for class in 8..CLASSES - 1 {
            let (least, next) = (class_bytes(class), class_bytes(class + 1));
            assert!((next - least) <= least / 8, "{class}");
        }
    }

    #[test]
    fn sizes_lie_between_their_classes() {
        edges().for_each(bracket);
        (0..=1 << 20).for_each(bracket);
    }

    #[test]
    fn classes_grow_with_the_size() {
        let mut sizes: Vec<u64> = edges().chain(0..=1 << 20).collect();
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            assert!(floor_class(pair[0]) <= floor_class(pair[1]), "{pair:?}");
        }
    }

    proptest! {
        #[test]
        fn any_two_sizes_compare_as_their_classes(bits in 0u32..64, a: u64, b: u64) {
            let (small, large) = ((a >> bits).min(b), (a >> bits).max(b));
            bracket(small);
            bracket(large);
            prop_assert!(floor_class(small) <= floor_class(large));
        }
    }
}
