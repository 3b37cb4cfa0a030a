//! What a rank asks for, as plain data: the ranks of a group must ask for the same.

use std::fmt;
use std::ops::Range;

use crate::array::{AnyElement, Array, DType, Shape};
use crate::error::{Error, ErrorKind, Result};

/// How the elements of several ranks become one.
///
/// On threads and over MPI, sums are computed in the order of the ranks, so that they repeat bit by
/// bit, on any machine and by either engine. `f16` and `bf16` are summed in `f32` and rounded once.
/// Integers wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduce {
    /// Their sum; not of `bool`.
    Sum,
    /// Their sum divided by the number of ranks; of floats and complex numbers.
    Mean,
    /// The largest; NaN where one is NaN (but by NCCL), true where one is true; not of complex
    /// numbers.
    Max,
    /// The smallest; NaN where one is NaN (but by NCCL), true where all are true; not of complex
    /// numbers.
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
    /// Refuses what elements of that type cannot become.
    #[track_caller]
    pub(super) fn check(self, operation: &str, dtype: DType) -> Result<()> {
        let is_complex = matches!(dtype, DType::C32 | DType::C64);
        let is_float = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
        let is_known = match self {
            Self::Sum => dtype != DType::Bool,
            Self::Mean => is_float || is_complex,
            Self::Max | Self::Min => !is_complex,
        };
        if is_known {
            return Ok(());
        }
        let text = format!("{operation}: there is no {self} of {}", dtype.name());
        Err(Error::new(ErrorKind::InvalidArgument, text))
    }
}

/// What the ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AllReduce(Reduce),
    /// To the rank with that number in the group.
    Reduce(Reduce, usize),
    /// From that rank.
    Broadcast(usize),
    AllGather,
    ReduceScatter(Reduce),
    AllToAll,
    Barrier,
    /// To that rank: of two ranks, and so no collective.
    Send(usize),
    /// From that rank.
    Receive(usize),
}

impl Operation {
    /// What the method is called.
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

/// A call of a rank: what must be the same on all ranks of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) dtype: DType,
    /// The shape of what the rank gives.
    pub(super) shape: Shape,
}

impl Call {
    /// Of an array.
    pub(super) fn of<T: AnyElement>(operation: Operation, x: &Array<T>) -> Self {
        Self {
            operation,
            dtype: T::DTYPE,
            shape: *x.layout().shape(),
        }
    }

    /// Of so many words, by which ranks tell each other something of their own.
    pub(super) fn of_words(operation: Operation, count: usize) -> Self {
        Self {
            operation,
            dtype: DType::U64,
            shape: Shape::from(count),
        }
    }

    /// What a rank gives itself where all give each other something: from where in the source, to
    /// where in the target, and how many bytes.
    pub(super) fn own_part(&self, own: usize, size: usize) -> Option<(usize, usize, usize)> {
        let bytes = self.bytes();
        let part = bytes / size;
        match self.operation {
            Operation::AllGather => Some((0, own * bytes, bytes)),
            Operation::AllToAll => Some((own * part, own * part, part)),
            _ => None,
        }
    }

    /// How many elements the rank gives.
    pub(super) fn count(&self) -> usize {
        self.shape.dims().iter().product()
    }

    /// The same in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.count() * self.dtype.size_bytes()
    }

    /// Refuses calls of other ranks that are not this one; `others` are in the order of the ranks.
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
        let text =
            format!("{name}: the ranks do not agree: here it is {self}, on rank {rank} {other}");
        Err(Error::new(kind, text))
    }

    /// Refuses to receive what is not what was sent, by `from`.
    pub(super) fn check_received(&self, sent: &Self, from: usize) -> Result<()> {
        if (sent.dtype, sent.shape) == (self.dtype, self.shape) {
            return Ok(());
        }
        let kind = match sent.dtype == self.dtype {
            true => ErrorKind::ShapeMismatch,
            false => ErrorKind::InvalidArgument,
        };
        let text = format!("recv: rank {from} sends {sent}, and this rank receives {self}");
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

/// Elements of a range that one rank reduces begin at multiples of this: whole cache lines of any
/// type.
const UNIT: usize = 64;

/// The elements of `count` that the rank `part` of `parts` reduces.
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
