//! Benchmark W3: plans for lifetimes that are known in advance. The benchmark measures the slab
//! size and the planning time.
//!
//! The peers minimalloc and idealloc are not crates, so they are not measured here. The greedy
//! placements are computed in this file.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench plan [-- ROUNDS | --quick]`

use std::cmp::Reverse;
use std::path::Path;
use std::time::{Duration, Instant};

use cachescope_peers::race::{median, thread_time};
use cachescope_peers::training;
use cachescope_tools::plan::{BufferInterval, Options, Packing, pack, pack_quickly, validate};
use cachescope_tools::trace::Lifetime;

/// The maximum slab size for MiniMalloc's inputs.
const CAPACITY: u64 = 1 << 20;

/// The time limit of a search for a plan. If the slab reaches the maximum load, the search ends
/// earlier.
const TIME_LIMIT: Duration = Duration::from_secs(10);

struct Input {
    name: &'static str,
    buffers: Vec<BufferInterval>,
    capacity: Option<u64>,
}

fn main() -> cachescope::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let rounds = given.unwrap_or(if quick { 1 } else { 11 });
    println!(
        "slab / load, and milliseconds: medians of {rounds} rounds, by the clock and by the processor"
    );
    println!(
        "  {:<20} {:>8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "", "buffers", "by size", "by area", "quickly", "ms", "cpu ms", "goal", "ms", "cpu ms"
    );
    for input in inputs()? {
        input.report(rounds);
    }
    Ok(())
}

fn inputs() -> cachescope::Result<Vec<Input>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let mut inputs = Vec::new();
    for name in ["A", "C", "D", "G", "J"] {
        let lifetimes = Lifetime::read_file(&data.join(format!("{name}.1048576.csv")))?;
        inputs.push(Input::new(name, &lifetimes, Some(CAPACITY)));
    }
    for name in ["resnet50", "G_1"] {
        let lifetimes = Lifetime::read_file(&data.join(format!("{name}.csv")))?;
        inputs.push(Input::new(name, &lifetimes, None));
    }
    inputs.push(Input::new(
        "synthetic, plain",
        &training::PLAIN.step(),
        None,
    ));
    inputs.push(Input::new(
        "synthetic, experts",
        &training::EXPERTS.step(),
        None,
    ));
    Ok(inputs)
}

impl Input {
    fn new(name: &'static str, lifetimes: &[Lifetime], capacity: Option<u64>) -> Self {
        let buffer = |lifetime: &Lifetime| BufferInterval {
            lower: lifetime.lower,
            upper: lifetime.upper,
            size_bytes: lifetime.size_bytes,
        };
        Self {
            name,
            buffers: lifetimes.iter().map(buffer).collect(),
            capacity,
        }
    }

    fn report(&self, rounds: usize) {
        let by_size = self.greedy_slab(|buffer| buffer.size_bytes.into());
        let by_area = self.greedy_slab(area);
        let quickly = self.timed(rounds, pack_quickly);
        let options = Options {
            capacity_bytes: self.capacity,
            time_limit: TIME_LIMIT,
        };
        let goal = self.timed(rounds, |buffers| pack(buffers, &options));
        let load = goal.plan.max_load_bytes as f64;
        let ratio = |slab: u64| slab as f64 / load;
        println!(
            "  {:<20} {:>8} {:>9.5} {:>9.5} {:>9.5} {:>8.2} {:>8.2} {:>9.5} {:>9.2} {:>9.2}",
            self.name,
            self.buffers.len(),
            ratio(by_size),
            ratio(by_area),
            ratio(quickly.plan.slab_bytes),
            quickly.millis,
            quickly.cpu_millis,
            ratio(goal.plan.slab_bytes),
            goal.millis,
            goal.cpu_millis
        );
    }

    fn timed(&self, rounds: usize, plan: impl Fn(&[BufferInterval]) -> Packing) -> Timed {
        let rounds: Vec<Timed> = (0..rounds.max(1))
            .map(|_| {
                let (begin, cpu_begin) = (Instant::now(), thread_time());
                let plan = plan(&self.buffers);
                Timed {
                    millis: begin.elapsed().as_secs_f64() * 1e3,
                    cpu_millis: (thread_time() - cpu_begin).as_secs_f64() * 1e3,
                    plan,
                }
            })
            .collect();
        let plan = rounds[0].plan.clone();
        validate(&self.buffers, &plan.offsets, plan.slab_bytes).expect("a plan");
        Timed {
            millis: median(rounds.iter().map(|round| round.millis)),
            cpu_millis: median(rounds.iter().map(|round| round.cpu_millis)),
            plan,
        }
    }

    /// Returns the slab size of a greedy plan. The buffers are placed in descending order of
    /// `most`, each at the lowest free offset.
    fn greedy_slab(&self, most: impl Fn(&BufferInterval) -> u128) -> u64 {
        let mut order: Vec<&BufferInterval> = self.buffers.iter().collect();
        order.retain(|buffer| buffer.lower < buffer.upper && buffer.size_bytes > 0);
        order.sort_by_key(|buffer| Reverse(most(buffer)));
        // The placed buffers in order of their offsets, each with its end.
        let mut placed: Vec<(u64, u64, &BufferInterval)> = Vec::new();
        for buffer in order {
            let mut offset = 0;
            for &(from, to, other) in &placed {
                if other.lower < buffer.upper && buffer.lower < other.upper && to > offset {
                    if from >= offset + buffer.size_bytes {
                        break;
                    }
                    offset = to;
                }
            }
            let at = placed.partition_point(|&(from, ..)| from < offset);
            placed.insert(at, (offset, offset + buffer.size_bytes, buffer));
        }
        placed.iter().map(|&(_, to, _)| to).max().unwrap_or(0)
    }
}

fn area(buffer: &BufferInterval) -> u128 {
    u128::from(buffer.size_bytes) * u128::from(buffer.upper - buffer.lower)
}

struct Timed {
    plan: Packing,
    millis: f64,
    cpu_millis: f64,
}
