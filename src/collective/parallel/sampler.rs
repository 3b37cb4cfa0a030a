//! The distribution of samples to batches and ranks.

use ndarray::s;

use crate::array::Array;
use crate::collective::Group;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Generator;

/// The division of samples into batches, and of each batch among the ranks. All ranks together see
/// the batches that a single rank would see, in equal order.
///
/// # Examples
///
/// ```
/// use cachescope::collective::{Group, Sampler};
///
/// let batches = Group::threads(2, |group| {
///     let sampler = Sampler::new(10, 4).of(&group)?;
///     sampler.epoch(0)?.iter().map(|batch| batch.to_vec()).collect::<cachescope::Result<Vec<_>>>()
/// })?;
/// assert_eq!(batches[0], [[0, 1].as_slice(), &[4, 5], &[8]]);
/// assert_eq!(batches[1], [[2, 3].as_slice(), &[6, 7], &[9]]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    samples: usize,
    batch: usize,
    seed: Option<u64>,
    rank: usize,
    size: usize,
}

impl Sampler {
    /// Makes batches of `batch` samples, counted over all ranks. The last batch may be smaller.
    #[must_use]
    pub fn new(samples: usize, batch: usize) -> Self {
        Self {
            samples,
            batch,
            seed: None,
            rank: 0,
            size: 1,
        }
    }

    /// Shuffles the samples anew in each epoch. Ranks with equal seeds get equal orders.
    #[must_use]
    pub fn shuffled(self, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..self
        }
    }

    /// Returns the sampler of this rank. If the last batch does not divide evenly among the ranks,
    /// its remainder is left out.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `batch` is not a multiple of the number
    /// of ranks. Otherwise, the mean over the ranks would differ from the mean over the batch.
    #[track_caller]
    pub fn of(self, group: &Group) -> Result<Self> {
        let (rank, size) = (group.rank(), group.size());
        if self.batch == 0 || !self.batch.is_multiple_of(size) {
            let text = format!(
                "Sampler: a batch of {} samples does not divide among {size} ranks",
                self.batch
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self { rank, size, ..self })
    }

    /// Returns the indices of this rank's samples, batch by batch.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::permutation`](Array::permutation), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `batch` is 0.
    #[track_caller]
    pub fn epoch(&self, epoch: u64) -> Result<Vec<Array<i64>>> {
        let Self {
            samples,
            batch,
            seed,
            rank,
            size,
        } = *self;
        if batch == 0 {
            let text = "Sampler: a batch has 0 samples, expected at least 1";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let order = match seed {
            Some(seed) => {
                // Multiplied, so that seeds of neighbouring epochs and runs are far apart.
                let seed = seed ^ epoch.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                Array::permutation_with(&mut Generator::new(seed), samples)?
            }
            None => Array::arange(0, samples as i64, 1)?,
        };
        (0..samples)
            .step_by(batch)
            .map(|first| (first, batch.min(samples - first) / size))
            .filter(|&(_, own)| own > 0)
            .map(|(first, own)| {
                let first = first + rank * own;
                order.slice(s![first..first + own])
            })
            .collect()
    }
}
