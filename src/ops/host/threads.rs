//! The distribution of work to threads.
//!
//! The calling thread runs the parts of a range. Idle threads of rayon's current pool run parts,
//! too. No thread waits until another thread begins. If no thread helps, the caller runs all parts.
//! A caller that is not a thread of the pool also gets help. `rayon::join` would move the work of
//! this caller to the pool, and block the caller.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};

thread_local! {
    /// `true` while this thread runs delayed work.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };

    /// The number of this thread's helpers that the pool has not started yet.
    static PENDING: Arc<AtomicUsize> = Arc::default();
}

/// The maximum number of pending helpers of a thread, for each thread that may help. Without the
/// bound, helpers would accumulate in the queues of a pool while all its threads are busy.
const MOST_PENDING: usize = 4;

/// Runs delayed work on this thread alone. The work runs under the lock of its device. If this
/// thread waited for the pool, rayon could run a task of the user on this thread. If this task
/// takes the lock, it would deadlock.
pub(super) fn alone(work: impl FnOnce()) {
    let before = IS_ALONE.replace(true);
    scopeguard::defer!(IS_ALONE.set(before));
    work();
}

/// Returns whether this thread must run its work alone. Under ThreadSanitizer, every thread must.
/// ThreadSanitizer does not see how rayon's threads synchronise, because the standard library is
/// not built for it.
pub(super) fn is_alone() -> bool {
    cfg!(tsan) || IS_ALONE.get()
}

/// Returns the number of threads that may share work of this thread. These are the threads of
/// rayon's current pool, but at most one for each core. A second thread of a core would wait for
/// execution units and memory that the first thread uses.
pub(super) fn threads() -> usize {
    if is_alone() {
        return 1;
    }
    rayon::current_num_threads().min(cores())
}

/// Returns the number of cores that this process may use, as Linux reports them. Returns
/// `usize::MAX` if the cores are not known.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| {
        read_cores()
            .filter(|&cores| cores > 0)
            .unwrap_or(usize::MAX)
    })
}

fn read_cores() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let siblings = |cpu| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(path).ok()
    };
    // All logical processors of a core have equal lists.
    let cores: Option<BTreeSet<String>> = listed(allowed)?.into_iter().map(siblings).collect();
    Some(cores?.len())
}

/// Returns the numbers in a list such as `0-2,5`.
fn listed(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|number| number.parse::<usize>().ok());
        numbers.extend(first?..=last?);
    }
    Some(numbers)
}

/// Runs `body` over `0..parts`, one part after another, on this thread and on idle threads of the
/// pool. This function is compiled once, not for every kernel.
pub(super) fn share(parts: usize, body: &(dyn Fn(usize) + Sync)) {
    let helpers = threads().min(parts).saturating_sub(1);
    // `PENDING` does not exist while the thread's locals are being destroyed.
    let pending = PENDING.try_with(Arc::clone).ok();
    let pending =
        pending.filter(|pending| pending.load(Ordering::Relaxed) < MOST_PENDING * helpers);
    let Some(pending) = pending else {
        return (0..parts).for_each(body);
    };
    // SAFETY: only the lifetime changes. Helpers call the body only while they are counted. Before
    // this function returns or unwinds, `Closing` waits until no helper is counted. A helper that
    // starts later holds the reference, but does not use it.
    let body = unsafe {
        std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body)
    };
    let shared = Arc::new(SharedBody {
        body,
        parts,
        next: AtomicUsize::new(0),
        helpers: AtomicUsize::new(0),
        caller: thread::current(),
        panic: Mutex::new(None),
    });
    for _ in 0..helpers {
        let (shared, pending) = (shared.clone(), pending.clone());
        pending.fetch_add(1, Ordering::Relaxed);
        rayon::spawn(move || {
            pending.fetch_sub(1, Ordering::Relaxed);
            shared.help();
        });
    }
    let closing = Closing(&shared);
    shared.run();
    drop(closing);
    let panic = shared
        .panic
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// A body that several threads run. Helpers may start long after the caller has returned. So they
/// call the body only while they are counted in `helpers`. After the body is closed, no further
/// helper is counted.
struct SharedBody {
    body: &'static (dyn Fn(usize) + Sync),
    parts: usize,
    /// The index of the next part.
    next: AtomicUsize,
    /// The number of helpers that run parts, and the bit [`CLOSED`].
    helpers: AtomicUsize,
    caller: Thread,
    /// The panic of a helper.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The bit of [`SharedBody::helpers`] that prevents further helpers from calling the body.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// The number of times that a caller polls for the end of its helpers before it sleeps. The polls
/// take some microseconds, less than a sleep and a wake-up.
const SPINS: usize = 1 << 9;

impl SharedBody {
    /// Runs the parts that no other thread has taken.
    fn run(&self) {
        loop {
            // Relaxed ordering is sufficient. The queue of the pool orders the caller's writes, and
            // `helpers` orders the helpers' writes.
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts {
                return;
            }
            (self.body)(part);
        }
    }

