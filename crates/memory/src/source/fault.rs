//! Fault injection: reservations that fail on purpose, to test every path of exhaustion.

use super::{ReserveAt, Source, SourcePart};
use crate::device::{Destination, DevicePtr, StreamId};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::plain::{AtomicU64, Ordering};

/// For tests: a plan of reservations that fail as if the device were exhausted.
///
/// Reservations are counted from 1, over all threads. Failed reservations count, too. A reservation
/// is a segment, or pages of a range. On a GPU, if a step of growth fails, a reservation of only
/// the needed memory follows. For one sequence of reservations, the failures of a plan are
/// deterministic. A reservation fills the pool. Arrays that the pool then serves need no further
/// reservation. An allocation whose reservation failed releases idle memory and tries again. To
/// exhaust a device permanently, use [`From`](Self::From).
///
/// # Examples
///
/// ```
/// # extern crate cachescope_memory as cachescope;
/// use cachescope::{Buffer, Device, DeviceConfig, FaultPlan};
///
/// let fault = Some(FaultPlan::From(2));
/// let device = Device::host_with(DeviceConfig { fault, ..Default::default() })?;
/// let first = Buffer::new(&device, 64 << 20)?;
/// let error = Buffer::new(&device, 64 << 20).unwrap_err();
/// assert!(error.is_out_of_memory());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FaultPlan {
    /// A failure of only the reservation with this number.
    Nth(u64),
    /// A failure of the reservation with this number and of all later reservations.
    From(u64),
    /// A failure of every reservation whose number is a multiple of this number. The number 1 fails
    /// all reservations.
    Every(u64),
    /// A failure of each reservation with this probability, determined by the seed and the number.
    Random {
        /// The probability: 0.0 fails no reservation, 1.0 fails all reservations.
        probability: f64,
        /// The seed.
        seed: u64,
    },
}

impl FaultPlan {
    /// Rejects the number 0 and probabilities outside `0.0..=1.0`.
    fn validate(self) -> Result<()> {
        let valid = match self {
            Self::Nth(number) | Self::From(number) | Self::Every(number) => number > 0,
            // NaN is outside of the range, too.
            Self::Random { probability, .. } => (0.0..=1.0).contains(&probability),
        };
        if valid {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "fault plan {self:?}: expected reservations of at least 1, and probabilities from \
                 0 to 1"
            ),
        ))
    }

    fn fails(self, number: u64) -> bool {
        match self {
            Self::Nth(nth) => number == nth,
            Self::From(first) => number >= first,
            Self::Every(period) => number.is_multiple_of(period),
            Self::Random { probability, seed } => uniform(seed, number) < probability,
        }
    }
}

/// Returns the `index`th number of the sequence of `seed`, uniform in `0.0..1.0`: SplitMix64
/// (Steele, Lea and Flood, OOPSLA 2014). The generator's state is a counter, so no lock is needed.
fn uniform(seed: u64, index: u64) -> f64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    // A double holds exactly 53 bits.
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[derive(Debug)]
pub(crate) struct Fault<S> {
    inner: S,
    plan: FaultPlan,
    reserves: AtomicU64,
}

impl<S> Fault<S> {
    /// Creates a source that fails reservations from `inner` according to `plan`.
    pub(crate) fn new(inner: S, plan: FaultPlan) -> Result<Self> {
        plan.validate()?;
        Ok(Self {
            inner,
            plan,
            reserves: AtomicU64::new(0),
        })
    }
}

impl<S: Source> Source for Fault<S> {
    fn reserve(&self, at: ReserveAt, bytes: u64, stream: StreamId) -> Result<Option<DevicePtr>> {
        let number = self.reserves.fetch_add(1, Ordering::Relaxed) + 1;
        if self.plan.fails(number) {
            return Ok(None);
        }
        self.inner.reserve(at, bytes, stream)
    }

    fn release(&self, part: SourcePart, to: Destination) -> Result<()> {
        self.inner.release(part, to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{TestSource, release, try_reserve};
    use super::*;

    /// Returns the numbers of the failed reservations among the first `count` reservations.
    fn failures(plan: FaultPlan, count: u64) -> Vec<u64> {
        let source = Fault::new(TestSource::new(u64::MAX), plan).unwrap();
        (1..=count)
            .filter(|_| try_reserve(&source, 512).is_none())
            .collect()
    }

    #[test]
    fn plans_fail_exactly_what_they_name() {
        assert_eq!(failures(FaultPlan::Nth(1), 10), [1]);
        assert_eq!(failures(FaultPlan::Nth(7), 10), [7]);
        assert!(failures(FaultPlan::Nth(11), 10).is_empty());
        assert_eq!(failures(FaultPlan::From(8), 10), [8, 9, 10]);
        assert_eq!(failures(FaultPlan::Every(3), 10), [3, 6, 9]);
        assert_eq!(failures(FaultPlan::Every(1), 3), [1, 2, 3]);
    }

    #[test]
    fn random_failures_have_their_probability_and_repeat_by_seed() {
        let plan = |probability, seed| FaultPlan::Random { probability, seed };
        assert!(failures(plan(0.0, 1), 1000).is_empty());
        assert_eq!(failures(plan(1.0, 1), 1000).len(), 1000);
        let quarter = failures(plan(0.25, 1), 10_000);
        assert!((2300..2700).contains(&quarter.len()), "{}", quarter.len());
        assert_eq!(quarter, failures(plan(0.25, 1), 10_000));
        assert_ne!(quarter, failures(plan(0.25, 2), 10_000));
    }

    /// Compares the generator with the first outputs of the reference implementation for the seed
    /// 1234567.
    #[test]
    fn the_generator_is_splitmix64() {
        let expected: [u64; 3] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        for (index, value) in (1..).zip(expected) {
            let value = (value >> 11) as f64 / (1u64 << 53) as f64;
            assert_eq!(uniform(1_234_567, index), value);
        }
    }

    #[test]
    fn plans_that_mean_nothing_are_refused() {
        let random = |probability| FaultPlan::Random {
            probability,
            seed: 0,
        };
        let plans = [
            FaultPlan::Nth(0),
            FaultPlan::From(0),
            FaultPlan::Every(0),
            random(-0.1),
            random(1.1),
            random(f64::NAN),
            random(f64::INFINITY),
        ];
        for plan in plans {
            let error = Fault::new(TestSource::new(1), plan).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(&format!("{plan:?}")), "{error}");
        }
    }

    #[test]
    fn releases_pass_and_are_not_counted() {
        let source = Fault::new(TestSource::new(u64::MAX), FaultPlan::Nth(2)).unwrap();
        let address = try_reserve(&source, 512).unwrap();
        release(&source, address, 512);
        assert_eq!(source.inner.held_bytes(), 0);
        assert_eq!(try_reserve(&source, 512), None);
    }
}
