//! A small GPT that learns a text about memory letter by letter, and then continues the text.
//! `cargo run --release --example char_transformer [FOLDER]` writes the loss curve and the text to
//! the folder.
//!
//! `cargo run --release --example char_transformer -- --dry-run` trains nothing. It prints the
//! memory of a training step, for several batch sizes, without and with an activation budget. The
//! networks are this example's network and two networks of GPT-2's sizes.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::time::Instant;

use cachescope::grad::nn::{Attention, Embedding, LayerNorm, Linear, dropout};
use cachescope::grad::optim::{AdamW, Cosine};
use cachescope::grad::{Parameters, activation_budget, value_and_grad, value_and_step};
use cachescope::prelude::*;
use cachescope::{MetaKind, MetaOptions, dry_run, largest_fit};

use shared::captured::{self, Captured};
use shared::{charts, progress, savings};

const TEXT: &str = include_str!("data/loop.txt");
const STEPS: usize = 600;
/// The number of launches of the captured gradients on CUDA.
const GRAPH_STEPS: usize = 50;
const BATCH: usize = 16;
/// The context of the network, in letters.
const LENGTH: usize = 64;
const DROPOUT: f64 = 0.1;
/// The bytes that a step saves without a budget, divided by the budget.
const BUDGET_DIVISOR: u64 = 8;
/// The number of letters that the trained network generates.
const WRITTEN: usize = 300;

#[derive(Clone, Copy)]
struct Size {
    letters: usize,
    length: usize,
    width: usize,
    heads: usize,
    layers: usize,
}

/// The sizes of the trained network. `main` sets `letters`.
const SMALL: Size = Size {
    letters: 0,
    length: LENGTH,
    width: 64,
    heads: 4,
    layers: 2,
};

/// The sizes of GPT-2 with 124 million parameters.
const GPT_2: Size = Size {
    letters: 50_257,
    length: 1024,
    width: 768,
    heads: 12,
    layers: 12,
};
const GPT_2_XL: Size = Size {
    width: 1600,
    heads: 25,
    layers: 48,
    ..GPT_2
};

#[derive(Parameters)]
struct Gpt {
    letters: Embedding,
    places: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    scores: Linear,
}

#[derive(Parameters)]
struct Block {
    norms: [LayerNorm; 2],
    attention: Attention,
    wide: Linear,
    narrow: Linear,
}

impl Gpt {
    fn new(size: Size) -> Result<Self> {
        let Size { letters, width, .. } = size;
        let blocks = (0..size.layers).map(|_| Block::new(size));
        Ok(Self {
            letters: Embedding::new(letters, width)?,
            places: Embedding::new(size.length, width)?,
            blocks: blocks.collect::<Result<_>>()?,
            norm: LayerNorm::new(width)?,
            scores: Linear::without_bias(width, letters)?,
        })
    }

    /// Returns the scores of the next letter at each position of `text`. `text` has the shape
    /// `[batch, length]`. The scores have the shape `[batch, length, letters]`.
    fn forward(&self, text: &Array<i64>, dropped: f64) -> Result<Array<f32>> {
        let places = self.places.weight.slice(s![..text.shape()[1], ..])?;
        let mut x = (self.letters.forward(text)? + places).eval()?;
        for block in &self.blocks {
            x = block.forward(&x, dropped)?;
        }
        self.scores.forward(&self.norm.forward(&x)?)
    }

    fn loss(&self, text: &Array<i64>, next: &Array<i64>) -> Result<Array<f32>> {
        let scores = self.forward(text, DROPOUT)?;
        let letters = scores.shape()[2];
        scores
            .reshape([next.len(), letters])?
            .cross_entropy(&next.flatten()?)
    }

    /// Continues `text` with letters drawn from the softmax of the scaled scores.
    fn write(&self, mut text: Vec<i64>, count: usize) -> Result<Vec<i64>> {
        let first = text.len();
        while text.len() < first + count {
            let seen = &text[text.len().saturating_sub(LENGTH)..];
            let scores = self.forward(&Array::from_slice(seen, [1, seen.len()])?, 0.0)?;
            let last = scores.slice(s![0, -1, ..])?;
            text.push((last * 1.4).eval()?.categorical()?.item()?);
        }
        Ok(text.split_off(first))
    }
}

