//! Gradients, compared with finite differences in `f64`.

mod anomalies;
mod checkpoints;
mod clipping;
mod complex;
mod copies;
mod devices;
mod differences;
mod digits_step;
mod elementwise;
mod empty;
#[cfg(feature = "linalg")]
mod equal_values;
mod factors;
mod files;
mod flat;
#[cfg(feature = "safetensors")]
mod gpt2;
mod half;
mod half_training;
mod indices;
mod layer_settings;
mod layers;
mod lbfgs;
mod lines;
mod listed;
mod loss_scaled;
mod memory;
mod narrow;
mod narrow_layers;
mod narrow_steps;
mod narrow_sums;
mod nested;
mod nested_optimizers;
mod norm_range;
mod operations;
mod optimizers;
mod prefetch;
mod programs;
mod reductions;
mod refusals;
mod scalars;
mod settings;
mod steps;
mod structures;
mod tapes;
mod ties;
mod torch_layers;
#[cfg(feature = "fft")]
mod transforms;
mod unreached;
mod views;
mod written;
