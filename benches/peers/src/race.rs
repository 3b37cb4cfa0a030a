//! Side-by-side timing of contestants. In each round, each contestant runs one batch, so that
//! disturbances of the machine affect all contestants equally. The result is the median over the
//! rounds.

use std::time::{Duration, Instant};

/// The minimum duration of a batch. It is ten thousand times the cost of a clock read, and so short
/// that most batches are not interrupted.
const BATCH: Duration = Duration::from_micros(500);

/// An implementation of a task. `run(n)` executes the task `n` times.
struct Contestant<'a> {
    name: String,
    run: Box<dyn FnMut(u64) -> Duration + 'a>,
    batch: u64,
    /// The nanoseconds per execution, by round.
    nanos: Vec<f64>,
}

/// A comparison of the times of several implementations of one task.
pub struct Race<'a> {
    batch: Duration,
    contestants: Vec<Contestant<'a>>,
}

#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub nanos: f64,
    /// The ratio to the first contestant's time, as the median over the rounds.
    pub ratio: f64,
}

impl Default for Race<'_> {
    fn default() -> Self {
        Self {
            batch: BATCH,
            contestants: Vec::new(),
        }
    }
}

impl<'a> Race<'a> {
    /// Sets the minimum duration of a batch.
    pub fn batch(mut self, batch: Duration) -> Self {
        self.batch = batch;
        self
    }

    /// Adds a contestant that the race times. The first contestant is the baseline.
    pub fn add(&mut self, name: impl Into<String>, mut run: impl FnMut(u64) + 'a) {
        self.add_timed(name, move |n| {
            let start = Instant::now();
            run(n);
            start.elapsed()
        });
    }

    /// Adds a contestant that times itself.
    pub fn add_timed(&mut self, name: impl Into<String>, run: impl FnMut(u64) -> Duration + 'a) {
        self.contestants.push(Contestant {
            name: name.into(),
            run: Box::new(run),
            batch: 1,
            nanos: Vec::new(),
        });
    }

    /// Runs all rounds. Returns the result of each contestant.
    pub fn run(mut self, rounds: usize) -> Vec<Figure> {
        for contestant in &mut self.contestants {
            contestant.calibrate(self.batch);
        }
        for _ in 0..rounds {
            for contestant in &mut self.contestants {
                contestant.round();
            }
        }
        let base = self.contestants[0].nanos.clone();
        self.contestants
            .iter()
            .map(|contestant| contestant.figure(&base))
            .collect()
    }
}

impl Contestant<'_> {
    /// Determines the number of executions per batch. A batch must be long enough twice in
    /// succession, because the first runs also warm up.
    fn calibrate(&mut self, least: Duration) {
        (self.run)(1);
        let mut filled = 0;
        while filled < 2 {
            if (self.run)(self.batch) >= least {
                filled += 1;
            } else {
                filled = 0;
                self.batch *= 2;
            }
        }
    }

    fn round(&mut self) {
        let elapsed = (self.run)(self.batch);
        self.nanos
            .push(elapsed.as_nanos() as f64 / self.batch as f64);
    }

    fn figure(&self, base: &[f64]) -> Figure {
        let ratios = self.nanos.iter().zip(base).map(|(own, base)| own / base);
        Figure {
            name: self.name.clone(),
            nanos: median(self.nanos.iter().copied()),
            ratio: median(ratios),
        }
    }
}

/// Returns the CPU time of the calling thread. Unlike wall time, it excludes waits for locks, and
/// the time of other threads on the core.
pub fn thread_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable, and Linux always has this clock.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(status, 0, "the clock can be read");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Pins the calling thread to its allowed processor with index `index`. If `index` is not below the
/// number of allowed processors, does nothing.
pub fn pin_thread(index: usize) {
    // SAFETY: a `cpu_set_t` is a bit set, and all zeros is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&allowed);
    // SAFETY: `allowed` is writable, and has `bytes` bytes. The ID 0 is the calling thread.
    let status = unsafe { libc::sched_getaffinity(0, bytes, &raw mut allowed) };
    assert_eq!(status, 0, "a thread may ask where it runs");
    let processors = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: `processor` is below `CPU_SETSIZE`.
    let mut usable =
        processors.filter(|&processor| unsafe { libc::CPU_ISSET(processor, &allowed) });
    if let Some(processor) = usable.nth(index) {
        // SAFETY: `processor` is below `CPU_SETSIZE`, and `one` has `bytes` bytes. The ID 0 is the
        // calling thread.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut one);
            libc::sched_setaffinity(0, bytes, &raw const one);
        }
    }
}

/// Returns the median. If the number of values is even, the median is the mean of the two middle
/// values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

/// Prints a title and a table of the results.
pub fn print_table(title: &str, figures: &[Figure]) {
    println!("\n{title}");
    for Figure { name, nanos, ratio } in figures {
        println!("  {name:<34} {nanos:>12.1} ns {ratio:>9.2} x");
    }
}
