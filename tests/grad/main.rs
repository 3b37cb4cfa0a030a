//! Gradients, held to numeric differences in `f64`.

mod differences;
mod elementwise;
mod files;
mod folds;
mod indices;
mod optimizers;
mod programs;
mod refusals;
mod structures;
