//! The cross entropy of logits and classes.

use super::along;
use crate::array::{Array, DType, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::{AnyArray, RuledOperation, is_tracked};
use crate::ops::dispatch::same_device;
use crate::ops::expression::elementwise::select;
use crate::ops::index::of_classes;
use crate::ops::precompiled::precompiled;
use crate::ops::reducers::CrossEntropy;

impl<T: Float> Array<T> {
    /// Returns the mean of −ln softmax(logits)\[class\] over the rows of these logits, like
    /// PyTorch's `cross_entropy`. The logits have shape `[N, C]`. `classes` has shape `[N]` and a
    /// class of `0..C` for each row. The result has rank 0.
    ///
    /// The logits are read once and no softmax is stored. The loss of a row is the logarithm of the
    /// sum of its exponentials, minus the logit of its class. It is computed in `f64` without
    /// overflow, so a loss near 0 keeps its digits when logits are large. The mean over no rows is
    /// NaN, like [`mean`](Self::mean).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let logits = Array::from_slice(&[0.0_f64, 0.0, 1000.0, 0.0], [2, 2])?;
    /// let classes = Array::from_slice(&[1, 0], 2)?;
    /// assert_eq!(logits.cross_entropy(&classes)?.item()?, 2.0_f64.ln() / 2.0);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) unless the shapes are `[N, C]` and `[N]`,
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) where a class is negative, or `C` or more:
    /// on a CUDA device with the next call that waits for it;
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch) and [`OutOfMemory`](ErrorKind::OutOfMemory).
    #[track_caller]
    pub fn cross_entropy(&self, classes: &Array<i64>) -> Result<Self> {
        let logits = self;
        let step = RuledOperation::begin("cross_entropy", &[logits])?;
        let mut kept = None;
        let rows = &mut kept;
        let mean: Result<Self> = precompiled!(cross_entropy::<T>([logits]; classes: &Array<i64>, rows: &mut Option<RowLosses>));
        let mean = mean?;
        Ok(step.finish(mean, |saved| {
            let (logits, classes) = (saved.save_releasable(logits), saved.save(classes));
            let RowLosses { sums, losses } = kept.expect("a mean is of them");
            let rows = RowLosses {
                sums: saved.save_recomputed(&sums),
                losses: saved.save_recomputed(&losses),
            };
            move |gradient: AnyArray| {
                let logits = logits.fetch()?.into_array::<T>();
                let gradient = back(logits, &classes, rows, gradient.into_array())?;
                Ok(vec![gradient.into_erased()])
            }
        }))
    }
}

/// The values of each row, of shape `[N]`.
#[derive(Clone, Debug)]
struct RowLosses {
    /// The logarithms of the sums of exponentials.
    sums: Array<f64>,
    losses: Array<f64>,
}

impl RowLosses {
    #[track_caller]
    fn of<T: Float>(sums: Array<f64>, picked: &Array<T>) -> Result<Self> {
        let losses = (&sums - picked.cast::<f64>()).eval_unfused()?;
        Ok(Self { sums, losses })
    }
}

/// Returns the gradient of the logits. It is the probability of each logit, minus 1 for the class
/// of its row, times the gradient of the mean, divided by the number of rows. It is rounded once.
#[track_caller]
fn back<T: Float>(
    logits: Array<T>,
    classes: &Array<i64>,
    rows: RowLosses,
    gradient: Array<T>,
) -> Result<Array<T>> {
    let scale = 1.0 / classes.len() as f64;
    let classes = classes.unsqueeze(1)?;
    let rows = match is_tracked(&logits)? {
        true => RowLosses::of(
            logits.cast::<f64>().logsumexp_axis(1)?,
            &logits.gather(&classes, 1)?.squeeze(1)?,
        )?,
        false => rows,
    };
    weighted::<T, T::Computed>(logits, (&rows, &classes), &gradient, scale)
}

