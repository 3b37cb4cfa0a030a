//! A cache of the plans that were used last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Complex, Direction, OrOutOfMemory, OutOfMemory};

/// The maximum number of plans that are kept.
pub const MOST: usize = 64;

/// The maximum number of elements in the rows of all kept plans together. A plan takes somewhat
/// more memory than a row.
pub const MOST_NUMBERS: usize = 1 << 23;

/// The number of plans that are kept however long they are: a transform and its inverse.
const LEAST: usize = 2;

/// The plans of one kind that were used last, the most recent one at the end. No key occurs twice.
#[derive(Debug)]
pub struct PlanCache<P: ?Sized>(Mutex<Vec<CachedPlan<P>>>);

/// A plan and its key.
#[derive(Debug)]
struct CachedPlan<P: ?Sized> {
    key: (usize, Direction),
    plan: Arc<P>,
}

impl<P: ?Sized> PlanCache<P> {
    /// Returns an empty cache.
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the plan of that key. If there is none, `make` makes it, provided that there is
    /// memory for it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn get<T>(
        &self,
        key: (usize, Direction),
        make: impl FnOnce() -> Arc<P>,
    ) -> OrOutOfMemory<Arc<P>> {
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        // Two threads may make one plan at once; neither waits for the other.
        check_memory::<T>(key.0)?;
        let made = make();
        Ok(self.insert(key, made))
    }

    fn find(&self, key: (usize, Direction)) -> Option<Arc<P>> {
        let mut plans = self.lock();
        let place = plans.iter().rposition(|plan| plan.key == key)?;
        plans[place..].rotate_left(1);
        plans.last().map(|found| Arc::clone(&found.plan))
    }

    /// Keeps a plan, unless another thread did so meanwhile; returns the one that is kept.
    fn insert(&self, key: (usize, Direction), made: Arc<P>) -> Arc<P> {
        if let Some(found) = self.find(key) {
            return found;
        }
        let mut plans = self.lock();
        plans.push(CachedPlan {
            key,
            plan: Arc::clone(&made),
        });
        let surplus = surplus(plans.iter().map(|plan| plan.key.0));
        let dropped: Vec<CachedPlan<P>> = plans.drain(..surplus).collect();
        drop(plans);
        // Large tables are freed outside of the lock.
        drop(dropped);
        made
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedPlan<P>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of plans to drop, given the lengths of all plans. The last plan was used
/// last.
fn surplus(lengths: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) -> usize {
    let all = lengths.len();
    let mut numbers = 0_usize;
    let fits = |&(place, length): &(usize, usize)| {
        numbers = numbers.saturating_add(length);
        place < LEAST || (place < MOST && numbers <= MOST_NUMBERS)
    };
    all - lengths.rev().enumerate().take_while(fits).count()
}

/// Checks that there is memory for the tables of a plan: rustfft and realfft would abort the
/// program if there were none.
fn check_memory<T>(length: usize) -> OrOutOfMemory<()> {
    let mut scratch: Vec<Complex<T>> = Vec::new();
    let numbers = length.checked_mul(2).ok_or(OutOfMemory)?;
    scratch.try_reserve_exact(numbers).map_err(|_| OutOfMemory)
}
