//! Modules that several examples, tests and benchmarks use.

pub mod by_hand;
pub mod captured;
pub mod charts;
pub mod dataset;
pub mod digits;
pub mod failure;
#[cfg(feature = "safetensors")]
pub mod gpt2;
pub mod model;
pub mod progress;
pub mod savings;
