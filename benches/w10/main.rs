//! Benchmark W10 on a GPU, this library's part: training steps, attention and other layers, in
//! `f32`, TF32 and half precision. Each result is a line of JSON.
//!
//! ```text
//! w10 train gpt2 8 --numbers bf16 --memory graph
//! echo "time bf16,64,1024,causal" | w10 attention
//! echo "check f32,128,300,full" | w10 attention
//! echo "layer linear,bf16,16384,768" | w10 attention
//! ```
//!
//! `tests/gpu/halves.py` runs it beside PyTorch. A training run is a process of its own, so that
//! its peak does not include other runs. The networks are in `benches/peers/examples/training`.

mod attention;
mod layers;
mod training;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the peers' program uses the rest"
)]
mod cases {
    include!("../peers/examples/training/cases.rs");
}
#[allow(unreachable_pub, reason = "the peers' program shares it")]
mod networks {
    include!("../peers/examples/training/networks.rs");
}
#[allow(unreachable_pub, reason = "the peers' program shares it")]
mod values {
    include!("../peers/examples/training/values.rs");
}

use std::error::Error;
use std::io;
use std::process::ExitCode;

use cachescope::{Buffer, Device, DeviceConfig};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use cases::Case;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Times training steps and attention on a device.
#[derive(Debug, Parser)]
#[command(name = "w10")]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// The device to run on: host or cuda:0 [default: cuda:0 if there is one, else host]
    #[arg(long, value_name = "NAME", global = true)]
    device: Option<String>,

    /// The argument that `cargo bench` passes to all benchmarks
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Trains a network: gpt, cnn or gpt2
    Train(Train),
    /// Times or checks attention and other layers, as the lines of the standard input say
    Attention(Attention),
}

#[derive(Debug, Args)]
struct Train {
    network: String,
    size: String,

    /// The type of the computation. Parameters are `f32`
    #[arg(long, value_enum, default_value_t = Numbers::Bf16)]
    numbers: Numbers,

    /// The policy of the step's cache, or a graph of the whole step
    #[arg(long, value_enum, default_value_t = Memory::Recycle)]
    memory: Memory,

    /// The minimum time of all steps
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

#[derive(Debug, Args)]
struct Attention {
    /// The number of tokens of a batch
    #[arg(long, default_value_t = 16_384)]
    tokens: usize,

    /// The width of all heads together
    #[arg(long, default_value_t = 2048)]
    features: usize,

    /// The minimum time of a round, in milliseconds
    #[arg(long, default_value_t = 20)]
    round_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Numbers {
    F32,
    Tf32,
    Bf16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    Recycle,
    Plan,
    Graph,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Outcome<()> {
    let command = options.command.unwrap_or_else(|| {
        Command::Train(Train {
            network: "gpt".into(),
            size: "small".into(),
            numbers: Numbers::F32,
            memory: Memory::Recycle,
            seconds: 1.0,
        })
    });
    let tf32 = matches!(&command, Command::Train(train) if train.numbers == Numbers::Tf32);
    let device = device(options.device.as_deref(), tf32)?;
    let _current = device.enter();
    match command {
        Command::Train(train) => {
            let case: Case = format!("{},{}", train.network, train.size).parse()?;
            println!("{}", training::measured(&train, case)?);
        }
        Command::Attention(options) => {
            for line in io::stdin().lines() {
                let answer = answer(&line?, &options);
                println!(
                    "{}",
                    answer.unwrap_or_else(|error| json!({"error": error.to_string()}))
                );
            }
        }
    }
    Ok(())
}

/// Executes `time SHAPE`, `check SHAPE` or `layer LAYER`.
fn answer(line: &str, options: &Attention) -> Outcome<Value> {
    match line.split_once(' ') {
        Some(("time", shape)) => attention::timed(shape.parse()?, options),
        Some(("check", shape)) => attention::checked(shape.parse()?),
        Some(("layer", layer)) => layers::timed(layer.parse()?, options),
        _ => Err(format!("no command \"{line}\"").into()),
    }
}

/// Opens a device. `tf32` lets products of `f32` round their operands.
fn device(name: Option<&str>, tf32: bool) -> Outcome<Device> {
    let name = name.map_or_else(|| Device::current().to_string(), str::to_owned);
    let config = DeviceConfig {
        tf32,
        ..DeviceConfig::default()
    };
    let device = match name.strip_prefix("cuda:") {
        Some(ordinal) => Device::cuda_with(ordinal.parse()?, config)?,
        None => Device::host_with(config)?,
    };
    // If the device does not exist, this allocation fails now.
    drop(Buffer::new(&device, 1)?);
    Ok(device)
}
