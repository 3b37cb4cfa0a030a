//! Memory needs of networks of the published sizes, measured by dry runs.

use cachescope::grad::optim::AdamW;
use cachescope::grad::value_and_step;
use cachescope::{Array, MetaKind, MetaOptions, Result, cache_scope, dry_run};

use shared::gpt2::{Gpt2, KeyValueCache, Size};

const GPT_2: Size = Size {
    vocabulary: 50_257,
    context: 1024,
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

/// Prints the bytes that a training step and a generated token need. The text is as long as the
/// context.
pub(crate) fn print_all() -> Result<()> {
    let options = || MetaOptions {
        like: MetaKind::Cuda,
        capacity_bytes: 80 << 30,
        ..MetaOptions::default()
    };
    println!("                        a step of training    the next token");
    for (name, size) in [("GPT-2", GPT_2), ("GPT-2 XL", GPT_2_XL)] {
        let training = dry_run(options(), || train(size))?.peak_live_bytes;
        let writing = dry_run(options(), || write(size))?.peak_live_bytes;
        let [training, writing] =
            [training, writing].map(|bytes| bytes as f64 / f64::from(1 << 30));
        println!("{name:<20} {training:>17.2} GiB {writing:>13.2} GiB");
    }
    Ok(())
}

fn zeros(size: Size) -> Result<Gpt2> {
    Gpt2::build(size, &mut |_, shape| Array::zeros(shape))
}

/// Trains a network for two steps, because only the second step reads the optimizer's states.
fn train(size: Size) -> Result<()> {
    let mut network = zeros(size)?;
    let mut optimizer = AdamW::new(1e-4);
    for _ in 0..2 {
        cache_scope!("step", {
            let text = Array::zeros([1, size.context])?;
            value_and_step(&mut network, &mut optimizer, |own| own.loss(&text))?;
        });
    }
    Ok(())
}

/// Runs a prompt of half the context, and then two single tokens.
fn write(size: Size) -> Result<()> {
    let network = zeros(size)?;
    let mut cache = KeyValueCache::new(&network, 1, size.context)?;
    for length in [size.context / 2, 1, 1] {
        cache_scope!("token", {
            network.next(&Array::zeros([1, length])?, &mut cache)?;
        });
    }
    Ok(())
}
