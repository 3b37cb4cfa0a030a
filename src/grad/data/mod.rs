//! Data for training: the order of samples, and batches that another thread prepares.
//!
//! ```
//! use cachescope::grad::data::{Prefetch, Sampler};
//! use cachescope::grad::optim::Sgd;
//! use cachescope::grad::value_and_step;
//! use cachescope::{Array, cache_scope};
//!
//! let rows: Vec<f32> = (0..64).map(|row| row as f32 / 64.0).collect();
//! let (mut slope, mut optimizer) = (Array::<f32>::zeros([])?, Sgd::new(0.5));
//! let sampler = Sampler::new(64, 16).shuffle(7);
//! for epoch in 0..20 {
//!     let (indices, rows) = (sampler.epoch(epoch)?, rows.clone());
//!     // Runs on another thread, at most two batches ahead.
//!     let batches = Prefetch::new(2, indices.into_iter().map(move |batch| {
//!         let x: Vec<f32> = batch.to_vec()?.iter().map(|&row| rows[row as usize]).collect();
//!         Array::from_slice(&x, x.len())
//!     }))?;
//!     for x in batches {
//!         let x = x?;
//!         cache_scope!("step", {
//!             let loss = |slope: &Array<f32>| (&x * slope - &x * 3.0).square().mean();
//!             value_and_step(&mut slope, &mut optimizer, loss)?;
//!         });
//!     }
//! }
//! assert!((slope.item()? - 3.0).abs() < 1e-2);
//! # Ok::<(), cachescope::Error>(())
//! ```

mod prefetch;
mod sampler;

pub use prefetch::Prefetch;
pub use sampler::Sampler;