    /// Runs parts like the caller, unless the body is closed.
    fn help(&self) {
        let counted = |helpers| (helpers & CLOSED == 0).then_some(helpers + 1);
        let entry = (self.helpers).fetch_update(Ordering::Acquire, Ordering::Relaxed, counted);
        if entry.is_err() {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run())) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        if self.helpers.fetch_sub(1, Ordering::Release) == CLOSED + 1 {
            self.caller.unpark();
        }
    }
}

/// A guard that closes the body when the guard drops, and waits for the helpers that run parts.
struct Closing<'a>(&'a SharedBody);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let helpers = &self.0.helpers;
        let mut spins = 0;
        helpers.fetch_or(CLOSED, Ordering::AcqRel);
        while helpers.load(Ordering::Acquire) != CLOSED {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use std::{array, thread};

    use super::{MOST_PENDING, PENDING, listed, share, threads};

    fn pool(threads: usize) -> rayon::ThreadPool {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap()
    }

    #[test]
    fn each_part_runs_once_and_is_seen_by_the_caller() {
        let pool = pool(3);
        for parts in [0, 1, 2, 7, 100] {
            for _ in 0..50 {
                let runs: [AtomicUsize; 100] = array::from_fn(|_| AtomicUsize::new(0));
                let run = || {
                    share(parts, &|part| {
                        runs[part].fetch_add(1, Ordering::Relaxed);
                        share(3, &|_| {
                            runs[part].fetch_add(1, Ordering::Relaxed);
                        });
                    });
                };
                pool.install(run);
                run();
                for (part, runs) in runs.iter().enumerate() {
                    let expected = if part < parts { 8 } else { 0 };
                    assert_eq!(runs.load(Ordering::Relaxed), expected);
                }
            }
        }
    }

    #[test]
    fn a_pool_without_time_delays_no_caller() {
        let pool = pool(2);
        let (release, wait) = channel::<()>();
        pool.spawn(move || wait.recv().unwrap());
        // One thread of the pool waits, and the other thread runs the caller. So no helper can
        // begin.
        pool.install(|| {
            let here = thread::current().id();
            for _ in 0..100 {
                share(10, &|_| assert_eq!(thread::current().id(), here));
            }
            let pending = PENDING.with(|pending| pending.load(Ordering::Relaxed));
            assert!((1..=2 * MOST_PENDING).contains(&pending), "{pending}");
        });
        release.send(()).unwrap();
    }

    #[test]
    fn a_panic_of_any_thread_is_the_callers() {
        let pool = pool(2);
        for bad in [0, 3, 9] {
            let run = || {
                share(10, &|part| {
                    thread::sleep(Duration::from_micros(100));
                    assert!(part != bad, "part {part}");
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(|| pool.install(run))).unwrap_err();
            assert!(panic.downcast_ref::<String>().unwrap().contains("part"));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        }
        pool.install(|| share(10, &|_| {}));
    }

    #[test]
    fn processors_are_read_from_a_list() {
        assert_eq!(listed("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(listed("\t7"), Some(vec![7]));
        assert_eq!(listed(""), None);
        assert_eq!(listed("a-b"), None);
        let most = pool(64).install(threads);
        assert!((1..=64).contains(&most));
        assert_eq!(pool(1).install(threads), 1);
    }
}