impl Block {
    fn new(Size { width, heads, .. }: Size) -> Result<Self> {
        Ok(Self {
            norms: [LayerNorm::new(width)?, LayerNorm::new(width)?],
            attention: Attention::new(width, heads, true)?,
            wide: Linear::new(width, 4 * width)?,
            narrow: Linear::new(4 * width, width)?,
        })
    }

    fn forward(&self, x: &Array<f32>, dropped: f64) -> Result<Array<f32>> {
        let [first, second] = &self.norms;
        let seen = self.attention.forward(&first.forward(x)?)?;
        let x = (x + dropout(&seen, dropped)?).eval()?;
        let wide = self.wide.forward(&second.forward(&x)?)?.gelu().eval()?;
        (&x + dropout(&self.narrow.forward(&wide)?, dropped)?).eval()
    }
}

/// Makes a network and trains it for two steps, because only the second step reads the optimizer's
/// states. Returns the bytes that a step saves for its backward pass.
fn two_steps(size: Size, batch: usize) -> Result<u64> {
    let mut gpt = Gpt::new(size)?;
    let mut optimizer = AdamW::new(1e-3);
    let measured = activation_budget(u64::MAX); // limits nothing
    for _ in 0..2 {
        cache_scope!("step", {
            let (seen, next) = zeros(size, batch)?;
            let (_loss, gradients) = value_and_grad(&gpt, |gpt| gpt.loss(&seen, &next))?;
            optimizer.step(&mut gpt, &gradients)?;
        });
    }
    Ok(measured.report().saved_bytes)
}

/// Makes a network and trains it for two steps with an activation budget. Each gradient is freed as
/// soon as its parameter has been updated.
fn two_small_steps(size: Size, batch: usize, budget_bytes: u64) -> Result<()> {
    let mut gpt = Gpt::new(size)?;
    let mut optimizer = AdamW::new(1e-3);
    let _budget = activation_budget(budget_bytes);
    for _ in 0..2 {
        cache_scope!("step", {
            let (seen, next) = zeros(size, batch)?;
            value_and_step(&mut gpt, &mut optimizer, |gpt| gpt.loss(&seen, &next))?;
        });
    }
    Ok(())
}

/// Returns letters and their successors, all zero. A dry run reads no values.
fn zeros(size: Size, batch: usize) -> Result<(Array<i64>, Array<i64>)> {
    let shape = [batch, size.length];
    Ok((Array::zeros(shape)?, Array::zeros(shape)?))
}

/// Prints the memory that a step needs, without computing the step.
fn print_needs(name: &str, size: Size, batches: &[usize], capacity_bytes: u64) -> Result<()> {
    let options = |capacity_bytes| MetaOptions {
        like: MetaKind::Cuda,
        capacity_bytes,
        ..Default::default()
    };
    println!("{name}\n  batch    live GiB    with a budget    reserved GiB    time of the dry run");
    let gib = |bytes: u64| bytes as f64 / 2_f64.powi(30);
    for &batch in batches {
        let start = Instant::now();
        let run = dry_run(options(capacity_bytes), || two_steps(size, batch))?;
        let (live, reserved) = (gib(run.peak_live_bytes), gib(run.peak_reserved_bytes));
        let seconds = start.elapsed().as_secs_f64();
        let budget_bytes = run.value / BUDGET_DIVISOR;
        let small = dry_run(options(capacity_bytes), || {
            two_small_steps(size, batch, budget_bytes)
        })?;
        let small = gib(small.peak_live_bytes);
        println!("{batch:>7} {live:>11.3} {small:>16.3} {reserved:>15.3} {seconds:>20.2} s");
    }
    let start = Instant::now();
    let most = largest_fit(1..=4096, options(capacity_bytes), |batch| {
        two_steps(size, batch).map(drop)
    })?;
    let most = most.map_or("no batch".to_owned(), |batch| format!("a batch of {batch}"));
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "  {:.0} GiB have room for {most} ({seconds:.1} s)\n",
        gib(capacity_bytes)
    );
    Ok(())
}

