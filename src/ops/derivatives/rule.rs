//! Steps whose gradients are written out, beside the operation that they are of.

use super::graph::is_float;
use super::{AnyArray, Followed, Gradients, Pause, is_live, record};
use crate::array::{AnyElement, Array};
use crate::error::{Error, ErrorKind, Result};

/// What `compute` gives, with a step that passes gradients back to `operands`. Where one of these is followed, `rule` makes what
/// computes their gradients from that of the result, and keeps what it needs for that.
///
/// # Errors
///
/// Those of `compute`; [`Unsupported`](ErrorKind::Unsupported) for elements that are no floats.
#[track_caller]
pub(in crate::ops) fn with_rule<T: AnyElement, R>(
    operands: &[&Array<T>],
    compute: impl FnOnce() -> Result<Array<T>>,
    rule: impl FnOnce() -> R,
) -> Result<Array<T>>
where
    R: FnOnce(AnyArray) -> Result<Vec<AnyArray>> + 'static,
{
    if !is_live() {
        return compute();
    }
    let followed = operands
        .iter()
        .map(|array| Followed::of(array.buffer(), array.layout()));
    let followed: Vec<Option<Followed>> = followed.collect::<Result<_>>()?;
    if followed.iter().all(Option::is_none) {
        return compute();
    }
    if !is_float(T::DTYPE) {
        let text = format!("no derivative is known for elements of {}", T::NAME);
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let result = {
        let _paused = Pause::begin();
        compute()?
    };
    let rule = rule();
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
    let buffer = record((result.into_buffer(), layout, T::DTYPE), &[], backward);
    Ok(Array::from_parts(buffer, layout))
}
