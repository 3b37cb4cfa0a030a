//! Benchmark W6: array operations on the host, compared with ndarray and candle.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench arrays [-- ROUNDS] [NAME…]
//! [--side=N]`
//!
//! With `--features double`, the elements are `f64`, otherwise `f32`. Without `RAYON_NUM_THREADS`,
//! the benchmark runs itself with one thread, and then with two threads. A name selects an
//! operation. Without names, all operations run.

use std::any::type_name;
use std::env;
use std::process::{Command, exit};

use cachescope_peers::arrays::{Number, OPS, Op, Task, candle, limit, nd, ours};
use cachescope_peers::race::{Figure, Race};

/// The numbers of rows of the square matrices: 1, 2^4, 121, 2^8, 2^10, 2^16 and 2^22 elements.
const SIDES: [usize; 7] = [1, 4, 11, 16, 32, 256, 2048];
/// The numbers of rows of the square matrices for products.
const PRODUCT_SIDES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
/// The names of the contestants, which are the names of the columns.
const CONTESTANTS: [&str; 7] = [
    "cachescope",
    "copy",
    "memcpy",
    "in place",
    "ndarray",
    "zip",
    "candle",
];

fn main() {
    match env::var("RAYON_NUM_THREADS").map(|threads| threads.parse()) {
        Ok(Ok(threads)) => Settings::new(threads).run(),
        Ok(Err(_)) => panic!("RAYON_NUM_THREADS is a number"),
        Err(_) => {
            for threads in ["1", "2"] {
                again(threads);
            }
        }
    }
}

/// Runs this program with the given number of threads.
fn again(threads: &str) {
    let program = env::current_exe().expect("a program knows its own file");
    let status = Command::new(program)
        .args(env::args_os().skip(1))
        .env("RAYON_NUM_THREADS", threads)
        .env("MATMUL_NUM_THREADS", threads)
        .status()
        .expect("it can be run again");
    if !status.success() {
        exit(status.code().unwrap_or(1));
    }
}

struct Settings {
    threads: usize,
    rounds: usize,
    only: Vec<Op>,
    side: Option<usize>,
}

impl Settings {
    fn new(threads: usize) -> Self {
        let arguments: Vec<String> = env::args()
            .skip(1)
            .filter(|text| text != "--bench")
            .collect();
        let number = |text: &String| text.parse().ok();
        let side = |text: &String| text.strip_prefix("--side=").map(str::parse);
        let side = arguments.iter().find_map(side);
        Self {
            threads,
            rounds: arguments.iter().find_map(number).unwrap_or(31),
            only: arguments
                .iter()
                .filter_map(|text| text.parse().ok())
                .collect(),
            side: side.map(|side| side.expect("a side is a number")),
        }
    }

    fn run(&self) {
        let wanted = |op: &Op| self.only.is_empty() || self.only.contains(op);
        let ops: Vec<Op> = OPS.iter().map(|(op, _)| *op).filter(wanted).collect();
        for side in SIDES {
            let maps = ops.iter().filter(|&&op| op != Op::Matmul);
            self.table(
                &format!("{} elements of {}", side * side, type_name::<Number>()),
                maps.map(|&op| Task { op, side }),
            );
        }
        if wanted(&Op::Matmul) {
            let tasks = PRODUCT_SIDES.map(|side| Task {
                op: Op::Matmul,
                side,
            });
            let title = format!("products of square matrices of {}", type_name::<Number>());
            self.table(&title, tasks.into_iter());
        }
    }

    /// Runs all tasks with all contestants, and prints the times.
    fn table(&self, title: &str, tasks: impl Iterator<Item = Task>) {
        let wanted = |task: &Task| self.side.is_none_or(|side| task.side == side);
        let mut tasks = tasks.filter(wanted).peekable();
        if tasks.peek().is_none() {
            return;
        }
        println!(
            "\n{title}, {} thread(s); the times of others over cachescope's",
            self.threads
        );
        print!("{:<12} {:>12} {:>7} {:>8}", "", "ns", "GB/s", "of copy");
        println!(
            "{}",
            CONTESTANTS[2..]
                .iter()
                .map(|name| format!(" {name:>9}"))
                .collect::<String>()
        );
        for task in tasks {
            self.row(task);
        }
    }

    fn row(&self, task: Task) {
        let mut race = Race::default();
        race.add("cachescope", ours::run(task));
        race.add("copy", limit::copy(task, self.threads));
        race.add("memcpy", limit::memcpy(task));
        if let Some(run) = ours::run_in_place(task) {
            race.add("in place", run);
        }
        race.add("ndarray", nd::operators(task));
        if let Some(run) = nd::zips(task, self.threads) {
            race.add("zip", run);
        }
        race.add("candle", candle::run(task));
        // For matrices with 1,024 or more rows, a product takes tens of milliseconds.
        let rounds = match task {
            Task {
                op: Op::Matmul,
                side: 1024..,
            } => self.rounds.div_ceil(5),
            _ => self.rounds,
        };
        let figures = race.run(rounds);

        let own = &figures[0];
        let find = |name: &str| figures.iter().find(|figure: &&Figure| figure.name == name);
        let copied = 2 * task.side * task.side * size_of::<Number>();
        let copy = find("copy").expect("it took part").ratio;
        let of_copy = match task.op {
            // A product is compute-bound, so a byte rate would be meaningless.
            Op::Matmul => "-".to_owned(),
            _ => format!("{:.2}", copy * task.bytes() as f64 / copied as f64),
        };
        let name = match task.op {
            Op::Matmul => format!("matmul {}", task.side),
            op => op.to_string(),
        };
        let rate = match task.op {
            // The rate counts additions and multiplications.
            Op::Matmul => 2.0 * (task.side as f64).powi(3) / own.nanos,
            _ => task.bytes() as f64 / own.nanos,
        };
        print!("{name:<12} {:>12.1} {rate:>7.1} {of_copy:>8}", own.nanos);
        for contestant in &CONTESTANTS[2..] {
            match find(contestant) {
                Some(Figure { ratio, .. }) => print!(" {ratio:>9.2}"),
                None => print!(" {:>9}", "-"),
            }
        }
        println!();
    }
}
