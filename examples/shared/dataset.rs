//! Labelled images on a device.

use cachescope::ndarray::s;
use cachescope::{Array, Generator, Result};

use crate::digits::{Digits, PIXELS};

/// Images with the digits that they show.
#[derive(Debug)]
pub struct Dataset {
    /// The pixels, of shape `[images, 64]`.
    pub images: Array<f32>,
    /// The digits, of shape `[images]`.
    pub labels: Array<i64>,
}

impl Dataset {
    /// Copies the digits to the current device, and splits them at random. Four fifths are for
    /// training, and one fifth is for tests.
    pub fn split(digits: &Digits, generator: &mut Generator) -> Result<(Self, Self)> {
        let count = digits.labels.len();
        let all = Self {
            images: Array::from_slice(&digits.pixels, [count, PIXELS])?,
            labels: Array::from_slice(&digits.labels, count)?,
        };
        let order = Array::permutation_with(generator, count)?;
        let train = count * 4 / 5;
        Ok((
            all.take(&order.slice(s![..train])?)?,
            all.take(&order.slice(s![train..])?)?,
        ))
    }

    /// Returns copies of the images at `indices`.
    pub fn take(&self, indices: &Array<i64>) -> Result<Self> {
        Ok(Self {
            images: self.images.take(indices, 0)?,
            labels: self.labels.take(indices, 0)?,
        })
    }

    /// Returns the indices of all images in a random order, in batches of `batch_size`. The last
    /// batch may be smaller.
    pub fn batches(&self, batch_size: usize, generator: &mut Generator) -> Result<Vec<Array<i64>>> {
        let count = self.len();
        let order = Array::permutation_with(generator, count)?;
        (0..count)
            .step_by(batch_size)
            .map(|first| order.slice(s![first..count.min(first + batch_size)]))
            .collect()
    }

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }
    /// Returns whether the data set has no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
