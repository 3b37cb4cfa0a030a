//! Data for training: the order of samples.

mod sampler;

pub use sampler::Sampler;
