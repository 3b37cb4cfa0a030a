//! Operations with one and with two threads, alternating in one process. The first column is the
//! time with one thread. The other columns are ratios of the time with two threads to this time.
//! `inside` runs on a thread of rayon's pool. `outside` runs on a thread outside of all pools, as
//! in most programs. `fastest` compares the fastest rounds of `outside`, for machines that also run
//! other programs.
//!
//! `cargo bench --bench threads -- [ROUNDS [PART OF A NAME]]`

mod cases;

use std::env;
use std::time::{Duration, Instant};

use cachescope::{Result, cache_scope};
use rayon::{ThreadPool, ThreadPoolBuilder};

use cases::{Case, for_each};

/// The minimum duration of a measurement. Shorter operations are repeated.
const TURN: Duration = Duration::from_millis(2);
/// The ratio above which two threads count as slower than one thread. Rows above this ratio are
/// listed again at the end.
const SLOWER: f64 = 1.03;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Cargo passes `--bench` to the benchmark.
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(Ok(15), |rounds| rounds.parse())?;
    let part = arguments.next().unwrap_or_default();
    ThreadPoolBuilder::new().num_threads(2).build_global()?;
    let one = ThreadPoolBuilder::new().num_threads(1).build()?;
    let two = ThreadPoolBuilder::new().num_threads(2).build()?;
    println!("medians of {rounds} rounds");
    println!(
        "{:<34} {:>10} {:>8} {:>8} {:>8}",
        "", "one", "inside", "outside", "fastest"
    );
    let mut slower = Vec::new();
    for_each(&part, |name, mut case| {
        let row = measure(&mut case, [Some(&one), Some(&two), None], rounds)?;
        let Row {
            one,
            inside,
            outside,
            fastest,
        } = row;
        let text = format!("{name:<34} {one:>8.1}µs {inside:>8.3} {outside:>8.3} {fastest:>8.3}");
        println!("{text}");
        if inside.max(outside) > SLOWER {
            slower.push(text);
        }
        Ok(())
    })?;
    println!("\n{} rows are slower with two threads:", slower.len());
    slower.iter().for_each(|row| println!("{row}"));
    Ok(())
}

struct Row {
    /// The time with one thread, in microseconds.
    one: f64,
    /// The ratio of the time with two threads to the time with one, as the median over the rounds.
    inside: f64,
    outside: f64,
    /// The ratio of the fastest `outside` round to the fastest round with one thread.
    fastest: f64,
}

fn measure(case: &mut Case, pools: [Option<&ThreadPool>; 3], rounds: usize) -> Result<Row> {
    let mut times = 1;
    for pool in pools {
        run(pool, case, 1)?;
    }
    while run(pools[0], case, times)? < TURN / 2 {
        times *= 2;
    }
    let mut columns = [const { Vec::new() }; 5];
    for _ in 0..rounds {
        let mut of = |pool| Ok(run(pool, case, times)?.as_secs_f64() * 1e6 / times as f64);
        let [one, inside, outside]: [Result<f64>; 3] = pools.map(&mut of);
        let (one, inside, outside) = (one?, inside?, outside?);
        let row = [one, inside / one, outside / one, one, outside];
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
    }
    for column in &mut columns {
        column.sort_by(f64::total_cmp);
    }
    let median = |column: usize| columns[column][rounds / 2];
    Ok(Row {
        one: median(0),
        inside: median(1),
        outside: median(2),
        fastest: columns[4][0] / columns[3][0],
    })
}

/// Fills the scope's cache with one run, and then times `times` runs.
fn run(pool: Option<&ThreadPool>, case: &mut Case, times: usize) -> Result<Duration> {
    let mut timed = || {
        cache_scope!("threads", {
            case()?;
            let start = Instant::now();
            for _ in 0..times {
                case()?;
            }
            Ok(start.elapsed())
        })
    };
    match pool {
        Some(pool) => pool.install(timed),
        None => timed(),
    }
}
