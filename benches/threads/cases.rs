//! The benchmarked operations and training steps.

use std::hint::black_box;

use cachescope::grad::nn::{Attention, Embedding, GroupNorm, LayerNorm, Linear};
use cachescope::grad::optim::AdamW;
use cachescope::grad::{Parameters, value_and_grad};
use cachescope::{Array, ConvOptions, Float, Result, attention};

pub(crate) type Case = Box<dyn FnMut() -> Result<()> + Send>;

type Step = fn() -> Result<Case>;

/// Calls `see` for each case whose name contains `part`.
pub(crate) fn for_each(part: &str, mut see: impl FnMut(&str, Case) -> Result<()>) -> Result<()> {
    of_type::<f32>("f32", part, &mut see)?;
    of_type::<f64>("f64", part, &mut see)?;
    let steps: [(&str, Step); 4] = [
        ("digits step, 32 units", || digits(32, 64)),
        ("digits step, 512 units", || digits(512, 256)),
        ("GPT step, small", || text([2, 128, 4, 128, 8])),
        ("GPT step, medium", || text([4, 256, 8, 256, 4])),
    ];
    for (name, make) in steps {
        if name.contains(part) {
            see(name, make()?)?;
        }
    }
    Ok(())
}

/// Defines a case: its name, its operands, and its operation.
macro_rules! case {
    ($name:expr, $part:ident, $see:ident, { $($value:ident = $made:expr;)* } => $once:expr) => {
        let name = $name;
        if name.contains($part) {
            $(let $value = $made;)*
            $see(&name, Box::new(move || {
                black_box($once);
                Ok(())
            }))?;
        }
    };
}

fn of_type<T: Float>(
    dtype: &str,
    part: &str,
    see: &mut dyn FnMut(&str, Case) -> Result<()>,
) -> Result<()> {
    for power in (10..=24).step_by(2) {
        let (side, count) = (1 << (power / 2), 1 << power);
        let name = |operation: &str| format!("{operation}, 2^{power} {dtype}");
        let matrix = || Array::<T>::rand([side, side]);
        let two = T::from_f64(2.0);
        case!(name("a + b"), part, see, { a = matrix()?; b = matrix()?; } => (&a + &b).eval()?);
        case!(name("chain"), part, see, { a = matrix()?; b = matrix()?; c = matrix()?; }
            => ((&a * &b + &c).sin() * two - &a).eval()?);
        case!(name("exp"), part, see, { a = matrix()?; } => a.exp().eval()?);
        case!(name("tanh"), part, see, { a = matrix()?; } => a.tanh().eval()?);
        case!(name("a + row"), part, see, { a = matrix()?; row = Array::<T>::rand(side)?; }
            => (&a + &row).eval()?);
        case!(name("a + column"), part, see, { a = matrix()?; column = Array::<T>::rand([side, 1])?; }
            => (&a + &column).eval()?);
        case!(name("a + b.T"), part, see, { a = matrix()?; b = matrix()?.transpose()?; }
            => (&a + &b).eval()?);
        case!(name("copy of a.T"), part, see, { a = matrix()?.transpose()?; } => a.lazy().eval()?);
        case!(name("softmax"), part, see, { a = matrix()?; } => a.softmax(-1)?);
        case!(name("sum"), part, see, { a = matrix()?; } => a.sum()?);
        case!(name("sum_axis 0"), part, see, { a = matrix()?; } => a.sum_axis(0)?);
        case!(name("sum_axis 1"), part, see, { a = matrix()?; } => a.sum_axis(1)?);
        case!(name("cumsum of rows"), part, see, { a = matrix()?; } => a.cumsum(-1)?);
        case!(name("cumsum of columns"), part, see, { a = matrix()?; } => a.cumsum(0)?);
        case!(name("sort of rows"), part, see, { a = matrix()?; } => a.sort(-1)?);
        case!(name("layer_norm"), part, see, {
            a = matrix()?; weight = Array::<T>::rand(side)?; bias = Array::<T>::rand(side)?;
        } => a.layer_norm(&weight, &bias, T::from_f64(1e-5))?);
        case!(name("silu, gradient"), part, see, { a = Array::<T>::rand(count)?; }
            => value_and_grad(&a, |a| a.silu().eval()?.sum())?);
    }
    for side in [64, 128, 256, 512, 1024] {
        case!(format!("matmul of {side} rows, {dtype}"), part, see,
            { a = Array::<T>::rand([side, side])?; b = Array::<T>::rand([side, side])?; }
            => a.matmul(&b)?);
    }
    for length in [32, 256] {
        let operand = || Array::<T>::rand([8, length, 64]);
        case!(format!("attention, 8 x {length} x 64, {dtype}"), part, see,
            { q = operand()?; k = operand()?; v = operand()?; } => attention(&q, &k, &v, false)?);
    }
    for (batch, channels, side) in [(1, 16, 16), (16, 16, 32), (8, 64, 32)] {
        let images = || Array::<T>::rand([batch, channels, side, side]);
        let of = |operation: &str| format!("{operation}, {batch} x {channels} x {side}², {dtype}");
        let options = ConvOptions {
            padding: [1, 1],
            ..ConvOptions::default()
        };
        case!(of("conv2d"), part, see,
            { x = images()?; kernel = Array::<T>::rand([channels, channels, 3, 3])?; }
            => x.conv2d(&kernel, options)?);
        case!(of("group norm"), part, see, { x = images()?; norm = GroupNorm::<T>::new(8, channels)?; }
            => norm.forward(&x)?);
        case!(of("group norm, gradient"), part, see, { x = images()?; norm = GroupNorm::<T>::new(8, channels)?; }
            => value_and_grad(&x, |x| norm.forward(x)?.square().sum())?);
    }
    Ok(())
}

