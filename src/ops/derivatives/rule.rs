//! Steps with an explicit gradient rule. The rule is written beside the operation.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::activations::{Operand, Pin, Run, SavedArray, Source, Store, pin};
use super::backward::{Backward, BackwardStep, Upstream};
use super::gradients::filled;
use super::joint_graph::is_differentiable;
use super::{Gradients, Pause, StepResult, Tracked, is_live, record_results, store, tracked};
use crate::array::{AnyArray, AnyElement, Array, Bits, Buffer, DType, Layout, ValueId};
use crate::error::{Error, ErrorCode, Result};

/// An operation with an explicit gradient rule. While the operation runs, the tape is paused.
/// [`finish`](Self::finish) records the step that passes gradients back.
#[must_use]
pub(in crate::ops) struct RuledOperation(Option<RunningRule>);

struct RunningRule {
    operation: &'static str,
    operands: Vec<RuleOperand>,
    dtype: DType,
    /// The source that computes the results again, if the tape has a budget.
    source: Option<Source>,
    _pause: Pause,
}

struct RuleOperand {
    buffer: Buffer,
    layout: Layout,
    tracked: Option<Tracked>,
}

/// The values that a rule saves until gradients are computed.
#[derive(Debug)]
pub(in crate::ops) struct Saved {
    bytes: u64,
    /// Handles on the operands and the results. The value ids of the handles identify tracked
    /// values.
    known: Vec<Buffer>,
    /// True if every saved array is one of `known`. Otherwise, the rule's gradients have no
    /// derivatives.
    is_tracked: bool,
    /// The arrays that the rule itself holds.
    pins: Vec<Pin>,
}

impl Saved {
    /// Saves an operand or a result that the rule reads. Then the tape can track the rule, too. If
    /// `array` is neither an operand nor a result, its dependence on the operands is unknown. Then
    /// the gradients of the rule have no derivatives. The rule holds the memory of `array`.
    #[track_caller]
    pub(in crate::ops) fn save(&mut self, array: &AnyArray) -> AnyArray {
        let saved = self.save_recomputed(array);
        let value_id = self.identity_of(array);
        AnyArray {
            buffer: saved.buffer.with_value_id(value_id),
            ..saved
        }
    }

    /// Like [`save`](Self::save), for a typed array.
    #[track_caller]
    pub(in crate::ops) fn save_typed<T: AnyElement>(&mut self, array: &Array<T>) -> Array<T> {
        Array::from_erased(self.save(array.erased()))
    }

    /// Like [`save`](Self::save), but if the tape has a budget, the memory may be released. The
    /// array is then computed again when the rule fetches it.
    #[track_caller]
    pub(in crate::ops) fn save_releasable(&mut self, array: &AnyArray) -> SavedArray {
        self.bytes += array.size_bytes() as u64;
        let value_id = self.identity_of(array);
        let known = self.known.iter().find(|known| known.is_same(&array.buffer));
        // The handle of a result has no value id before the step is recorded.
        let buffer = match (array.buffer.value_id(), known) {
            (None, Some(known)) => known,
            _ => &array.buffer,
        };
        SavedArray::new(buffer, &array.layout, array.dtype).with_value_id(value_id)
    }

    /// Saves an array that was computed from operands. If a tape tracks the operands while the rule
    /// runs, the rule computes the array again. Otherwise, the rule uses the saved array.
    #[track_caller]
    pub(in crate::ops) fn save_recomputed(&mut self, array: &AnyArray) -> AnyArray {
        self.bytes += array.size_bytes() as u64;
        self.pins
            .extend(pin(&array.buffer, &array.layout, array.dtype));
        array.share()
    }

    /// Returns the value id by which the tape identifies a saved array.
    fn identity_of(&mut self, array: &AnyArray) -> Option<ValueId> {
        let value_id = array.buffer.value_id();
        if value_id.is_some() || !is_differentiable(array.dtype) {
            return value_id;
        }
        let known = self.known.iter();
        let mut known = known.filter(|known| known.is_same(&array.buffer));
        let Some(first) = known.next() else {
            self.is_tracked = false;
            return None;
        };
        // If several handles share the memory and one of them is not tracked, `array` counts as
        // untracked.
        let others_are = known.all(|known| known.value_id().is_some());
        first.value_id().filter(|_| others_are)
    }
}

/// Returns the elements of `array` as a constant, which no tape tracks.
#[track_caller]
pub(crate) fn constant<T: AnyElement>(array: &Array<T>) -> Array<T> {
    let buffer = array.buffer().share().with_value_id(None);
    Array::from_parts(buffer, *array.layout())
}

