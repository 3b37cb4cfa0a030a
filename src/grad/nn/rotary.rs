//! Rotary position embeddings.

use crate::array::{Array, Float, Shape};
use crate::context::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::{concat, eval, stack};

/// A rotary position embedding (Su et al. 2021). It rotates each pair of elements of queries and
/// keys by an angle proportional to the position. Therefore the products of queries and keys depend
/// only on the distances between their positions.
///
/// The embedding has no parameters. The angles are computed in `f64`, and pairs of `f16` and `bf16`
/// are rotated in `f32`.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
/// use cachescope::grad::nn::Rotary;
///
/// let rotary = Rotary::default();
/// let (q, k) = (Array::<f64>::randn([2, 4, 8])?, Array::<f64>::randn([2, 4, 8])?);
/// let products = |first| -> cachescope::Result<Array<f64>> {
///     rotary.forward(&q, first)?.matmul(&rotary.forward(&k, first)?.swap_axes(-1, -2)?)
/// };
/// // Only distances matter, not where a text begins.
/// assert!((products(0)? - products(1000)?).abs().max()?.item()? < 1e-10);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// The base of the wavelengths (default: 10 000).
    pub base: f64,
    /// True if adjacent elements are the pairs, as in the paper. False if element i is paired with
    /// element i + width / 2, as in Llama's published weights.
    pub pairs_neighbours: bool,
}

impl Default for Rotary {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            pairs_neighbours: false,
        }
    }
}

impl Rotary {
    /// Rotates `x`, of shape `[.., length, width]`, whose first position is `first`. With a cache
    /// of keys, `first` is the number of positions in the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Rotary;
    ///
    /// let x = Array::<f32>::ones([1, 2, 4])?;
    /// let turned = Rotary::default().forward(&x, 0)?.to_vec()?;
    /// assert_eq!(turned[..4], [1.0; 4]); // position 0 is not turned
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `x` has fewer than two axes or an odd
    /// width. [`InvalidArgument`](ErrorKind::InvalidArgument) if the base is not a normal number
    /// above 0.
    #[track_caller]
    pub fn forward<T: Float>(&self, x: &Array<T>, first: usize) -> Result<Array<T>> {
        if !(self.base > 0.0 && self.base.is_normal()) {
            let base = self.base;
            let text = format!("Rotary: base is {base}, expected a normal number above 0");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let &[.., length, width] = x.shape() else {
            return Err(refused(x.layout().shape()));
        };
        if !width.is_multiple_of(2) {
            return Err(refused(x.layout().shape()));
        }
        let half = width / 2;
        let axis = x.ndim() - 1;
        let part = |start: usize| -> Result<Array<T>> {
            let (range, step) = match self.pairs_neighbours {
                true => (start..width, 2),
                false => (start * half..(start + 1) * half, 1),
            };
            Ok(x.viewed(x.layout().part(axis, range, step)?))
        };
        if half == 0 {
            return Ok(x.clone());
        }
        let turns = self.turns::<T::Computed>(x.device(), (first, length), half)?;
        let (left, right) = turned([part(0)?, part(1)?], turns)?;
        match self.pairs_neighbours {
            true => stack(&[&left, &right], -1)?.reshape(*x.layout().shape()),
            false => concat(&[&left, &right], -1),
        }
    }

    /// Returns the cosines and the sines of the angles, each of shape `[length, half]`. A row is
    /// for a position, a column for a pair.
    #[track_caller]
    fn turns<T: Float>(
        &self,
        device: &Device,
        (first, length): (usize, usize),
        half: usize,
    ) -> Result<(Array<T>, Array<T>)> {
        let _device = device.enter();
        let positions = (0..length).map(|at| first as f64 + at as f64).collect();
        let rates = (0..half).map(|at| self.base.powf(-(at as f64) / half as f64));
        let positions = Array::from_vec(positions, [length, 1])?;
        let rates = Array::from_vec(rates.collect(), half)?;
        let angles = positions * rates;
        eval((angles.cos().cast::<T>(), angles.sin().cast::<T>()))
    }
}

/// Rotates pairs of elements by the angles of `cosine` and `sine`, in the type `A`.
#[track_caller]
fn turned<T: Float, A: Float>(
    [left, right]: [Array<T>; 2],
    (cosine, sine): (Array<A>, Array<A>),
) -> Result<(Array<T>, Array<T>)> {
    if T::DTYPE == A::DTYPE {
        let (cosine, sine) = (cosine.downcast::<T>(), sine.downcast::<T>());
        return eval((
            &left * &cosine - &right * &sine,
            &right * &cosine + &left * &sine,
        ));
    }
    let (left, right) = (left.cast::<A>(), right.cast::<A>());
    eval((
        (&left * &cosine - &right * &sine).cast::<T>(),
        (&right * &cosine + &left * &sine).cast::<T>(),
    ))
}

#[cold]
#[track_caller]
fn refused(shape: &Shape) -> Error {
    let text = format!("Rotary: the shape is {shape}, expected [.., length, width] of even width");
    Error::new(ErrorKind::InvalidArgument, text)
}
