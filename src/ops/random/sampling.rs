//! Samples of discrete distributions, and random permutations.

use super::rows::{CheckedRows, largest_weights};
use super::{Generator, RandomSource};
use crate::array::{AnyElement, Array, Float, Shape, Writer};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::constant;
use crate::ops::expression::elementwise::select;

impl<T: Float> Array<T> {
    /// Returns a random index for each row along the last axis, with the softmax of the row as
    /// probabilities. The elements are logits, and the result has no last axis. Draws one number
    /// per row from the calling thread's generator.
    ///
    /// The probabilities are computed in `f64`, and their cumulative sum is inverted (Devroye 1986,
    /// section III.2). A logit of −∞ has the probability 0, and a single logit of +∞ has the
    /// probability 1. The host checks the rows before it draws. A CUDA device checks the rows while
    /// it draws. The next call that waits for the device returns the error.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, manual_seed};
    ///
    /// manual_seed(1);
    /// let logits = Array::from_slice(&[0.0_f32, 50.0, 0.0, 50.0, 0.0, 0.0], [2, 3])?;
    /// assert_eq!(logits.categorical()?.to_vec()?, [1, 0]);
    /// // At a temperature of 100, any index is likely.
    /// assert_eq!((&logits / 100.0).eval()?.categorical()?.shape(), [2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) if the array has rank 0 or a last axis of length
    /// 0. [`InvalidArgument`](ErrorKind::InvalidArgument), naming the row, if a row has a NaN,
    /// several logits of +∞, or no logit above −∞. [`OutOfMemory`](ErrorKind::OutOfMemory) if the
    /// device has no memory.
    #[track_caller]
    pub fn categorical(&self) -> Result<Array<i64>> {
        categorical(
            RandomSource::Thread,
            constant(self).cast::<f64>().eval_unfused()?,
        )
    }

    /// Like [`categorical`](Self::categorical), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let logits = Array::<f32>::zeros([4, 10])?;
    /// let first = logits.categorical_with(&mut Generator::new(7))?;
    /// assert_eq!(logits.categorical_with(&mut Generator::new(7))?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`categorical`](Self::categorical).
    #[track_caller]
    pub fn categorical_with(&self, generator: &mut Generator) -> Result<Array<i64>> {
        let source = RandomSource::Explicit(generator);
        categorical(source, constant(self).cast::<f64>().eval_unfused()?)
    }

    /// Returns `count` random indices for each row along the last axis, with probabilities in
    /// proportion to the elements. The elements must be finite and not negative. The last axis of
    /// the result has the length `count`. Draws from the calling thread's generator. The weights
    /// are added in `f64`, and no sum overflows.
    ///
    /// With replacement, an index may occur several times. Without replacement, each index occurs
    /// at most once. The order is the order of drawing (Efraimidis and Spirakis 2006, "Weighted
    /// random sampling with a reservoir"). An index of weight 0 is drawn only after all indices of
    /// positive weight.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, manual_seed};
    ///
    /// manual_seed(1);
    /// let weights = Array::from_slice(&[0.0_f32, 3.0, 1.0], 3)?;
    /// let drawn = weights.multinomial(100, true)?.to_vec()?;
    /// assert!(!drawn.contains(&0));
    /// let mut both = weights.multinomial(2, false)?.to_vec()?;
    /// both.sort();
    /// assert_eq!(both, [1, 2]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), naming the row, if a weight of a row is
    /// negative, infinite or NaN, or if no weight is above 0.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if, without replacement, `count` is above
    /// the length of the last axis. The other errors of [`categorical`](Self::categorical).
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Result<Array<i64>> {
        let weights = constant(self).cast::<f64>().eval_unfused()?;
        multinomial(RandomSource::Thread, weights, (count, replacement))
    }

    /// Like [`multinomial`](Self::multinomial), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let weights = Array::<f32>::ones(5)?;
    /// let mut order = weights.multinomial_with(&mut Generator::new(7), 5, false)?.to_vec()?;
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`multinomial`](Self::multinomial).
    #[track_caller]
    pub fn multinomial_with(
        &self,
        generator: &mut Generator,
        count: usize,
        replacement: bool,
    ) -> Result<Array<i64>> {
        let weights = constant(self).cast::<f64>().eval_unfused()?;
        let source = RandomSource::Explicit(generator);
        multinomial(source, weights, (count, replacement))
    }
}

impl<T: AnyElement> Array<T> {
    /// Returns the rows in random order. A row is a part along the first axis. Draws from the
    /// calling thread's generator. The result is [`take`](Self::take) with a
    /// [`permutation`](Array::permutation). To shuffle several arrays in one order, call `take` on
    /// each array with one permutation.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, manual_seed};
    ///
    /// manual_seed(1);
    /// let mut shuffled = Array::arange(0, 10, 1)?.shuffle()?.to_vec()?;
    /// shuffled.sort();
    /// assert_eq!(shuffled, (0..10).collect::<Vec<_>>());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidShape`](ErrorKind::InvalidShape) for an array of rank 0, and the errors of
    /// [`take`](Self::take).
    #[track_caller]
    pub fn shuffle(&self) -> Result<Self> {
        self.shuffled(RandomSource::Thread)
    }

    /// Like [`shuffle`](Self::shuffle), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let rows = Array::<f32>::rand([10, 2])?;
    /// let first = rows.shuffle_with(&mut Generator::new(7))?;
    /// assert_eq!(rows.shuffle_with(&mut Generator::new(7))?, first);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`shuffle`](Self::shuffle).
    #[track_caller]
    pub fn shuffle_with(&self, generator: &mut Generator) -> Result<Self> {
        self.shuffled(RandomSource::Explicit(generator))
    }

