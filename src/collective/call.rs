//! The description of a collective call, as plain data. All ranks of a group must issue equal
//! calls.

use std::fmt;
use std::ops::Range;

use crate::array::{AnyElement, Array, DType, Shape};
use crate::error::{Error, ErrorKind, Result};

/// The operation that combines the elements of all ranks into one.
///
/// On threads and over MPI, sums are computed in the order of the ranks. Therefore sums are bitwise
/// reproducible on any machine, and equal on threads and over MPI. `f16` and `bf16` are summed in
/// `f32` and rounded once. Integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduce {
    /// The sum. Not defined for `bool`.
    Sum,
    /// The sum divided by the number of ranks. Defined for floats and complex numbers.
    Mean,
    /// The maximum. If any rank's element is NaN, the result is NaN (except with NCCL). For `bool`,
    /// the result is true if any rank's element is true. Not defined for complex numbers.
    Max,
    /// The minimum. If any rank's element is NaN, the result is NaN (except with NCCL). For `bool`,
    /// the result is true if all ranks' elements are true. Not defined for complex numbers.
    Min,
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
        })
    }
}

impl Reduce {
    /// Returns an error if the reduction is not defined for `dtype`.
    #[track_caller]
    pub(super) fn check(self, operation: &str, dtype: DType) -> Result<()> {
        let is_known = match self {
            Self::Sum => dtype != DType::Bool,
            Self::Mean => dtype.is_float() || dtype.is_complex(),
            Self::Max | Self::Min => !dtype.is_complex(),
        };
        if is_known {
            return Ok(());
        }
        let text = format!(
            "{operation}: the reduction {self} is not defined for elements of {}",
            dtype.name()
        );
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AllReduce(Reduce),
    /// A reduction to the root, a rank of the group.
    Reduce(Reduce, usize),
    /// A broadcast from the root, a rank of the group.
    Broadcast(usize),
    AllGather,
    ReduceScatter(Reduce),
    AllToAll,
    Barrier,
    /// A message to a rank. Only two ranks take part (point-to-point).
    Send(usize),
    /// The receipt of a message from a rank.
    Receive(usize),
}

impl Operation {
    /// Returns the name of the public method.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "all_reduce",
            Self::Reduce(..) => "reduce",
            Self::Broadcast(_) => "broadcast",
            Self::AllGather => "all_gather",
            Self::ReduceScatter(_) => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Send(_) => "send",
            Self::Receive(_) => "recv",
        }
    }
}

/// A call of a rank. A collective call must be equal on all ranks of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) dtype: DType,
    /// The shape of the rank's input.
    pub(super) shape: Shape,
}

impl Call {
    /// Describes a call whose input is `x`.
    pub(super) fn of<T: AnyElement>(operation: Operation, x: &Array<T>) -> Self {
        Self {
            operation,
            dtype: T::DTYPE,
            shape: *x.layout().shape(),
        }
    }

    /// Describes a call on `count` words of metadata that the library exchanges itself.
    pub(super) fn of_words(operation: Operation, count: usize) -> Self {
        Self {
            operation,
            dtype: DType::U64,
            shape: Shape::from(count),
        }
    }

    /// Returns the part of the input that a rank sends to itself in an all-gather or all-to-all.
    /// The three numbers are the part's byte offset in the source, its byte offset in the target,
    /// and its length.
    pub(super) fn own_part(&self, own: usize, size: usize) -> Option<(usize, usize, usize)> {
        let bytes = self.bytes();
        let part = bytes / size;
        match self.operation {
            Operation::AllGather => Some((0, own * bytes, bytes)),
            Operation::AllToAll => Some((own * part, own * part, part)),
            _ => None,
        }
    }

    /// Returns the number of elements in the rank's input.
    pub(super) fn count(&self) -> usize {
        self.shape.dims().iter().product()
    }

    /// Returns the size of the rank's input in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count() * self.dtype.size_bytes()
    }

    /// Returns an error if another rank issued a different call. `others` are in rank order.
    pub(super) fn check_same<'a>(
        &self,
        others: impl Iterator<Item = (usize, &'a Self)>,
    ) -> Result<()> {
        let mut others = others;
        let Some((rank, other)) = others.find(|(_, other)| *other != self) else {
            return Ok(());
        };
        let same_but_shape = Self {
            shape: self.shape,
            ..*other
        };
        let kind = match same_but_shape == *self {
            true => ErrorKind::ShapeMismatch,
            false => ErrorKind::InvalidArgument,
        };
        let name = self.operation.name();
        let text = format!(
            "{name}: the calls of the ranks differ: {self} on this rank, {other} on rank {rank}"
        );
        Err(Error::new(kind, text))
    }

    /// Returns an error if the message that rank `from` sent has another type or shape than this
    /// call.
    pub(super) fn check_received(&self, sent: &Self, from: usize) -> Result<()> {
        if (sent.dtype, sent.shape) == (self.dtype, self.shape) {
            return Ok(());
        }
        let kind = match sent.dtype == self.dtype {
            true => ErrorKind::ShapeMismatch,
            false => ErrorKind::InvalidArgument,
        };
        let text = format!("recv: rank {from} sends {sent}, this rank expects {self}");
        Err(Error::new(kind, text))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            dtype,
            shape,
        } = self;
        f.write_str(operation.name())?;
        match operation {
            Operation::AllReduce(reduce) | Operation::ReduceScatter(reduce) => {
                write!(f, " ({reduce})")?;
            }
            Operation::Reduce(reduce, root) => write!(f, " ({reduce}, to rank {root})")?,
            Operation::Broadcast(root) => write!(f, " (from rank {root})")?,
            Operation::Barrier => return Ok(()),
            _ => {}
        }
        write!(f, " of {shape} {}", dtype.name())
    }
}

/// Alignment, in elements, of the ranges that ranks reduce. Aligned ranges consist of whole cache
/// lines for every type.
const UNIT: usize = 64;

/// Returns the range of `count` elements that rank `part` of `parts` reduces.
pub(super) fn part_of(count: usize, part: usize, parts: usize) -> Range<usize> {
    let each = count.div_ceil(parts).next_multiple_of(UNIT);
    let bound = |part: usize| (part * each).min(count);
    bound(part)..bound(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for count in [0, 1, 63, 64, 65, 1000, 4097] {
            for parts in [1, 2, 3, 4, 7] {
                let ranges = (0..parts).map(|part| part_of(count, part, parts));
                let end = ranges.fold(0, |end, range| {
                    assert_eq!(range.start, end, "{count} in {parts}");
                    range.end
                });
                assert_eq!(end, count, "in {parts}");
            }
        }
    }
}
