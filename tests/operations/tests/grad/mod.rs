//! Gradients, compared with numeric differences in `f64`.

mod anomalies;
mod checkpoints;
mod complex;
mod devices;
mod differences;
mod digits_step;
mod elementwise;
mod files;
mod indices;
mod layers;
mod lines;
mod memory;
mod narrow;
mod nested;
mod operations;
mod optimizers;
mod programs;
mod reductions;
mod refusals;
mod steps;
mod structures;
mod tapes;
mod ties;
mod unreached;
mod views;
mod written;