    #[track_caller]
    fn shuffled(&self, source: RandomSource<'_>) -> Result<Self> {
        let Some(&rows) = self.shape().first() else {
            return Err(no_axis("shuffle", self.layout().shape()));
        };
        let _device = self.device().enter();
        let shape = rows.into();
        let writer = Writer::on_current(&shape)?;
        let order = source.shuffled(rows);
        self.take(&write_order(writer, &order)?, 0)
    }
}

impl Array<i64> {
    /// Returns the numbers from 0 to `n - 1` in random order, from the calling thread's generator.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let rows = Array::<f32>::rand([10, 2])?;
    /// let shuffled = rows.take(&Array::permutation(10)?, 0)?;
    /// assert_eq!(shuffled.shape(), rows.shape());
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    #[track_caller]
    pub fn permutation(n: usize) -> Result<Self> {
        let shape = n.into();
        let writer = Writer::on_current(&shape)?;
        let order = RandomSource::Thread.shuffled(n);
        write_order(writer, &order)
    }

    /// Like [`permutation`](Self::permutation), but from `generator`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::{Array, Generator};
    ///
    /// let mut order = Array::permutation_with(&mut Generator::new(7), 5)?.to_vec()?;
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`rand`](Self::rand).
    #[track_caller]
    pub fn permutation_with(generator: &mut Generator, n: usize) -> Result<Self> {
        let shape = n.into();
        let writer = Writer::on_current(&shape)?;
        let order = generator.shuffled(n);
        write_order(writer, &order)
    }
}

#[track_caller]
fn write_order(mut writer: Writer<'_, i64>, order: &[i64]) -> Result<Array<i64>> {
    writer.extend_from_slice(order)?;
    writer.finish()
}

#[track_caller]
fn categorical(source: RandomSource<'_>, logits: Array<f64>) -> Result<Array<i64>> {
    check_rows("categorical", &logits)?;
    let most = logits.max_keepdims(-1)?;
    // The difference of two infinite logits would be NaN.
    let weights = select(logits.lazy().eq(&most), 1.0, (&logits - &most).exp());
    let sums = weights.cumsum(-1)?;
    let rows = CheckedRows::of_logits(&logits, &most, &whole_of(&sums)?)?;
    rows.reported(by_inversion(source, &sums, 1)?)?.squeeze(-1)
}

#[track_caller]
fn multinomial(
    source: RandomSource<'_>,
    weights: Array<f64>,
    (count, replacement): (usize, bool),
) -> Result<Array<i64>> {
    let length = check_rows("multinomial", &weights)?;
    if !replacement && count > length {
        let text = format!(
            "multinomial: {count} draws without replacement from {length} weights, expected at \
             most {length} draws"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let most = largest_weights(&weights)?;
    let rows = CheckedRows::of_weights(&weights, &most)?;
    // The factor is a power of two. With the factor, neither a sum of weights nor a weight divided
    // by a small element of `waits` overflows. The factor also keeps the digits of small weights.
    let factor = select(
        most.gt(2.0_f64.powi(900)),
        2.0_f64.powi(-100),
        select(most.lt(2.0_f64.powi(-900)), 2.0_f64.powi(900), 1.0),
    );
    let factor = factor.eval_unfused()?;
    if replacement {
        let sums = (&weights * &factor).cumsum(-1)?;
        return rows.reported(by_inversion(source, &sums, count)?);
    }
    let _device = weights.device().enter();
    let uniform = source.uniform::<f64>(weights.layout().shape())?;
    // The waits are exponentially distributed numbers above 0. The key of a weight of 0 is −1. So
    // this key sorts after all other keys, even if other quotients round to 0.
    let waits = -(-(uniform + 2.0_f64.powi(-54))).log1p();
    let keys = select(weights.gt(0.0), &weights * &factor / waits, -1.0);
    let (_, drawn) = keys.eval_unfused()?.topk(count, -1)?;
    rows.reported(drawn)
}

/// Draws `count` random points below the total of each row. Returns, for each point, the number of
/// running sums that are at most the point. This number is the drawn index. The probability of an
/// index is proportional to its weight.
#[track_caller]
fn by_inversion(source: RandomSource<'_>, sums: &Array<f64>, count: usize) -> Result<Array<i64>> {
    let last = sums.ndim() - 1;
    let length = sums.shape()[last];
    let rows: Shape = sums.shape()[..last].iter().chain(&[count, 1]).collect();
    let _device = sums.device().enter();
    let uniform = source.uniform::<f64>(&rows)?;
    let points = (whole_of(sums)?.unsqueeze(-1)? * uniform).eval_unfused()?;
    let before = sums.unsqueeze(-2)?.le(&points).cast::<i64>();
    // The running sums are computed in blocks. Because of rounding, the last sum may be below the
    // sum before it.
    before
        .sum_axis(-1)?
        .minimum(length as i64 - 1)
        .eval_unfused()
}

/// Returns a view of the last running sum of each row. This sum is the row's total.
#[track_caller]
fn whole_of(sums: &Array<f64>) -> Result<Array<f64>> {
    let last = sums.ndim() - 1;
    let length = sums.shape()[last];
    Ok(sums.viewed(sums.layout().part(last, length - 1..length, 1)?))
}

/// Returns the length of the last axis, from which an index is drawn.
#[track_caller]
fn check_rows(operation: &str, x: &Array<f64>) -> Result<usize> {
    match x.shape().last() {
        Some(&length) if length > 0 => Ok(length),
        _ => Err(no_axis(operation, x.layout().shape())),
    }
}

#[cold]
#[track_caller]
fn no_axis(operation: &str, shape: &Shape) -> Error {
    let text = format!("{operation}: the shape {shape} has no axis to draw along");
    Error::new(ErrorKind::InvalidShape, text)
}
