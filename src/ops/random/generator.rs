//! The state of a generator, and the generator of each thread.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use crate::ops::host::RUN;
use cachescope_kernels::random::fill::below;
use cachescope_kernels::random::philox::Draws;

/// A seeded generator of random numbers. Equal seeds give equal numbers, on every device.
///
/// Ten numbers drawn at once equal four numbers drawn first and six numbers drawn next.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Generator};
///
/// let whole = Array::<f32>::rand_with(&mut Generator::new(7), 10)?.to_vec()?;
/// let mut generator = Generator::new(7);
/// let head = Array::<f32>::rand_with(&mut generator, 4)?.to_vec()?;
/// let tail = Array::<f32>::rand_with(&mut generator, 6)?.to_vec()?;
/// assert_eq!(whole, [head, tail].concat());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    seed: u64,
    // The position of the first word that has not been drawn yet.
    position: u64,
}

impl Generator {
    /// Returns a generator with the seed `seed`, before its first number.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Generator;
    ///
    /// assert_eq!(Generator::new(1), Generator::new(1));
    /// assert_ne!(Generator::new(1), Generator::new(2));
    /// ```
    pub fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    /// Returns `count` draws of `words` words each (1 or 2), aligned to their size. Advances the
    /// generator.
    pub(super) fn advance(&mut self, sequence: u32, count: usize, words: usize) -> Draws {
        let start = self.position.next_multiple_of(words as u64);
        self.position = start.wrapping_add((count * words) as u64);
        Draws {
            seed: self.seed,
            sequence,
            start,
        }
    }

    /// Returns `0..n` in random order, with uniform probability (Fisher and Yates).
    pub(super) fn shuffled(&mut self, n: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..n as i64).collect();
        let draws = self.advance(UNIFORM, n.saturating_sub(1), 2);
        let mut words = [0; 2 * RUN];
        for start in (1..n).step_by(RUN) {
            let draws = draws.after(2 * (start - 1));
            let words = &mut words[..2 * RUN.min(n - start)];
            draws.write(words);
            for (at, pair) in words.as_chunks().0.iter().enumerate() {
                let last = start + at;
                let other = below(*pair, last as u64 + 1, || draws.after(2 * at));
                order.swap(last, other as usize);
            }
        }
        order
    }
}

thread_local! {
    static GENERATOR: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

/// Runs `f`, and then restores the previous state of the calling thread's generator.
pub(crate) fn keeping_generator<R>(f: impl FnOnce() -> R) -> R {
    let before = GENERATOR.with_borrow(Clone::clone);
    scopeguard::defer!(GENERATOR.set(before));
    f()
}

/// Calls `f` with the calling thread's generator, which is borrowed during the call. So `f` must
/// not allocate device memory, because a callback under memory pressure may draw numbers too.
pub(super) fn of_thread<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    GENERATOR.with_borrow_mut(|generator| {
        // Threads without a seed must not repeat each other's numbers.
        f(generator.get_or_insert_with(|| Generator::new(RandomState::new().hash_one(()))))
    })
}

/// Seeds the calling thread's generator, from which every random array without an explicit
/// [`Generator`] draws. A thread that is never seeded begins at an unpredictable seed.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, manual_seed};
///
/// manual_seed(7);
/// let first = Array::<f32>::randn(3)?;
/// manual_seed(7);
/// assert_eq!(Array::<f32>::randn(3)?, first);
/// # Ok::<(), cachescope::Error>(())
/// ```
pub fn manual_seed(seed: u64) {
    of_thread(|generator| *generator = Generator::new(seed));
}

/// Returns a generator for another thread. The seed is a number that the calling thread's generator
/// draws.
pub(crate) fn split_thread_generator() -> Generator {
    of_thread(|generator| Generator::new(generator.advance(UNIFORM, 1, 2).pair(0)))
}

pub(crate) fn thread_state() -> Generator {
    of_thread(|generator| generator.clone())
}

/// Sets the state of the calling thread's generator, and returns the previous state.
pub(crate) fn replace_thread_state(state: Generator) -> Generator {
    of_thread(|generator| std::mem::replace(generator, state))
}

// Different kinds of draws use different sequences of a seed. Otherwise, a later draw of another
// kind would reuse words of a normal number.
pub(super) const UNIFORM: u32 = 0;

/// Returns the sequence of normal numbers that are computed from draws of `words` words.
pub(super) const fn normal_sequence(words: usize) -> u32 {
    words as u32
}
