//! Steps whose gradients are written out, beside the operation that they are of.

use super::graph::is_float;
use super::{AnyArray, Followed, Gradients, Pause, is_live, record};
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

    /// Ends it, with its result. Where an operand is followed, `rule` makes what computes the gradients of all operands from that
    /// of the result, and keeps what it needs for that.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish<T: AnyElement, R>(
        self,
        result: Array<T>,
        rule: impl FnOnce() -> R,
    ) -> Array<T>
    where
        R: FnOnce(AnyArray) -> Result<Vec<AnyArray>> + 'static,
    {
        match self.0 {
            None => result,
            Some(running) => running.finish(result, rule()),
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
    fn finish<T: AnyElement>(
        self,
        result: Array<T>,
        rule: impl FnOnce(AnyArray) -> Result<Vec<AnyArray>> + 'static,
    ) -> Array<T> {
        let Self { followed, _pause } = self;
        let backward = Box::new(
            move |upstream: &[Option<AnyArray>], gradients: &mut Gradients| {
                let Some(upstream) = &upstream[0] else {
                    return Ok(());
                };
                let contributions = rule(upstream.share())?;
                for (followed, contribution) in followed.into_iter().zip(contributions) {
                    if let Some(followed) = followed {
                        gradients.add(followed, contribution)?;
                    }
                }
                Ok(())
            },
        );
        let layout = *result.layout();
        let buffer = record((result.into_buffer(), layout, T::DTYPE), 0, backward);
        Array::from_parts(buffer, layout)
    }
}