fn print_all_needs(own: Size) -> Result<()> {
    print_needs("this network", own, &[16, 64, 256], 1 << 30)?;
    print_needs(
        "GPT-2, 124 million parameters",
        GPT_2,
        &[1, 4, 16],
        24 << 30,
    )?;
    print_needs(
        "GPT-2 XL, 1.5 billion parameters",
        GPT_2_XL,
        &[1, 8],
        80 << 30,
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let letters: Vec<char> = TEXT.chars().collect::<BTreeSet<_>>().into_iter().collect();
    let size = Size {
        letters: letters.len(),
        ..SMALL
    };
    if std::env::args().any(|argument| argument == "--dry-run") {
        return Ok(print_all_needs(size)?);
    }
    let folder = charts::folder("char_transformer")?;
    let number = |letter| letters.binary_search(&letter).unwrap_or_default() as i64;
    let text = Array::from_vec(TEXT.chars().map(number).collect(), TEXT.chars().count())?;
    let parts = text.windows(&[LENGTH + 1])?;

    manual_seed(1);
    let mut gpt = Gpt::new(size)?;
    let mut optimizer = AdamW::new(0.0);
    let mut losses = Vec::with_capacity(STEPS);
    savings::HALVES
        .iter()
        .for_each(|scope| savings::watch(scope));
    let start = Instant::now();
    let bar = progress::bar(STEPS);
    let rate = Cosine {
        warmup: 20,
        total: STEPS,
        max: 4e-3,
        min: 4e-4,
    };
    for step in 1..=STEPS {
        optimizer.rate = rate.at(step);
        let (scope, policy) = savings::half(step, STEPS);
        cache_scope!(scope, policy = policy, {
            let which = Array::randint(0, parts.shape()[0] as i64, BATCH)?;
            let batch = parts.take(&which, 0)?;
            let (seen, next) = (batch.slice(s![.., ..-1])?, batch.slice(s![.., 1..])?);
            let (loss, gradients) = value_and_grad(&gpt, |gpt| gpt.loss(&seen, &next))?;
            optimizer.step(&mut gpt, &gradients)?;
            losses.push(loss.item()?);
        });
        if step % 50 == 0 {
            let loss = losses[step - 1];
            progress::show(&bar, format!("step {step}: a loss of {loss:.3} a letter"))?;
        }
        bar.inc(1);
    }
    bar.finish();
    println!("{STEPS} steps in {:.1} s", start.elapsed().as_secs_f64());
    savings::HALVES
        .iter()
        .for_each(|scope| savings::print(scope));
    if Device::current() != Device::host() {
        let draw = || -> Result<_> {
            let which = Array::randint(0, parts.shape()[0] as i64, BATCH)?;
            parts.take(&which, 0)
        };
        let mut batch = draw()?;
        let graph = Captured::new(&gpt, |gpt| {
            let (seen, next) = (batch.slice(s![.., ..-1])?, batch.slice(s![.., 1..])?);
            gpt.loss(&seen, &next)
        })?;
        let start = Instant::now();
        for _ in 0..GRAPH_STEPS {
            batch.assign(draw()?)?;
            optimizer.step(&mut gpt, graph.launch()?)?;
        }
        captured::print(GRAPH_STEPS, graph.loss()?, start.elapsed());
    }

    let begin: Vec<i64> = "## ".chars().map(number).collect();
    let written = cache_scope!("write", { gpt.write(begin, WRITTEN) })?;
    let written: String = written
        .iter()
        .map(|&letter| letters[letter as usize])
        .collect();
    println!("\n## {written}\n");
    fs::write(folder.join("written.txt"), &written)?;
    charts::loss_curve(&folder, &losses)?;
    println!("text and curve: {}", folder.display());
    let (first, last) = (losses[0], losses[STEPS - 1]);
    assert!(last < 0.65 * first, "it learned little: {first} to {last}");
    Ok(())
}
