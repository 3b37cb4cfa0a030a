//! Writes in place.

use std::fmt;
use std::panic::Location;

use crate::array::{AnyArray, AnyElement, Array, Buffer, Layout, Shape, broadcast_shapes};
use crate::error::{Error, ErrorCode, Result, reported_call_site};
use crate::ops::derivatives::{self, Evaluation, evaluate};
use crate::ops::dispatch::{Hoisted, device_mismatch, device_of, store};
use crate::ops::expression::any_lazy::AnyLazy;
use crate::ops::expression::expr::IntoExpr;
use crate::ops::expression::graph::ExpressionGraph;
use crate::ops::expression::tree::{Operand, Tree, operands};
use crate::ops::host::{FusedStore, Fusing, Unfused};
use crate::ops::order::aliasing::{Obstacle, Overwritable, Target};
use crate::ops::order::warn;
use crate::size::ByteSize;

impl<T: AnyElement> Array<T> {
    /// Sets the elements to the elements of `value`. `value` broadcasts to this array's shape.
    ///
    /// If other arrays or expressions share the memory, this array gets its own memory. The values
    /// of the others do not change. Otherwise, the write is in place and keeps the address. Handles
    /// inside `value` do not count as sharing: `w.assign(&w - &step)` copies nothing. If `value`
    /// reads this array in another order than the write, `value` is computed into temporary memory
    /// first.
    ///
    /// Every other handle counts as sharing: a clone, a view, and an expression that is still
    /// alive. An expression is still alive after another variable shadows its name.
    /// [`CacheStats::copies_on_write`](crate::CacheStats::copies_on_write) counts the writes that
    /// copied. Builds with debug assertions print a warning to standard error, once for each line
    /// that copies. The warning also names the line of the other handle.
    /// [`cache_record`](crate::Device::cache_record) marks the copies of a recorded scope.
    ///
    /// A write to a view changes a copy of the view, and is lost if the view is a temporary. The
    /// warning reports the copy. To write into a part of this array, call
    /// [`slice_mut`](Self::slice_mut).
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut w = Array::from_slice(&[1.0, 2.0, 3.0], 3)?;
    /// let address = w.address();
    /// w.assign(&w * 0.5)?;
    /// assert_eq!((w.to_vec()?, w.address()), (vec![0.5, 1.0, 1.5], address));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Lazy::eval`](crate::Lazy::eval), and
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the value's shape does not broadcast
    /// to this array's shape. After an error, the array is unchanged.
    #[track_caller]
    pub fn assign<R: IntoExpr<T>>(&mut self, value: R) -> Result<()> {
        assign_to(self.erased_mut(), &value.into_lazy().expr)
    }

    /// Sets the elements to an expression of this array, like [`assign`](Self::assign). Call
    /// `update` where the borrow checker rejects a second use of the array.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut weights = vec![Array::from_slice(&[1.0, 2.0], 2)?];
    /// weights[0].update(|w| w - 0.5)?;
    /// assert_eq!(weights[0].to_vec()?, [0.5, 1.5]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn update<R: IntoExpr<T>>(&mut self, value: impl FnOnce(&Self) -> R) -> Result<()> {
        let value = value(self);
        self.assign(value)
    }

    /// Sets every element to `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// use cachescope::Array;
    ///
    /// let mut x = Array::from_slice(&[1, 2], 2)?;
    /// x.fill(7)?;
    /// assert_eq!(x.to_vec()?, [7, 7]);
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`assign`](Self::assign).
    #[track_caller]
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.assign(value)
    }
}

impl AnyArray {
    /// See [`Array::assign`].
    ///
    /// # Panics
    ///
    /// Panics if the array and `value` have different element types.
    #[track_caller]
    pub(crate) fn assign(&mut self, value: &AnyLazy) -> Result<()> {
        assert_eq!(
            self.dtype,
            value.dtype(),
            "the value and the target differ in type"
        );
        assign_to(self, &Unfused(value))
    }
}

#[track_caller]
fn assign_to(array: &mut AnyArray, value: &dyn Fusing) -> Result<()> {
    if let Some((buffer, layout)) = assign(Target::new(array), value)? {
        if !buffer.is_same(&array.buffer) {
            note_copy_on_write(array, &buffer, &[value]);
        }
        *array = AnyArray::new(buffer, layout, array.dtype);
    }
    Ok(())
}

