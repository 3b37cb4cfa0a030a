//! The cross entropy of logits and classes.

use crate::array::{AnyArray, Array, DType, Float, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::derivatives::{RuledOperation, is_any_tracked};
use crate::ops::dispatch::{Reduction, same_device};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::index::{gathered, of_classes};
use cachescope_kernels::reduce::{CrossEntropy, Logsumexp};

impl<T: Float> Array<T> {
    /// Returns the cross entropy of this array, the logits, like PyTorch's `cross_entropy`. The
    /// cross entropy is the mean of −ln softmax(logits)\[class\] over the rows. The logits have the
    /// shape `[N, C]`. `classes` has the shape `[N]`, with a class of `0..C` for each row. The
    /// result has rank 0.
    ///
    /// The logits are read once and no softmax is stored. The loss of a row is the logarithm of the
    /// sum of its exponentials, minus the logit of its class. The loss is computed in `f64` without
    /// overflow. So even if the logits are large, a loss near 0 keeps its digits. Without rows, the
    /// result is NaN, like the [`mean`](Self::mean) of no elements.
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
    /// [`ShapeMismatch`](ErrorKind::ShapeMismatch) unless the shapes are `[N, C]` and `[N]`.
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a class is negative or at least `C`.
    /// [`DeviceMismatch`](ErrorKind::DeviceMismatch) and [`OutOfMemory`](ErrorKind::OutOfMemory).
    /// On a CUDA device, the next call that waits for the device returns the error for a class.
    #[track_caller]
    pub fn cross_entropy(&self, classes: &Array<i64>) -> Result<Self> {
        let reduction = const { &Reduction::of::<CrossEntropy, T>() };
        cross_entropy(self.erased(), classes, reduction).map(Self::from_erased)
    }
}

/// The losses of the rows, and the terms that their gradients need, of shape `[N]`, in `f64`.
#[derive(Clone, Debug)]
struct RowLosses {
    /// The logarithms of the sums of exponentials.
    sums: AnyArray,
    losses: AnyArray,
}

impl RowLosses {
    #[track_caller]
    fn of(logits: &AnyArray, classes: &Array<i64>, reduction: &'static Reduction) -> Result<Self> {
        let picked = of_classes(logits, classes)?.lazy().cast(DType::F64);
        let sums = logits.lazy().reduced(reduction, &1.into(), false)?;
        let losses = (sums.lazy() - picked).eval()?;
        Ok(Self { sums, losses })
    }
}

#[track_caller]
fn cross_entropy(
    logits: &AnyArray,
    classes: &Array<i64>,
    reduction: &'static Reduction,
) -> Result<AnyArray> {
    let step = RuledOperation::begin("cross_entropy", &[logits])?;
    let places = ("the classes", classes.erased());
    same_device("cross_entropy", ("the array of logits", logits), places)?;
    let (own, others) = (logits.shape(), classes.layout().shape());
    match (own.dims(), others.dims()) {
        (&[length, _], &[count]) if length == count => {}
        _ => return Err(mismatch(own, others)),
    }
    let rows = RowLosses::of(logits, classes, reduction)?;
    let mean = rows.losses.lazy().mean()?.converted(logits.dtype)?;
    Ok(step.finish(mean, |saved| {
        let (logits, classes) = (saved.save_releasable(logits), saved.save_typed(classes));
        let rows = RowLosses {
            sums: saved.save_recomputed(&rows.sums),
            losses: saved.save_recomputed(&rows.losses),
        };
        move |gradient: AnyArray| Ok(vec![back(logits.fetch()?, &classes, rows, &gradient)?])
    }))
}

/// Returns the gradient of the logits. The gradient is the probability of each logit, minus 1 for
/// the class of the row, times a factor. The factor is the gradient of the mean, divided by the
/// number of rows. The result is rounded once.
#[track_caller]
fn back(
    mut logits: AnyArray,
    classes: &Array<i64>,
    mut rows: RowLosses,
    gradient: &AnyArray,
) -> Result<AnyArray> {
    let dtype = logits.dtype;
    let scale = 1.0 / classes.len() as f64;
    let classes = classes.unsqueeze(1)?;
    if is_any_tracked(&[&logits])? {
        // The sums are computed in `f64`, because the summands of a second derivative nearly
        // cancel.
        static LOGSUMEXP: Reduction = Reduction::of::<Logsumexp, f64>();
        logits = logits.converted(DType::F64)?;
        let picked = gathered(&logits, &classes, 1)?.squeeze(1)?;
        let sums = logits.lazy().reduced(&LOGSUMEXP, &1.into(), false)?;
        let losses = (sums.lazy() - picked.lazy()).eval()?;
        rows = RowLosses { sums, losses };
    }
    weighted(logits, (&rows, &classes), gradient, scale)?.converted(dtype)
}

/// Returns the probability of each logit, minus 1 for the class of the row, times `gradient` and
/// `scale`. If no other handle shares the memory of the logits, the result overwrites the logits.
#[track_caller]
fn weighted(
    mut logits: AnyArray,
    (rows, classes): (&RowLosses, &Array<i64>),
    gradient: &AnyArray,
    scale: f64,
) -> Result<AnyArray> {
    let (dtype, wide) = (logits.dtype, logits.dtype.computed_in());
    let weight = &(gradient.lazy().cast(wide) * scale).eval()?;
    let [sums, losses] = [rows.sums.unsqueeze(1)?, rows.losses.unsqueeze(1)?];
    let is_own = logits.buffer.holders() == 1 && !logits.layout.repeats();
    let shares = (logits.lazy().cast(DType::F64) - sums.lazy())
        .cast(wide)
        .exp();
    // For `f64`, a large rounded logarithm in `sums` costs digits of the shares, so they are
    // normalized again below.
    let is_exact = dtype != DType::F64;
    let weighted = match is_exact {
        true => (shares * weight.lazy()).cast(dtype),
        false => shares.cast(dtype),
    };
    let mut gradients = if is_own {
        logits.assign(&weighted)?;
        logits
    } else {
        weighted.eval()?
    };
    drop(weighted);
    if !is_exact {
        let shares = gradients.lazy();
        let total = shares.sum_keepdims(1)?;
        gradients.assign(&(shares / total.lazy() * weight.lazy()))?;
    }
    let of_class = of_classes_apart(&mut gradients, (&sums, &losses, classes), weight)?;
    gradients.scatter(classes, &of_class, 1)?;
    Ok(gradients)
}

/// Returns the gradients of the logits of `classes`, and sets these elements of `gradients` to 0.
#[track_caller]
fn of_classes_apart(
    gradients: &mut AnyArray,
    (sums, losses, classes): (&AnyArray, &AnyArray, &Array<i64>),
    weight: &AnyArray,
) -> Result<AnyArray> {
    /// The minimum ratio of a loss to the logarithm of the row's sum of exponentials. If the ratio
    /// is smaller, the rounded loss has too few digits for a gradient.
    const LOST: f64 = 0.1;
    let (dtype, wide) = (gradients.dtype, weight.dtype);
    let by_loss = (-losses.lazy()).cast(wide).exp_m1() * weight.lazy();
    let nothing = gradients.full(classes.layout().shape(), 0.0)?;
    gradients.scatter(classes, &nothing, 1)?;
    let others = gradients.lazy().cast(wide).sum_keepdims(1)?;
    // A probability near 1, minus 1, has few digits, so the gradient is computed from the loss. If
    // the loss is tiny compared with the logits, the loss has few digits, too. The gradient is then
    // minus the sum of the row's other gradients.
    let is_lost = losses.lazy().lt((sums.lazy().abs() + 1.0) * LOST);
    AnyLazy::select(is_lost, -others.lazy(), by_loss)
        .cast(dtype)
        .eval()
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
