//! Timing contestants side by side: in every round each of them runs one batch, so that whatever
//! else the machine does strikes them all alike; what counts is the median over the rounds.

use std::time::{Duration, Instant};

/// The minimum duration of one batch: ten thousand times the cost of reading the clock, and short
/// enough that most batches are not interrupted.
const BATCH: Duration = Duration::from_micros(500);

/// One way to do a piece of work: `run(n)` does it `n` times.
struct Contestant<'a> {
    name: String,
    run: Box<dyn FnMut(u64) -> Duration + 'a>,
    batch: u64,
    /// Nanoseconds a piece, by round.
    nanos: Vec<f64>,
}

/// Contestants for the same work.
pub struct Race<'a> {
    batch: Duration,
    contestants: Vec<Contestant<'a>>,
}

/// The medians of one contestant.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub nanos: f64,
    /// Against the first contestant, round by round.
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
    /// Sets how long one batch lasts at least.
    pub fn batch(mut self, batch: Duration) -> Self {
        self.batch = batch;
        self
    }

    /// Adds a contestant that is timed from outside; the first one is what the others are held to.
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

    /// Runs the rounds; returns a figure for each contestant.
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
    /// Finds how many pieces fill a batch, twice in a row: the first runs also warm up.
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

/// The processor time of the calling thread so far: what a thread that shares its core with others
/// is measured by. Waiting for a lock does not count.
pub fn thread_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable, and every Linux has this clock.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(status, 0, "the clock can be read");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Keeps the calling thread on the `index`-th of the processors that it may use; where there are
/// fewer, it stays as it is.
pub fn pin_thread(index: usize) {
    // SAFETY: a set of processors is plain bits, and all zeros is the empty one.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&allowed);
    // SAFETY: `allowed` is writable and has that many bytes; 0 is the calling thread.
    let status = unsafe { libc::sched_getaffinity(0, bytes, &raw mut allowed) };
    assert_eq!(status, 0, "a thread may ask where it runs");
    let processors = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: `processor` is below the size of the set.
    let mut usable =
        processors.filter(|&processor| unsafe { libc::CPU_ISSET(processor, &allowed) });
    if let Some(processor) = usable.nth(index) {
        // SAFETY: as above.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut one);
            libc::sched_setaffinity(0, bytes, &raw const one);
        }
    }
}

/// The middle value; the mean of the two middle ones of an even number.
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

/// Prints the figures below a title.
pub fn print_table(title: &str, figures: &[Figure]) {
    println!("\n{title}");
    for Figure { name, nanos, ratio } in figures {
        println!("  {name:<34} {nanos:>12.1} ns {ratio:>9.2} x");
    }
}
