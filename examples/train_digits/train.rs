//! The training loop.

use std::io::Write;

use cachescope::collective::Group;
use cachescope::ndarray::s;
use cachescope::{Array, Generator, Policy, Result, cache_scope};

use indicatif::ProgressBar;

use crate::options::Options;
use shared::dataset::Dataset;
use shared::failure::Failure;
use shared::model::Model;
use shared::progress;

/// Trains a new model, and returns its accuracy on the test images. Shows the progress on `bar` or
/// as lines of `out`.
pub(crate) fn train(
    group: Option<&Group>,
    options: &Options,
    (train, test): &(Dataset, Dataset),
    generator: &mut Generator,
    (bar, out): (&ProgressBar, &mut dyn Write),
) -> Result<f64, Failure> {
    let mut model = Model::new(options.hidden, generator)?;
    if let Some(group) = group {
        model.learn_with(group)?;
    }
    let mut accuracy = 0.0;
    for epoch in 1..=options.epochs {
        let batches = train.batches(options.batch_size, generator)?;
        let batches = match group {
            Some(group) => shares(group, &batches)?,
            None => batches,
        };
        let loss = run_epoch(&mut model, train, &batches)?;
        accuracy = evaluate(&model, test)?;
        let epochs = options.epochs;
        let width = epochs.to_string().len();
        let line =
            format!("epoch {epoch:width$}/{epochs}: loss {loss:.4}, test accuracy {accuracy:.4}");
        progress::show_or_write(bar, out, line)?;
        bar.inc(1);
    }
    Ok(accuracy)
}

/// Returns this rank's part of each batch. If a batch does not divide evenly among the ranks, its
/// remainder is not used.
fn shares(group: &Group, batches: &[Array<i64>]) -> Result<Vec<Array<i64>>> {
    let share = |batch: &Array<i64>| {
        let count = batch.len() / group.size();
        let first = group.rank() * count;
        batch.slice(s![first..first + count])
    };
    let shares: Result<Vec<_>> = batches.iter().map(share).collect();
    Ok(shares?.into_iter().filter(|own| !own.is_empty()).collect())
}

/// Trains on every batch once, and returns the mean loss.
fn run_epoch(model: &mut Model, data: &Dataset, batches: &[Array<i64>]) -> Result<f32> {
    // The total is allocated outside of the scope, so it is not in the scope's cache.
    let mut total_loss = Array::zeros([])?;
    let mut count = 0;
    for indices in batches {
        cache_scope!("train", {
            let loss = model.step(&data.take(indices)?)?;
            total_loss.assign(&total_loss + loss * indices.len() as f32)?;
        });
        count += indices.len();
    }
    Ok(total_loss.item()? / count as f32)
}

fn evaluate(model: &Model, data: &Dataset) -> Result<f64> {
    // The evaluation runs only once per epoch. Between its runs, its memory is released for other
    // use.
    cache_scope!("evaluate", policy = Policy::Release, {
        model.accuracy(data)
    })
}