/// Prepares a training step of two layers for images of 8 × 8 pixels.
fn digits(units: usize, batch: usize) -> Result<Case> {
    let mut layers = [Linear::<f32>::new(64, units)?, Linear::new(units, 10)?];
    let images = Array::<f32>::rand([batch, 64])?;
    let classes = Array::<i64>::randint(0, 10, batch)?;
    let mut optimizer = AdamW::new(1e-3);
    Ok(Box::new(move || {
        let (_, gradients) = value_and_grad(&layers, |[first, second]| {
            let hidden = first.forward(&images)?.relu().eval()?;
            second.forward(&hidden)?.cross_entropy(&classes)
        })?;
        optimizer.step(&mut layers, &gradients)
    }))
}

#[derive(Parameters)]
struct Block {
    norms: [LayerNorm; 2],
    attention: Attention,
    wide: Linear,
    narrow: Linear,
}

#[derive(Parameters)]
struct Text {
    tokens: Embedding,
    blocks: Vec<Block>,
    head: Linear,
}

/// Prepares a training step of a transformer. The argument is the number of layers, features,
/// heads, tokens and sequences.
fn text([layers, width, heads, length, batch]: [usize; 5]) -> Result<Case> {
    const VOCABULARY: usize = 256;
    let block = |_| {
        Ok(Block {
            norms: [LayerNorm::new(width)?, LayerNorm::new(width)?],
            attention: Attention::new(width, heads, true)?,
            wide: Linear::new(width, 4 * width)?,
            narrow: Linear::new(4 * width, width)?,
        })
    };
    let mut network = Text {
        tokens: Embedding::new(VOCABULARY, width)?,
        blocks: (0..layers).map(block).collect::<Result<_>>()?,
        head: Linear::new(width, VOCABULARY)?,
    };
    let tokens = Array::<i64>::randint(0, VOCABULARY as i64, [batch, length])?;
    let targets = Array::<i64>::randint(0, VOCABULARY as i64, batch * length)?;
    let mut optimizer = AdamW::new(1e-3);
    Ok(Box::new(move || {
        let (_, gradients) = value_and_grad(&network, |network| {
            let mut x = network.tokens.forward(&tokens)?;
            for Block {
                norms: [first, second],
                attention,
                wide,
                narrow,
            } in &network.blocks
            {
                x = (&x + attention.forward(&first.forward(&x)?)?).eval()?;
                let hidden = wide.forward(&second.forward(&x)?)?.gelu().eval()?;
                x = (&x + narrow.forward(&hidden)?).eval()?;
            }
            let scores = network.head.forward(&x)?;
            scores
                .reshape([targets.len(), VOCABULARY])?
                .cross_entropy(&targets)
        })?;
        optimizer.step(&mut network, &gradients)
    }))
}
