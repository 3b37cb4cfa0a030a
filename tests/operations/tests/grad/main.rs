//! Gradients, held to numeric differences in `f64`.

mod anomalies;
#[allow(dead_code, reason = "benchmarks use the rest")]
mod by_hand;
mod checkpoints;
mod complex;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../../../examples/train_digits/dataset.rs"]
mod dataset;
mod devices;
mod differences;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../../../examples/train_digits/digits.rs"]
mod digits;
mod digits_step;
mod elementwise;
#[allow(dead_code, reason = "the example uses the rest")]
#[path = "../../../../examples/train_digits/failure.rs"]
mod failure;
mod files;
mod folds;
mod indices;
mod layers;
mod lines;
mod memory;
mod narrow;
mod operations;
mod optimizers;
mod programs;
mod refusals;
mod steps;
mod structures;
mod tapes;
mod ties;
mod unreached;
mod views;
mod written;
