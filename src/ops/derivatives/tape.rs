//! What a thread computed from its variables, step by step.
//!
//! A tape lists the values that it follows, and for each operation that computed some of them how gradients pass back
//! through it. A [`Node`] in a handle of memory tells which of these values the memory holds; views share the handle, and
//! so the node. What computes is not followed itself: an operation records one step, whatever operations it is made of.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use smallvec::SmallVec;

use super::gradients::{AnyArray, Gradients};
use crate::array::{Buffer, DType, Layout, Node, TapeNumber, set_follows};
use crate::error::{AtCaller, Error, ErrorKind, Result};

thread_local! {
    static TAPE: RefCell<Option<Tape>> = const { RefCell::new(None) };
    /// Whether this thread computes something that its tape does not follow.
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// The gradients of a step's results, by the number of the result; none where nothing was computed from it.
pub(crate) type Upstream = SmallVec<[Option<AnyArray>; 1]>;

/// Passes the gradients of a step's results back to what it read.
pub(crate) trait Backward {
    /// The last time, so that what it keeps is freed, and `upstream` as soon as it was read.
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()>;

    /// Another that does the same.
    fn share(&self) -> Box<dyn Backward>;
}

impl<F> Backward for F
where
    F: FnOnce(Upstream, &mut Gradients) -> Result<()> + Clone + 'static,
{
    fn pass_back(self: Box<Self>, upstream: Upstream, gradients: &mut Gradients) -> Result<()> {
        self(upstream, gradients)
    }

    fn share(&self) -> Box<dyn Backward> {
        Box::new(self.clone())
    }
}

/// How a step passes gradients back.
pub(crate) struct PassingBack {
    pub(crate) backward: Box<dyn Backward>,
    /// What it keeps for that.
    pub(crate) saved_bytes: u64,
    /// The operation's name, where no gradients of its gradients are known: it keeps something beside what it read and its results.
    pub(crate) only_once: Option<&'static str>,
}

/// The steps of small programs, for which the lists of a tape do not grow.
const STEPS: usize = 16;

struct Tape {
    number: Option<TapeNumber>,
    values: Vec<Value>,
    /// Of each of these, the first step that may have read it.
    first_readers: Vec<usize>,
    steps: Vec<Step>,
}

/// Values that a tape follows: those of an array without gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

/// An operation.
pub(crate) struct Step {
    /// The values that it computed; none for what is constant but for steps.
    pub(crate) results: SmallVec<[Option<u32>; 1]>,
    pub(crate) back: PassingBack,
    pub(crate) call_site: &'static Location<'static>,
}

/// The tape of a thread, which ends as this drops.
#[must_use]
#[derive(Debug)]
pub(crate) struct TapeGuard {
    number: TapeNumber,
}

impl TapeGuard {
    /// Begins a tape on this thread.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where there is one.
    #[track_caller]
    pub(crate) fn begin() -> Result<Self> {
        let number = TapeNumber::begin();
        let begun = TAPE.with_borrow_mut(|tape| {
            if tape.is_some() {
                let text =
                    "gradients inside of gradients; hvp and jvp give derivatives of derivatives";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
            *tape = Some(Tape {
                number: Some(number),
                values: Vec::with_capacity(STEPS),
                first_readers: Vec::with_capacity(STEPS),
                steps: Vec::with_capacity(STEPS),
            });
            Ok(())
        });
        begun.inspect_err(|_| number.end()).at_caller()?;
        set_follows(true);
        Ok(Self { number })
    }
}

impl Drop for TapeGuard {
    fn drop(&mut self) {
        // Dropped outside of the borrow: what a step keeps are arrays.
        let ended = TAPE.try_with(|tape| tape.borrow_mut().take());
        drop(ended);
        set_follows(false);
        self.number.end();
    }
}

/// While this lives, the thread's tape follows nothing, or again.
#[must_use]
#[derive(Debug)]
pub(crate) struct Pause {
    was_paused: bool,
}

impl Pause {
    pub(crate) fn begin() -> Self {
        Self {
            was_paused: PAUSED.replace(true),
        }
    }

    /// The contrary: while it lives, the tape follows again.
    pub(crate) fn end() -> Self {
        Self {
            was_paused: PAUSED.replace(false),
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        PAUSED.set(self.was_paused);
    }
}

/// Whether there is any tape in this process.
#[inline]
pub(crate) fn is_live() -> bool {
    TapeNumber::are_any()
}

/// Which of the values that this thread's tape follows are in `buffer`, if any.
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) where another thread's tape follows them: this thread cannot tell it.
#[track_caller]
pub(crate) fn followed(buffer: &Buffer) -> Result<Option<u32>> {
    let Some(node) = buffer.node().filter(|_| is_live() && !PAUSED.get()) else {
        return Ok(None);
    };
    let is_own = TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut().filter(|tape| tape.number == Some(node.tape));
        tape.map(|tape| {
            let reader = &mut tape.first_readers[node.index as usize];
            *reader = tape.steps.len().min(*reader);
        })
    });
    if is_own.is_some() {
        return Ok(Some(node.index));
    }
    if node.tape.is_live() {
        let text = "an array that another thread computes gradients for; stop_gradient makes a value of it";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(None)
}

/// Follows new values: `buffer`, whose elements of `layout` they are, with their node.
///
/// # Panics
///
/// Where the elements have gaps: gradients are laid out as their values are.
pub(crate) fn follow(buffer: Buffer, layout: Layout, dtype: DType) -> Buffer {
    assert!(layout.is_contiguous(), "{layout:?} has gaps");
    let node = TAPE.with_borrow_mut(|tape| {
        let tape = tape.as_mut()?;
        tape.values.push(Value { layout, dtype });
        tape.first_readers.push(NEVER);
        let index = tape.values.len() as u32 - 1;
        tape.number.map(|tape| Node { tape, index })
    });
    buffer.with_node(node)
}

/// No step has read it.
const NEVER: usize = usize::MAX;

/// Of values, the first step that may have read them; beyond all steps where none has. While there are no more steps than that, and
/// they are passed back, the gradient is complete.
pub(crate) fn first_reader(index: u32) -> usize {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("a tape follows them");
        tape.first_readers[index as usize]
    })
}

/// The values with that number.
pub(crate) fn value(index: u32) -> Value {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("a tape follows them");
        tape.values[index as usize]
    })
}

/// Appends a step.
pub(crate) fn push(step: Step) {
    TAPE.with_borrow_mut(|tape| {
        if let Some(tape) = tape {
            tape.steps.push(step);
        }
    });
}

/// How many steps there are.
pub(crate) fn length() -> usize {
    TAPE.with_borrow(|tape| tape.as_ref().map_or(0, |tape| tape.steps.len()))
}

/// Shows the step of that number.
pub(crate) fn with_step<R>(number: usize, see: impl FnOnce(&Step) -> R) -> R {
    TAPE.with_borrow(|tape| {
        let tape = tape.as_ref().expect("it has steps");
        see(&tape.steps[number])
    })
}

/// Takes the last step.
pub(crate) fn pop() -> Option<Step> {
    TAPE.with_borrow_mut(|tape| tape.as_mut()?.steps.pop())
}

/// Shows the steps, the first one first.
pub(crate) fn steps(see: &mut dyn FnMut(&Step)) {
    TAPE.with_borrow(|tape| {
        let steps = tape.iter().flat_map(|tape| &tape.steps);
        steps.for_each(see);
    });
}