impl RuledOperation {
    /// Begins the operation `operation` on `operands`, which are of one type.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for elements that are neither floats nor
    /// complex numbers.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin(operation: &'static str, operands: &[&AnyArray]) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        let dtype = operands[0].dtype;
        debug_assert!(operands.iter().all(|own| own.dtype == dtype));
        let operands = operands.iter().map(|array| (&array.buffer, &array.layout));
        let operands: SmallVec<[_; 4]> = operands.collect();
        RunningRule::begin(operation, dtype, &operands).map(Self)
    }

    /// Sets the function that computes the result of the operation again from its operands, in
    /// about `flops` floating-point operations.
    pub(in crate::ops) fn computed_by(
        mut self,
        flops: u64,
        run: impl Fn(&[AnyArray]) -> Result<AnyArray> + 'static,
    ) -> Self {
        if let Some(running) = &mut self.0
            && let Some(store) = store(running.operands[0].buffer.device())
        {
            let run = move |operands: &[AnyArray]| Ok(smallvec![run(operands)?]);
            running.set_source(&store, flops, Box::new(run));
        }
        self
    }

    /// Returns whether the operand with the index `operand` is tracked, and so needs a gradient.
    pub(in crate::ops) fn wants(&self, operand: usize) -> bool {
        let running = self.0.as_ref();
        running.is_some_and(|running| running.operands[operand].tracked.is_some())
    }

    /// Ends the operation with its result. If an operand is tracked, `rule` saves arrays and
    /// returns a function. This function computes the gradients of all operands from the saved
    /// arrays and the gradient of the result.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish<R, C>(
        self,
        result: AnyArray,
        rule: impl FnOnce(&mut Saved) -> R,
    ) -> AnyArray
    where
        R: FnOnce(AnyArray) -> Result<Vec<C>> + Clone + 'static,
        C: Into<Option<AnyArray>>,
    {
        let Some(running) = self.0 else {
            return result;
        };
        let mut rule = Some(rule);
        running.finish_one(result, &mut |saved| {
            one_gradient(rule.take().expect("the closure is called once")(saved))
        })
    }

    /// Like [`finish`](Self::finish), for several results. Some results may have no gradient. The
    /// results that `rule` receives are not tracked.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish_all<R, C, const N: usize>(
        self,
        results: [AnyArray; N],
        rule: impl FnOnce(&mut Saved, [&AnyArray; N]) -> R,
    ) -> [AnyArray; N]
    where
        R: FnOnce([Option<AnyArray>; N]) -> Result<Vec<C>> + Clone + 'static,
        C: Into<Option<AnyArray>>,
    {
        let Some(running) = self.0 else {
            return results;
        };
        let parts = results.iter();
        let parts = parts.map(|own| (own.buffer.share(), &own.layout, own.dtype));
        let mut rule = Some(rule);
        let buffers = running.finish(parts.collect(), &mut |saved| {
            let rule = rule.take().expect("the closure is called once")(saved, results.each_ref());
            Box::new(move |mut upstream: Upstream| {
                let upstream = std::array::from_fn(|at| upstream[at].take());
                rule(upstream).map(contributions)
            })
        });
        let mut buffers = buffers.into_iter();
        results.map(|result| AnyArray {
            buffer: buffers.next().expect("each result has a buffer"),
            ..result
        })
    }

    /// Ends an operation whose results depend on no elements, because an operand or a result is
    /// empty. The results are tracked, and the gradients of operands are zeros.
    #[track_caller]
    pub(in crate::ops) fn finish_empty<const N: usize>(
        self,
        results: [AnyArray; N],
    ) -> [AnyArray; N] {
        let Some(running) = &self.0 else {
            return results;
        };
        let operands = running.operands.iter();
        let operands: Vec<_> = operands
            .map(|own| (own.buffer.device().clone(), *own.layout.shape()))
            .collect();
        let dtype = running.dtype;
        self.finish_all(results, |_, _| {
            move |_| {
                let zeros = operands.iter().map(|(device, shape)| {
                    let layout = Layout::contiguous(shape)?;
                    filled(device, &layout, (dtype, Bits::default()))
                });
                zeros.collect::<Result<Vec<AnyArray>>>()
            }
        })
    }
}

impl RunningRule {
    #[cold]
    #[track_caller]
    fn begin(
        operation: &'static str,
        dtype: DType,
        operands: &[(&Buffer, &Layout)],
    ) -> Result<Option<Self>> {
        let mut is_tracked = false;
        for (buffer, _) in operands {
            is_tracked |= tracked(buffer)?.is_some();
        }
        if !is_tracked {
            return Ok(None);
        }
        if !is_differentiable(dtype) {
            let text = format!(
                "{operation}: no derivative is known for elements of {}",
                dtype.name()
            );
            return Err(Error::new(ErrorCode::Gradient, text));
        }
        let operands = operands.iter().map(|(buffer, layout)| {
            Ok(RuleOperand {
                buffer: buffer.share(),
                layout: **layout,
                tracked: Tracked::of(buffer, layout)?,
            })
        });
        Ok(Some(Self {
            operation,
            operands: operands.collect::<Result<_>>()?,
            dtype,
            source: None,
            _pause: Pause::begin(),
        }))
    }

