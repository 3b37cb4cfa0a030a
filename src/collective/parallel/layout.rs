//! The assignment of gradients to buckets and slots, as plain data.

use std::ops::Range;

use crate::array::DType;
use crate::sorting::sort_ascending;

/// The slot of a gradient: its position in its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) bucket: usize,
    pub(super) elements: Range<usize>,
}

/// The type, length and members of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketShape {
    pub(super) dtype: DType,
    /// The number of elements, padding included.
    pub(super) length: usize,
    /// The number of elements without padding.
    pub(super) filled: usize,
    /// The indices of the bucket's parameters.
    pub(super) members: Vec<usize>,
}

/// The layout of the buckets of all parameters.
///
/// Invariants: Each gradient has one slot. The slots of a bucket do not overlap, and fill the
/// bucket without gaps. Buckets are in the order in which their last gradients become ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketLayout {
    /// The slots, by parameter index.
    pub(super) slots: Vec<Slot>,
    pub(super) buckets: Vec<BucketShape>,
}

/// The maximum sizes of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketSizes {
    /// The maximum size of the first bucket. The first bucket is smaller than the others, so that
    /// the first exchange starts early.
    pub(super) first_bytes: usize,
    pub(super) bytes: usize,
    /// The divisor of all buckets' lengths, in elements.
    pub(super) unit: usize,
}

impl BucketLayout {
    /// Returns the number of gradients of each bucket.
    pub(super) fn members_each(&self) -> Vec<usize> {
        self.buckets.iter().map(|own| own.members.len()).collect()
    }

    /// Assigns gradients, each a type and a length, to buckets. The gradients become ready in
    /// `order`. A gradient that is larger than a bucket gets its own bucket.
    pub(super) fn new(order: &[usize], gradients: &[(DType, usize)], sizes: BucketSizes) -> Self {
        let mut buckets: Vec<BucketShape> = Vec::new();
        let mut slots = vec![None; gradients.len()];
        // For each type, only the last bucket may receive further gradients.
        for &number in order {
            let (dtype, length) = gradients[number];
            let last = buckets.iter().rposition(|own| own.dtype == dtype);
            let has_room = |&at: &usize| {
                let most = if at == 0 {
                    sizes.first_bytes
                } else {
                    sizes.bytes
                };
                (buckets[at].filled + length) * dtype.size_bytes() <= most
            };
            let bucket = last.filter(has_room).unwrap_or_else(|| {
                buckets.push(BucketShape {
                    dtype,
                    length: 0,
                    filled: 0,
                    members: Vec::new(),
                });
                buckets.len() - 1
            });
            let own = &mut buckets[bucket];
            slots[number] = Some(Slot {
                bucket,
                elements: own.filled..own.filled + length,
            });
            own.filled += length;
            own.length = own.filled.next_multiple_of(sizes.unit);
            own.members.push(number);
        }
        let slots = slots
            .into_iter()
            .map(|slot| slot.expect("the order contains each parameter once"));
        Self {
            slots: slots.collect(),
            buckets,
        }
        .in_order_of_their_ends(order)
    }

    /// Sorts the buckets by their last gradient. With several types, a bucket that was begun early
    /// may be full late.
    fn in_order_of_their_ends(mut self, order: &[usize]) -> Self {
        let ready = |bucket: &BucketShape| {
            let last = bucket.members.last();
            let place = order.iter().position(|number| Some(number) == last);
            place.map_or(0, |place| place as u64 + 1)
        };
        let mut sorted: Vec<usize> = (0..self.buckets.len()).collect();
        sort_ascending(&mut sorted, |&own| ready(&self.buckets[own]));
        for slot in &mut self.slots {
            let place = sorted.iter().position(|&own| own == slot.bucket);
            slot.bucket = place.expect("the order contains each bucket once");
        }
        self.buckets = sorted
            .into_iter()
            .map(|own| self.buckets[own].clone())
            .collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: BucketSizes = BucketSizes {
        first_bytes: 40,
        bytes: 80,
        unit: 1,
    };

    fn members(layout: &BucketLayout) -> Vec<&[usize]> {
        layout
            .buckets
            .iter()
            .map(|own| own.members.as_slice())
            .collect()
    }

    #[test]
    fn gradients_fill_buckets_in_the_order_in_which_they_are_ready() {
        let gradients: Vec<_> = [4, 100, 5, 6, 9, 1]
            .map(|length| (DType::F32, length))
            .into();
        let layout = BucketLayout::new(&[5, 4, 3, 2, 1, 0], &gradients, SIZES);
        assert_eq!(members(&layout), [&[5, 4][..], &[3, 2], &[1], &[0]]);
        assert_eq!(layout.slots[4].elements, 1..10);
        assert_eq!(layout.slots[1].elements, 0..100);
        let lengths: Vec<_> = layout.buckets.iter().map(|own| own.length).collect();
        assert_eq!(lengths, [10, 11, 100, 4]);
    }

    #[test]
    fn each_type_has_its_own() {
        let gradients = [
            (DType::F32, 2),
            (DType::F16, 2),
            (DType::F32, 2),
            (DType::F16, 30),
        ];
        let layout = BucketLayout::new(&[0, 1, 2, 3], &gradients, SIZES);
        assert_eq!(members(&layout), [&[0, 2][..], &[1, 3]]);
        let layout = BucketLayout::new(&[0, 1, 3, 2], &gradients, SIZES);
        assert_eq!(members(&layout), [&[1, 3][..], &[0, 2]], "by their ends");
        assert_eq!(layout.slots[2].bucket, 1);
    }

    #[test]
    fn lengths_are_whole_units() {
        let sizes = BucketSizes { unit: 64, ..SIZES };
        let layout = BucketLayout::new(&[0], &[(DType::F32, 65)], sizes);
        assert_eq!(
            (layout.buckets[0].filled, layout.buckets[0].length),
            (65, 128)
        );
    }

    #[test]
    fn slots_cover_their_buckets_once() {
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let count = 1 + next(20) as usize;
            let gradients: Vec<_> = (0..count)
                .map(|_| {
                    let dtype = [DType::F32, DType::F16, DType::F64][next(3) as usize];
                    (dtype, next(40) as usize)
                })
                .collect();
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by_key(|_| next(1000));
            let layout = BucketLayout::new(&order, &gradients, SIZES);
            let mut covered = vec![0; layout.buckets.len()];
            for &number in &order {
                let Slot { bucket, elements } = &layout.slots[number];
                assert_eq!(layout.buckets[*bucket].dtype, gradients[number].0);
                assert_eq!(elements.len(), gradients[number].1);
                assert_eq!(elements.start, covered[*bucket], "one after the other");
                covered[*bucket] = elements.end;
            }
            for (bucket, covered) in layout.buckets.iter().zip(covered) {
                assert_eq!(bucket.filled, covered);
            }
        }
    }
}
