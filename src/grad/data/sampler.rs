//! The distribution of samples to batches and ranks.

use ndarray::s;

use crate::array::Array;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::Generator;

/// The division of samples into batches, and of each batch among the ranks. Together, the ranks
/// receive the batches that a single rank would receive, in an equal order.
///
/// # Examples
///
/// ```
/// use cachescope::collective::{Group, Sampler};
///
/// let batches = Group::threads(2, |group| {
///     let sampler = Sampler::new(10, 4).group(&group);
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
    /// Creates a sampler of batches of `batch` samples, counted over all ranks. The last batch may
    /// be smaller.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::data::Sampler;
    ///
    /// let batches = Sampler::new(5, 2).epoch(0)?;
    /// assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [2, 2, 1]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::data::Sampler;
    ///
    /// let sampler = Sampler::new(100, 100).shuffle(7);
    /// let first = sampler.epoch(0)?[0].to_vec()?;
    /// assert_eq!(sampler.epoch(0)?[0].to_vec()?, first);
    /// assert_ne!(sampler.epoch(1)?[0].to_vec()?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn shuffle(self, seed: u64) -> Self {
        Self {
            seed: Some(seed),
            ..self
        }
    }

    /// Divides each batch among `size` ranks, and selects the part of the rank `rank` (default: a
    /// single rank). If the last batch does not divide evenly, its remainder is not used.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::data::Sampler;
    ///
    /// let own = Sampler::new(8, 4).ranks(1, 2).epoch(0)?;
    /// assert_eq!(own[0].to_vec()?, [2, 3]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    #[must_use]
    pub fn ranks(self, rank: usize, size: usize) -> Self {
        Self { rank, size, ..self }
    }

    /// Returns an error for a batch that does not divide evenly among the ranks. With parts of
    /// different sizes, the mean of the ranks' means would differ from the mean over the batch.
    #[track_caller]
    pub(crate) fn check(&self) -> Result<()> {
        let Self {
            batch, rank, size, ..
        } = *self;
        let text = match batch {
            0 => "Sampler: a batch has 0 samples, expected at least 1".to_owned(),
            _ if batch.is_multiple_of(size) && rank < size => return Ok(()),
            _ if rank >= size => format!("Sampler: rank {rank} is out of range for {size} ranks"),
            _ => format!("Sampler: a batch of {batch} samples does not divide among {size} ranks"),
        };
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }

    /// Returns the indices of this rank's samples, batch by batch.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::data::Sampler;
    ///
    /// let batches = Sampler::new(4, 2).epoch(0)?;
    /// assert_eq!((batches[0].to_vec()?, batches[1].to_vec()?), (vec![0, 1], vec![2, 3]));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a batch is empty or does not divide among
    /// the ranks; the errors of [`Array::permutation`](Array::permutation).
    #[track_caller]
    pub fn epoch(&self, epoch: usize) -> Result<Vec<Array<i64>>> {
        let Self {
            samples,
            batch,
            seed,
            rank,
            size,
        } = *self;
        self.check()?;
        let order = match seed {
            Some(seed) => {
                // The multiplication makes seeds of neighbouring epochs and runs differ in many
                // bits.
                let seed = seed ^ (epoch as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
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