    /// Sets the function that computes the results again.
    fn set_source(&mut self, store: &Rc<Store>, flops: u64, run: Box<Run>) {
        let operands = self.operands.iter();
        let operands =
            operands.map(|own| Operand::new(store, &own.buffer, (&own.layout, self.dtype)));
        self.source = Some(Source::new(operands.collect(), flops, run));
    }

    /// Like [`finish`](Self::finish), for a single result.
    #[track_caller]
    fn finish_one(
        self,
        result: AnyArray,
        rule: &mut dyn FnMut(&mut Saved) -> Box<dyn GradientRule>,
    ) -> AnyArray {
        let AnyArray {
            buffer,
            layout,
            dtype,
        } = result;
        let mut buffers = self.finish(smallvec![(buffer, &layout, dtype)], rule);
        let buffer = buffers.pop().expect("the result has a buffer");
        AnyArray {
            buffer,
            layout,
            dtype,
        }
    }

    /// Records the step with the rule that `rule` returns. Calls `rule` once.
    #[track_caller]
    fn finish(
        self,
        results: SmallVec<[StepResult<'_>; 1]>,
        rule: &mut dyn FnMut(&mut Saved) -> Box<dyn GradientRule>,
    ) -> SmallVec<[Buffer; 1]> {
        let Self {
            operation,
            operands,
            source,
            _pause,
            ..
        } = self;
        record_results(results, source, &mut |buffers| {
            let known = operands.iter().map(|own| &own.buffer).chain(buffers);
            let mut saved = Saved {
                bytes: 0,
                known: known.map(Buffer::share).collect(),
                is_tracked: true,
                pins: Vec::new(),
            };
            let step = RuleStep {
                rule: rule(&mut saved),
                tracked: operands.iter().map(|own| own.tracked).collect(),
                pins: saved.pins,
            };
            BackwardStep {
                backward: Box::new(step),
                saved_bytes: saved.bytes,
                runs_again: false,
                takes_unrounded: false,
                only_once: (!saved.is_tracked).then_some(operation),
            }
        })
    }
}

/// The gradients that a rule returns for the operands. For an operand without a gradient, the entry
/// is `None`.
type Contributions = SmallVec<[Option<AnyArray>; 3]>;

/// Returns the rule of an operation with one result. If the result has no gradient, the rule does
/// not run.
fn one_gradient<R, C>(rule: R) -> Box<dyn GradientRule>
where
    R: FnOnce(AnyArray) -> Result<Vec<C>> + Clone + 'static,
    C: Into<Option<AnyArray>>,
{
    Box::new(move |mut upstream: Upstream| match upstream[0].take() {
        Some(gradient) => rule(gradient).map(contributions),
        None => Ok(Contributions::new()),
    })
}

/// Returns the gradients of operands, with `None` for an operand without a gradient.
fn contributions<C: Into<Option<AnyArray>>>(gradients: Vec<C>) -> Contributions {
    gradients.into_iter().map(Into::into).collect()
}

/// A rule that computes the gradients of operands from the gradients of results.
trait GradientRule {
    fn apply(self: Box<Self>, upstream: Upstream) -> Result<Contributions>;

    /// Returns a copy of the rule.
    fn share(&self) -> Box<dyn GradientRule>;
}

impl<F: FnOnce(Upstream) -> Result<Contributions> + Clone + 'static> GradientRule for F {
    fn apply(self: Box<Self>, upstream: Upstream) -> Result<Contributions> {
        self(upstream)
    }

    fn share(&self) -> Box<dyn GradientRule> {
        Box::new(self.clone())
    }
}

/// The backward pass of a step with a rule.
struct RuleStep {
    rule: Box<dyn GradientRule>,
    tracked: Vec<Option<Tracked>>,
    /// The arrays that the rule holds itself.
    pins: Vec<Pin>,
}

impl Backward for RuleStep {
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()> {
        let Self {
            rule,
            tracked,
            pins,
        } = *self;
        // The rule has its own handles on the memory. Without the pins, the rule may overwrite the
        // memory.
        drop(pins);
        let contributions = rule.apply(upstream)?;
        let contributions = tracked.into_iter().zip(contributions);
        gradients.add_all(contributions.filter_map(|(to, own)| to.zip(own)).collect())
    }

    fn share(&self) -> Box<dyn Backward> {
        Box::new(Self {
            rule: self.rule.share(),
            tracked: self.tracked.clone(),
            pins: self.pins.clone(),
        })
    }
}