/// Returns the probability of each logit, minus 1 for the class of its row, times `gradient` and
/// `scale`. The result is computed in `A`. It overwrites the logits if nothing else has their
/// memory.
#[track_caller]
fn weighted<T: Float, A: Float>(
    mut logits: Array<T>,
    (rows, classes): (&RowLosses, &Array<i64>),
    gradient: &Array<T>,
    scale: f64,
) -> Result<Array<T>> {
    let weight = &(gradient.cast::<A>() * A::from_f64(scale)).eval_unfused()?;
    let [sums, losses] = [rows.sums.unsqueeze(1)?, rows.losses.unsqueeze(1)?];
    let is_own = logits.buffer().holders() == 1 && !logits.layout().repeats();
    let shares = (logits.cast::<f64>() - &sums).cast::<A>().exp();
    // A rounded logarithm of `f64` loses digits of the shares if it is large.
    let is_exact = const { T::DTYPE as u8 != DType::F64 as u8 };
    let weighted = match is_exact {
        true => (shares * weight).cast::<T>().boxed(),
        false => shares.cast::<T>().boxed(),
    };
    let mut gradients = if is_own {
        logits.assign(weighted)?;
        logits
    } else {
        weighted.eval_unfused()?
    };
    if !is_exact {
        let total = gradients.cast::<A>().sum_keepdims(1)?.downcast::<A>();
        gradients.update(|shares| (shares.cast::<A>() / total * weight).cast::<T>())?;
    }
    let of_class = of_classes_apart(&mut gradients, (&sums, &losses, classes), weight)?;
    gradients.scatter(classes, &of_class, 1)?;
    Ok(gradients)
}

/// Returns the gradients of the classes' logits, and sets them to 0 in `gradients`.
#[track_caller]
fn of_classes_apart<T: Float, A: Float>(
    gradients: &mut Array<T>,
    (sums, losses, classes): (&Array<f64>, &Array<f64>, &Array<i64>),
    weight: &Array<A>,
) -> Result<Array<T>> {
    /// The part of a logit that the rounding of a loss changes, with the digits of a gradient.
    const LOST: f64 = 0.1;
    let by_loss = (-losses).cast::<A>().exp_m1() * weight;
    let nothing = AnyArray::full_beside(gradients, classes.layout().shape(), 0.0)?;
    gradients.scatter(classes, &nothing, 1)?;
    let others = gradients.cast::<A>().sum_keepdims(1)?.downcast::<A>();
    // A probability less 1 has few digits, and a loss that is tiny beside the logits has, too.
    let is_lost = losses.lt((sums.abs() + 1.0) * LOST);
    select(is_lost, -others, by_loss).cast::<T>().eval_unfused()
}

#[track_caller]
fn cross_entropy<T: Float>(
    logits: &Array<T>,
    classes: &Array<i64>,
    rows: &mut Option<RowLosses>,
) -> Result<Array<T>> {
    same_device(
        "cross_entropy",
        ("the array of logits", logits),
        ("the classes", classes),
    )?;
    let (own, others) = (logits.layout().shape(), classes.layout().shape());
    match (own.dims(), others.dims()) {
        (&[length, _], &[count]) if length == count => {}
        _ => return Err(mismatch(own, others)),
    }
    let picked = of_classes(logits, classes)?;
    let sums = along::<CrossEntropy, T>(&logits.lazy().expr, &1.into(), false)?;
    let mean = rows.insert(RowLosses::of(sums, &picked)?).losses.mean()?;
    if const { T::DTYPE as u8 == DType::F64 as u8 } {
        return Ok(mean.downcast());
    }
    mean.cast::<T>().eval_unfused()
}

#[cold]
#[track_caller]
fn mismatch(logits: &Shape, classes: &Shape) -> Error {
    Error::new(
        ErrorKind::ShapeMismatch,
        format!(
            "cross_entropy: logits {logits} and classes {classes} do not fit, expected [N, C] and [N]"
        ),
    )
}
