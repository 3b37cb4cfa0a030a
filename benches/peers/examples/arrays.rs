//! Times this library's array operations, for a script that compares them with other libraries.
//! Each input line is `NAME SIDE TIMES`. `NAME` is an operation or `copy`. `SIDE` is the number of
//! rows of its square matrices, and `TIMES` is the number of runs. The output line is the total
//! time of the runs in nanoseconds.
//!
//! ```text
//! $ echo a+b 256 1000 | cargo run --release --manifest-path benches/peers/Cargo.toml --example arrays
//! ```

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use cachescope_peers::arrays::{Op, Run, Task, limit, ours};

/// The maximum number of prepared tasks. It bounds the memory of their operands.
const PREPARED: usize = 2;

fn main() -> io::Result<()> {
    let mut prepared: HashMap<String, Run> = HashMap::new();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (task, times) = line.rsplit_once(' ').expect("NAME SIDE TIMES");
        if !prepared.contains_key(task) {
            if prepared.len() == PREPARED {
                prepared.clear();
            }
            prepared.insert(task.to_owned(), prepare(task));
        }
        let run = prepared.get_mut(task).expect("it was put there");
        let start = Instant::now();
        run(times.parse().expect("a number of times"));
        writeln!(out, "{}", start.elapsed().as_nanos())?;
        out.flush()?;
    }
    Ok(())
}

fn prepare(task: &str) -> Run {
    let (op, side) = task.split_once(' ').expect("NAME SIDE TIMES");
    let side = side.parse().expect("a number of rows");
    if op == "copy" {
        return limit::copy(Task { op: Op::Exp, side }, rayon::current_num_threads());
    }
    let op = op.parse().expect("the name of an operation");
    ours::run(Task { op, side })
}
