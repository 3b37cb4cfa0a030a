//! A cache of the most recently used plans.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Complex, Direction, OrOutOfMemory, OutOfMemory};

/// The maximum number of cached plans.
pub const MOST: usize = 64;

/// The maximum total length of the rows of all cached plans. A plan takes slightly more memory than
/// a row of its length.
pub const MOST_NUMBERS: usize = 1 << 23;

/// The number of most recent plans that are never dropped, even above [`MOST_NUMBERS`]. A transform
/// and its inverse need two plans.
const LEAST: usize = 2;

/// Recently used plans of one kind, with the most recently used plan at the end. All keys are
/// different.
#[derive(Debug)]
pub struct PlanCache<P: ?Sized>(Mutex<Vec<CachedPlan<P>>>);

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

    /// Returns the plan for `key`. If the cache has no such plan, `make` makes it, unless the
    /// memory is insufficient.
    ///
    /// # Errors
    ///
    /// Returns [`OutOfMemory`].
    pub fn get<T>(
        &self,
        key: (usize, Direction),
        make: impl FnOnce() -> Arc<P>,
    ) -> OrOutOfMemory<Arc<P>> {
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        // Two threads that need one plan may both make it. Neither thread waits for the other.
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

    /// Caches a plan, and returns it. If another thread has already cached a plan for the key,
    /// returns the cached plan instead.
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
        // Large tables are freed without holding the lock.
        drop(dropped);
        made
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedPlan<P>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of plans to drop from the beginning. `lengths` are the lengths of all plans,
/// and the last plan is the most recent one.
fn surplus(lengths: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) -> usize {
    let all = lengths.len();
    let mut numbers = 0_usize;
    let fits = |&(place, length): &(usize, usize)| {
        numbers = numbers.saturating_add(length);
        place < LEAST || (place < MOST && numbers <= MOST_NUMBERS)
    };
    all - lengths.rev().enumerate().take_while(fits).count()
}

/// Checks that there is memory for the tables of a plan. Without memory, rustfft and realfft would
/// abort the program.
fn check_memory<T>(length: usize) -> OrOutOfMemory<()> {
    let mut scratch: Vec<Complex<T>> = Vec::new();
    let numbers = length.checked_mul(2).ok_or(OutOfMemory)?;
    scratch.try_reserve_exact(numbers).map_err(|_| OutOfMemory)
}
