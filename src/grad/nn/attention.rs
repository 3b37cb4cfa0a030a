//! Multi-head attention.

use super::Linear;
use crate::array::{Array, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::grad::{CastParameters, Parameters};
use crate::ops::attention;

/// Multi-head self-attention, optionally causal (Vaswani et al. 2017).
#[derive(Clone, Debug, CastParameters, Parameters)]
#[parameters(crate = crate)]
pub struct Attention<T: Float = f32> {
    /// The projection to queries, keys and values of all heads, with a weight `[3 width, width]`.
    pub qkv: Linear<T>,
    /// The output projection, with a weight `[width, width]`.
    pub out: Linear<T>,
    /// The number of heads, which divides the width.
    #[parameters(skip)]
    pub heads: usize,
    /// True if each position attends only to itself and earlier positions.
    #[parameters(skip)]
    pub causal: bool,
}

impl<T: Float> Attention<T> {
    /// Makes a layer with random parameters, initialised like [`Linear::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::grad::nn::Attention;
    ///
    /// assert_eq!(Attention::<f32>::new(8, 2, true)?.qkv.weight.shape(), [24, 8]);
    /// assert!(Attention::<f32>::new(8, 3, true).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Array::rand`], and [`InvalidArgument`](ErrorKind::InvalidArgument) if the
    /// width is not a multiple of `heads`.
    #[track_caller]
    pub fn new(width: usize, heads: usize, causal: bool) -> Result<Self> {
        check(width, heads)?;
        Ok(Self {
            qkv: Linear::new(width, width.saturating_mul(3))?,
            out: Linear::new(width, width)?,
            heads,
            causal,
        })
    }

    /// Applies the layer to `x`, of shape `[.., length, width]`. The result has the shape of `x`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    /// use cachescope::grad::nn::Attention;
    ///
    /// let layer = Attention::<f32>::new(8, 2, true)?;
    /// assert_eq!(layer.forward(&Array::randn([3, 5, 8])?)?.shape(), [3, 5, 8]);
    /// assert!(layer.forward(&Array::randn([3, 5, 7])?).is_err());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`attention`](crate::attention()).
    #[track_caller]
    pub fn forward(&self, x: &Array<T>) -> Result<Array<T>> {
        let parts = self.qkv.forward(x)?;
        let lengths = parts.shape();
        let (places, wide) = lengths.split_at(lengths.len() - 1);
        check(wide[0] / 3, self.heads)?;
        let width = wide[0] / (3 * self.heads);
        let heads: Shape = places.iter().chain(&[3, self.heads, width]).collect();
        let heads = parts.reshape(heads)?;
        // `heads` has the shape [.., length, 3, heads, width]. Each of the 3 parts has the shape
        // [.., heads, length, width].
        let part = |index: usize| -> Result<Array<T>> {
            let own = heads.layout().part(places.len(), index..index + 1, 1)?;
            heads
                .viewed(own)
                .squeeze(places.len() as isize)?
                .swap_axes(-2, -3)
        };
        let seen = attention(&part(0)?, &part(1)?, &part(2)?, self.causal)?;
        let whole: Shape = places.iter().chain(&[self.heads * width]).collect();
        self.out.forward(&seen.swap_axes(-2, -3)?.reshape(whole)?)
    }
}

#[track_caller]
fn check(width: usize, heads: usize) -> Result<()> {
    if heads > 0 && width.is_multiple_of(heads) {
        return Ok(());
    }
    let text = format!("Attention: a width of {width} does not divide into {heads} heads");
    Err(Error::new(ErrorKind::InvalidArgument, text))
}
