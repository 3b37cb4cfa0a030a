//! Benchmark W2: recorded lifetimes, replayed in order. The benchmark measures the packing and the
//! speed of allocators that do not know later requests.
//!
//! `cargo bench --manifest-path benches/peers/Cargo.toml --bench lifetimes [-- ROUNDS | --quick]`

use std::path::Path;

use cachescope_tools::trace::Lifetime;
use cachescope_peers::line_up::{LineUp, Placement, run};
use cachescope_peers::program::Program;
use cachescope_peers::training;

/// A program of lifetimes to replay.
struct Trace {
    name: &'static str,
    program: Program,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A packing benchmark, whose lifetimes are hard to pack.
    Packing,
    /// A recorded training step.
    Training,
    /// A synthetic training step of this package.
    Synthetic,
}

struct Table {
    names: Vec<String>,
    traces: Vec<Trace>,
    placements: Vec<Vec<Placement>>,
}

fn main() -> cachescope::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let rounds = given.unwrap_or(if quick { 3 } else { 101 });
    let traces = traces()?;
    let placements: Vec<_> = traces
        .iter()
        .map(|trace| run(&trace.program, rounds, LineUp::add_sub_slices))
        .collect();
    let names = placements[0].iter().map(|own| own.name.clone()).collect();
    let table = Table {
        names,
        traces,
        placements,
    };
    println!("medians of {rounds} rounds (a sixth of them for cubecl)");
    table.print_spread();
    table.print_time();
    Ok(())
}

fn traces() -> cachescope::Result<Vec<Trace>> {
    let recorded = [
        ("A", "A.1048576.csv", Kind::Packing),
        ("C", "C.1048576.csv", Kind::Packing),
        ("D", "D.1048576.csv", Kind::Packing),
        ("G", "G.1048576.csv", Kind::Packing),
        ("J", "J.1048576.csv", Kind::Packing),
        ("resnet50", "resnet50.csv", Kind::Training),
        ("G_1", "G_1.csv", Kind::Training),
    ];
    let synthetic = [
        ("synthetic, plain", training::PLAIN),
        ("synthetic, experts", training::EXPERTS),
    ];
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let mut traces = Vec::new();
    for (name, file, kind) in recorded {
        let program = Program::of_lifetimes(&Lifetime::read_file(&data.join(file))?);
        traces.push(Trace {
            name,
            program,
            kind,
        });
    }
    for (name, transformer) in synthetic {
        traces.push(Trace {
            name,
            program: Program::of_lifetimes(&transformer.step()),
            kind: Kind::Synthetic,
        });
    }
    Ok(traces)
}

impl Table {
    fn print_head(&self, title: &str) {
        println!("\n{title}");
        print!("  {:<26} {:>8}", "", "events");
        for name in &self.names {
            print!(" {name:>17}");
        }
        println!();
    }

    fn print_spread(&self) {
        let figure = |own: &Placement| own.spread.unwrap_or(f64::NAN);
        self.print_head("highest end of a block / most that is live");
        self.print_rows(4, figure);
        self.print_means(4, figure);
        let plain = self.names.iter().position(|name| name == "range-alloc");
        let plain = plain.expect("range-alloc is among them");
        print!("  {:<35}", "worst, against range-alloc");
        for index in 0..self.names.len() {
            let ratios = self
                .placements
                .iter()
                .map(|run| figure(&run[index]) / figure(&run[plain]));
            print!(" {:>17.4}", ratios.fold(0.0, f64::max));
        }
        println!();
    }

    fn print_time(&self) {
        self.print_head("ns an event");
        self.print_rows(1, |own| own.nanos);
        self.print_means(1, |own| own.nanos);
        self.print_head("time against the first, round by round");
        self.print_rows(2, |own| own.ratio);
        self.print_means(2, |own| own.ratio);
    }

    fn print_rows(&self, digits: usize, figure: impl Fn(&Placement) -> f64) {
        for (trace, run) in self.traces.iter().zip(&self.placements) {
            print!("  {:<26} {:>8}", trace.name, trace.program.steps());
            for own in run {
                print!(" {:>17.digits$}", figure(own));
            }
            println!();
        }
    }

    fn print_means(&self, digits: usize, figure: impl Fn(&Placement) -> f64) {
        let recorded = |kind| kind == Kind::Training;
        self.print_mean("mean of the recorded training", digits, recorded, &figure);
        let training = |kind| kind != Kind::Packing;
        self.print_mean("mean of all training", digits, training, &figure);
    }

    /// Prints the geometric mean of a figure for each allocator.
    fn print_mean(
        &self,
        title: &str,
        digits: usize,
        counts: impl Fn(Kind) -> bool,
        figure: impl Fn(&Placement) -> f64,
    ) {
        print!("  {title:<35}");
        for index in 0..self.names.len() {
            let runs = self.traces.iter().zip(&self.placements);
            let counted = runs.filter(|(trace, _)| counts(trace.kind));
            let logarithms: Vec<_> = counted.map(|(_, run)| figure(&run[index]).ln()).collect();
            let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
            print!(" {:>17.digits$}", mean.exp());
        }
        println!();
    }
}