/// Counts and marks a write that copied `array` to `copy`, and warns about the caller's line.
/// Handles inside the expressions `held` did not force the copy.
///
/// A write to a view changes only the copy, and is lost if the view is a temporary. So the warning
/// reports the copy.
#[cold]
#[track_caller]
pub(in crate::ops) fn note_copy_on_write(array: &AnyArray, copy: &Buffer, held: &[&dyn Tree]) {
    let (buffer, layout) = (&array.buffer, &array.layout);
    let bytes = layout.len() * array.dtype.size_bytes();
    let mut except = Vec::new();
    for tree in held {
        operands(*tree, &mut |operand| except.push(operand.buffer));
    }
    let shared_at = buffer.shared_at(&except);
    copy.note_copy_on_write(shared_at);
    let own = 1 + except.iter().filter(|other| other.is_same(buffer)).count();
    if layout.repeats() && buffer.holders() <= own {
        return; // Repeated elements forced the copy.
    }
    let size = ByteSize(bytes as u64);
    // If the library started the work itself, the copy is reported at the line of the call.
    let location = reported_call_site(Location::caller());
    if buffer.is_read_only() && buffer.holders() == own + 1 {
        warn::once(
            location,
            format_args!(
                "copied {size} before writing, because the memory was imported as read-only"
            ),
        );
    } else if buffer.is_view() {
        warn::once(
            location,
            format_args!(
                "wrote to a copy of this view, {size}, not to the array that shares its memory{}: to write \
                 into that array, call its `slice_mut`",
                Since(shared_at)
            ),
        );
    } else {
        warn::once(
            location,
            format_args!(
                "copied {size} before writing, because another array, or an expression that is still alive, \
                 shares the memory{}",
                Since(shared_at)
            ),
        );
    }
}

/// The line since which memory is shared.
struct Since(Option<&'static Location<'static>>);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(location) => write!(f, " since {location}"),
            None => Ok(()),
        }
    }
}

/// Sets the elements of `target` to `value`. If no handle outside `value` shares the memory, writes
/// in place. Otherwise, returns new memory for the target.
#[track_caller]
pub(in crate::ops) fn assign(
    target: Target<'_>,
    value: &dyn Fusing,
) -> Result<Option<(Buffer, Layout)>> {
    let device = target.device();
    if derivatives::is_live() && is_tracked(&target, value)? {
        return match overwritten(&target, value)? {
            Some(overwritten) => Ok(Some(overwritten)),
            None => replaced(&target, value).map(Some),
        };
    }
    if device.backend().cuda().is_none()
        && let Some(fused) = FusedStore::new(value, &[], target)
        && fused.run()?
    {
        return Ok(None);
    }
    let graph = assigned(&target, value)?;
    let shape = target.layout().shape();
    let hoisted = Hoisted::of(&graph, device, shape)?;
    let graph = hoisted.apply(&graph);
    match Overwritable::new(&[target], &[value], &[]) {
        Ok(targets) => store(&graph, targets).map(|()| None),
        // The sharing is checked only once. If another thread drops a handle meanwhile, a second
        // check would cause a second copy.
        Err(Obstacle::Shared) => Ok(Some((
            evaluate(&graph, device, shape)?,
            target.layout().dense(),
        ))),
        Err(Obstacle::Reordered) => {
            let fresh = (evaluate(&graph, device, shape)?, target.layout().dense());
            overwrite_or_replace(target, fresh, &[value])
        }
    }
}

#[track_caller]
pub(in crate::ops) fn is_tracked(target: &Target<'_>, value: &dyn Tree) -> Result<bool> {
    let mut outcome = derivatives::tracked(target.buffer()).map(|value| value.is_some());
    operands(value, &mut |operand| {
        if let Ok(false) = outcome {
            outcome = derivatives::tracked(operand.buffer).map(|value| value.is_some());
        }
    });
    outcome
}

