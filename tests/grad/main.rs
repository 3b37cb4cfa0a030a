//! Gradients, held to numeric differences in `f64`.

mod differences;
mod elementwise;
mod folds;
mod indices;
mod layers;
mod operations;
mod optimizers;
mod programs;
mod refusals;
mod structures;
