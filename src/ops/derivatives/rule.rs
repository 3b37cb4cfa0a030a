//! Steps whose gradients are written out, beside the operation that they are of.

use smallvec::SmallVec;

use super::graph::is_float;
use super::{AnyArray, Followed, Gradients, Pause, is_live, record_all};
use crate::array::{AnyElement, Array};
use crate::error::{Error, ErrorKind, Result};

/// An operation whose rule stands beside it: while it runs, nothing is followed, and then the step that passes gradients back is
/// recorded.
#[must_use]
pub(in crate::ops) struct Ruled(Option<Running>);

struct Running {
    followed: Vec<Option<Followed>>,
    _pause: Pause,
}

/// What a rule keeps until gradients are asked for.
#[derive(Debug, Default)]
pub(in crate::ops) struct Saved {
    bytes: u64,
}

impl Saved {
    /// An array that the rule computes gradients from. Nothing follows it.
    #[track_caller]
    pub(in crate::ops) fn keep<T: AnyElement>(&mut self, array: &Array<T>) -> Array<T> {
        self.bytes += array.size_bytes() as u64;
        constant(array)
    }
}

/// The values of `array`, which nothing follows.
#[track_caller]
pub(in crate::ops) fn constant<T: AnyElement>(array: &Array<T>) -> Array<T> {
    AnyArray::of(array).into_array()
}

impl Ruled {
    /// Begins one on `operands`.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) for elements that are no floats.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin<T: AnyElement>(operands: &[&Array<T>]) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        Running::begin(operands).map(Self)
    }

    /// Whether the operand of that number is followed, so that its gradient is wanted.
    pub(in crate::ops) fn wants(&self, operand: usize) -> bool {
        let running = self.0.as_ref();
        running.is_some_and(|running| running.followed[operand].is_some())
    }

    /// Ends it, with its result. Where an operand is followed, `rule` makes what computes the gradients of all operands from that
    /// of the result, and keeps what it needs for that.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish<T: AnyElement, R, C>(
        self,
        result: Array<T>,
        rule: impl FnOnce(&mut Saved) -> R,
    ) -> Array<T>
    where
        R: FnOnce(AnyArray) -> Result<Vec<C>> + 'static,
        C: Into<Option<AnyArray>>,
    {
        let [result] = self.finish_all([result], |saved, _| {
            let rule = rule(saved);
            move |[gradient]: [Option<AnyArray>; 1]| match gradient {
                Some(gradient) => rule(gradient),
                None => Ok(Vec::new()),
            }
        });
        result
    }

    /// The same of several results, of which any may have no gradient. What `rule` sees of them is not followed.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish_all<T: AnyElement, R, C, const N: usize>(
        self,
        results: [Array<T>; N],
        rule: impl FnOnce(&mut Saved, &[Array<T>; N]) -> R,
    ) -> [Array<T>; N]
    where
        R: FnOnce([Option<AnyArray>; N]) -> Result<Vec<C>> + 'static,
        C: Into<Option<AnyArray>>,
    {
        match self.0 {
            None => results,
            Some(running) => {
                let mut saved = Saved::default();
                let rule = rule(&mut saved, &results);
                running.finish(results, saved, rule)
            }
        }
    }
}

impl Running {
    #[cold]
    #[track_caller]
    fn begin<T: AnyElement>(operands: &[&Array<T>]) -> Result<Option<Self>> {
        let mut followed = Vec::new();
        for array in operands {
            followed.push(Followed::of(array.buffer(), array.layout())?);
        }
        if followed.iter().all(Option::is_none) {
            return Ok(None);
        }
        if !is_float(T::DTYPE) {
            let text = format!("no derivative is known for elements of {}", T::NAME);
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Some(Self {
            followed,
            _pause: Pause::begin(),
        }))
    }

    #[track_caller]
    fn finish<T: AnyElement, C: Into<Option<AnyArray>>, const N: usize>(
        self,
        results: [Array<T>; N],
        saved: Saved,
        rule: impl FnOnce([Option<AnyArray>; N]) -> Result<Vec<C>> + 'static,
    ) -> [Array<T>; N] {
        let Self { followed, _pause } = self;
        let backward = Box::new(
            move |upstream: &[Option<AnyArray>], gradients: &mut Gradients| {
                let upstream = std::array::from_fn(|at| upstream[at].as_ref().map(AnyArray::share));
                let contributions = rule(upstream)?;
                for (followed, contribution) in followed.into_iter().zip(contributions) {
                    if let (Some(followed), Some(contribution)) = (followed, contribution.into()) {
                        gradients.add(followed, contribution)?;
                    }
                }
                Ok(())
            },
        );
        let layouts = results.each_ref().map(|result| *result.layout());
        let results = results.into_iter().zip(layouts);
        let results: SmallVec<[_; 1]> = results
            .map(|(result, layout)| (result.into_buffer(), layout, T::DTYPE))
            .collect();
        let mut buffers = record_all(results, saved.bytes, backward).into_iter();
        layouts.map(|layout| {
            let buffer = buffers.next().expect("there are as many");
            Array::from_parts(buffer, layout)
        })
    }
}

/// A rule for floats of any type, as `finish` takes one: `by_gradient!(gradient => [expressions])`, where `gradient` is the
/// array of the type, and an expression gives the gradient of an operand.
macro_rules! by_gradient {
    ($gradient:ident => [$($result:expr),+ $(,)?]) => {
        move |gradient: $crate::ops::derivatives::AnyArray| {
            let dtype = gradient.dtype;
            let gradients = $crate::ops::derivatives::by_float!(dtype, F => {
                let $gradient = gradient.into_array::<F>();
                vec![$($crate::ops::derivatives::AnyArray::of(&$result)),+]
            });
            Ok(gradients.expect("gradients are floats"))
        }
    };
}

pub(in crate::ops) use by_gradient;