/// Returns the new elements of `target` in new memory, because a tape may need the old elements.
#[track_caller]
pub(in crate::ops) fn replaced(target: &Target<'_>, value: &dyn Tree) -> Result<(Buffer, Layout)> {
    let graph = assigned(target, value)?;
    let buffer = evaluate(&graph, target.device(), target.layout().shape())?;
    Ok((buffer, target.layout().dense()))
}

/// Writes the new elements to the memory of `target`, and returns them as a new value. Returns
/// `None` if the step, an earlier step or the program holds the old elements.
#[track_caller]
fn overwritten(target: &Target<'_>, value: &dyn Tree) -> Result<Option<(Buffer, Layout)>> {
    let graph = assigned(target, value)?;
    let (device, layout) = (target.device(), target.layout());
    // The evaluation saves operands as handles, which `Overwritable::new` counts.
    let evaluation = Evaluation::begin(&graph, layout.shape())?;
    if !evaluation.is_tracked() || !layout.is_contiguous() {
        return Ok(None);
    }
    let targets = [*target];
    let Ok(targets) = Overwritable::new(&targets, &[value], &[]) else {
        return Ok(None);
    };
    let hoisted = Hoisted::of(&graph, device, layout.shape())?;
    store(&hoisted.apply(&graph), targets)?;
    // The old value id does not apply to the new elements: `finish` tracks them as a new value.
    let results = std::iter::once(target.buffer().share().with_value_id(None)).collect();
    let mut results = evaluation.finish(results, layout);
    let buffer = results.pop().expect("the evaluation has one result");
    Ok(Some((buffer, *layout)))
}

#[track_caller]
fn assigned<'a>(target: &Target<'_>, value: &'a dyn Tree) -> Result<ExpressionGraph<'a>> {
    let graph = ExpressionGraph::of(value)?;
    check_shape(target.layout().shape(), graph.shape())?;
    check_device("assign", target, &graph)?;
    Ok(graph)
}

/// Moves computed elements to the memory of `target`. If a handle outside the expressions `held`
/// shares this memory, returns the new memory for the target instead.
#[track_caller]
pub(in crate::ops) fn overwrite_or_replace(
    target: Target<'_>,
    fresh: (Buffer, Layout),
    held: &[&dyn Tree],
) -> Result<Option<(Buffer, Layout)>> {
    let stored = move_to(target, &fresh, held)?;
    Ok((!stored).then_some(fresh))
}

/// Moves computed elements to the memory of `target`. No other array shares this memory.
#[track_caller]
pub(in crate::ops) fn overwrite(target: Target<'_>, fresh: &(Buffer, Layout)) -> Result<()> {
    let stored = move_to(target, fresh, &[])?;
    assert!(stored, "no other handle shares the target's memory");
    Ok(())
}

#[track_caller]
fn move_to(
    target: Target<'_>,
    (buffer, layout): &(Buffer, Layout),
    held: &[&dyn Tree],
) -> Result<bool> {
    let dtype = target.dtype();
    let operand = Operand {
        buffer,
        layout,
        dtype,
    };
    let targets = [target];
    let Ok(targets) = Overwritable::new(&targets, &[&operand], held) else {
        return Ok(false);
    };
    store(&ExpressionGraph::of(&operand)?, targets)?;
    Ok(true)
}

/// # Errors
///
/// [`DeviceMismatch`](crate::ErrorKind::DeviceMismatch) if operands are not on the target's device.
#[track_caller]
pub(in crate::ops) fn check_device(
    operation: &str,
    target: &Target<'_>,
    graph: &ExpressionGraph<'_>,
) -> Result<()> {
    let device = target.device();
    match device_of(operation, graph)?.filter(|&other| other != device) {
        None => Ok(()),
        Some(other) => {
            let own = ("the target", device, target.layout().shape());
            let value = ("the value", other, graph.shape());
            Err(device_mismatch(operation, own, value))
        }
    }
}

#[track_caller]
pub(in crate::ops) fn check_shape(target: &Shape, value: &Shape) -> Result<()> {
    if value == target || broadcast_shapes("assign", &[target, value]).is_ok_and(|to| to == *target)
    {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::Broadcast,
        format!("assign: the value {value} does not broadcast to the target {target}"),
    ))
}
