//! Reads GPT-2 from the files that Hugging Face publishes, and trains it further. The network then
//! continues a text, with a cache of keys and values.
//!
//! ```sh
//! cargo run --release --example gpt2 --features examples/safetensors -- --help
//! ```

mod needs;
mod options;

use std::process::ExitCode;
use std::time::Instant;

use cachescope::grad::optim::{AdamW, Clipped};
use cachescope::grad::{files, value_and_step};
use cachescope::prelude::*;

use options::{Options, Text};
use shared::failure::Failure;
use shared::gpt2::{Gpt2, Tokens};
use shared::progress;

/// The batch size of training, in parts of the text.
const BATCH: usize = 4;
const RATE: f64 = 1e-3;
/// The tolerance of a score, which depends on the order of summation.
const ROUNDING: f32 = 1e-2;

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}; see --help");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    if options.is_dry {
        return Ok(needs::print_all()?);
    }
    manual_seed(options.seed);
    let mut network = Gpt2::read(&options.model)?;
    println!("{:?} on {}", network.size(), Device::current());
    let (text, tokens) = match &options.text {
        Text::Tokens(numbers) => (numbers.clone(), None),
        Text::Words(words) => {
            let tokens = Tokens::read(&options.model)?;
            (tokens.encode(words)?, Some(tokens))
        }
    };
    check(&text, &network)?;
    if options.steps > 0 {
        train(&mut network, &text, options.steps)?;
    }
    if let Some(path) = &options.save {
        files::save(&network, path)?;
    }
    let seen = network.size().context.saturating_sub(options.count).max(1);
    let seen = &text[text.len().saturating_sub(seen)..];
    let start = Instant::now();
    let written = network.generate(seen, options.count, options.choice)?;
    let rate = written.len() as f64 / start.elapsed().as_secs_f64();
    match tokens {
        Some(tokens) => println!("{}", tokens.decode(&[&text[..], &written].concat())),
        None => println!("{seen:?} is continued by {written:?}"),
    }
    println!("{rate:.1} tokens a second");
    if options.choice.temperature == 0.0 && !written.is_empty() {
        assert_most_likely(&network, seen, &written)?;
    }
    Ok(())
}

/// Returns an error if the text is empty, or if a token is outside the vocabulary.
fn check(text: &[i64], network: &Gpt2) -> Result<(), Failure> {
    let count = network.size().vocabulary as i64;
    let problem = match text.iter().find(|token| !(0..count).contains(*token)) {
        Some(token) => format!(
            "the text has the token {token}, expected 0 to {}",
            count - 1
        ),
        None if text.is_empty() => "the text is empty, expected at least one token".to_owned(),
        None => return Ok(()),
    };
    Err(Failure::Input(problem))
}

/// Trains on random parts of a text.
fn train(network: &mut Gpt2, text: &[i64], steps: usize) -> Result<(), Failure> {
    let length = text.len().min(network.size().context);
    if length < 2 {
        let problem = "a text of one token has no next token to learn from".to_owned();
        return Err(Failure::Input(problem));
    }
    let parts = Array::from_slice(text, text.len())?.windows(&[length])?;
    let mut optimizer = Clipped::new(AdamW::new(RATE)).norm(1.0);
    let bar = progress::bar(steps);
    for step in 1..=steps {
        let loss = cache_scope!("train", policy = Policy::Plan, {
            let which = Array::randint(0, parts.shape()[0] as i64, BATCH)?;
            let batch = parts.take(&which, 0)?;
            value_and_step(network, &mut optimizer, |own| own.loss(&batch))?.item()
        })?;
        if step == 1 || step % 10 == 0 {
            progress::show(&bar, format!("step {step}: a loss of {loss:.3}"))?;
        }
        bar.inc(1);
    }
    bar.finish();
    Ok(())
}

/// Asserts that each written token has the highest score in a pass without a cache.
fn assert_most_likely(network: &Gpt2, seen: &[i64], written: &[i64]) -> Result<()> {
    let text = [seen, &written[..written.len() - 1]].concat();
    let scores = network.forward(&Array::from_slice(&text, [1, text.len()])?)?;
    let scores = scores.slice(s![0, seen.len() as isize - 1.., ..])?;
    let written = Array::from_slice(written, [written.len(), 1])?;
    let behind = (scores.max_axis(-1)?.unsqueeze(-1)? - scores.gather(&written, -1)?)
        .max()?
        .item()?;
    assert!(
        behind < ROUNDING,
        "a token was written whose score is {behind} below the highest"
    );
    Ok(())
}
