//! The header of a message, which identifies its call.

use crate::array::{DType, Shape};
use crate::collective::call::{Call, Operation, Reduce};
use crate::error::{Error, ErrorKind, Result};

/// The number of words in a header. The last words are the lengths of the axes.
pub(super) const HEADER_WORDS: usize = 16;

/// The maximum number of axes of a shape.
const AXES: usize = 8;

/// The group, number and description of a call that a rank has reached, or that a message belongs
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHeader {
    pub(super) group: u64,
    /// The sequence number of the call in the group.
    pub(super) number: u64,
    pub(super) call: Call,
}

/// The element types, indexed by their code in a header.
const TYPES: [DType; DType::COUNT] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::Bf16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::C32,
    DType::C64,
];

/// The reductions, indexed by their code in a header.
const REDUCTIONS: [Reduce; 4] = [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min];

impl MessageHeader {
    pub(super) fn words(&self) -> [u64; HEADER_WORDS] {
        let Call {
            operation,
            dtype,
            shape,
        } = self.call;
        let (kind, reduce, rank) = match operation {
            Operation::AllReduce(reduce) => (0, reduce as u64, 0),
            Operation::Reduce(reduce, root) => (1, reduce as u64, root as u64),
            Operation::Broadcast(root) => (2, 0, root as u64),
            Operation::AllGather => (3, 0, 0),
            Operation::ReduceScatter(reduce) => (4, reduce as u64, 0),
            Operation::AllToAll => (5, 0, 0),
            Operation::Barrier => (6, 0, 0),
            Operation::Send(to) => (7, 0, to as u64),
            Operation::Receive(from) => (8, 0, from as u64),
        };
        let mut words = [0; HEADER_WORDS];
        let place = [self.group, self.number, kind, reduce, rank, dtype as u64];
        words[..place.len()].copy_from_slice(&place);
        words[HEADER_WORDS - AXES - 1] = shape.ndim() as u64;
        for (word, length) in words[HEADER_WORDS - AXES..].iter_mut().zip(shape.dims()) {
            *word = *length as u64;
        }
        words
    }

    /// Decodes the header of another rank.
    pub(super) fn of(words: &[u64]) -> Result<Self> {
        Self::read(words).ok_or_else(|| {
            let text = "a rank sent a header that this rank cannot read: run one version of the \
                        library on all ranks";
            Error::new(ErrorKind::Communication, text)
        })
    }

    fn read(words: &[u64]) -> Option<Self> {
        let words: &[u64; HEADER_WORDS] = words.get(..HEADER_WORDS)?.try_into().ok()?;
        let [group, number, kind, reduce, rank, dtype, ..] = *words;
        let reduce = *REDUCTIONS.get(reduce as usize)?;
        let rank = rank as usize;
        let operation = match kind {
            0 => Operation::AllReduce(reduce),
            1 => Operation::Reduce(reduce, rank),
            2 => Operation::Broadcast(rank),
            3 => Operation::AllGather,
            4 => Operation::ReduceScatter(reduce),
            5 => Operation::AllToAll,
            6 => Operation::Barrier,
            7 => Operation::Send(rank),
            8 => Operation::Receive(rank),
            _ => return None,
        };
        let axes = words[HEADER_WORDS - AXES - 1] as usize;
        let lengths = words[HEADER_WORDS - AXES..].get(..axes)?;
        let lengths: Vec<usize> = lengths.iter().map(|length| *length as usize).collect();
        let call = Call {
            operation,
            dtype: *TYPES.get(dtype as usize)?,
            shape: Shape::from(lengths),
        };
        Some(Self {
            group,
            number,
            call,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_as_they_were_encoded() {
        let operations = REDUCTIONS
            .into_iter()
            .flat_map(|reduce| {
                [
                    Operation::AllReduce(reduce),
                    Operation::Reduce(reduce, 3),
                    Operation::ReduceScatter(reduce),
                ]
            })
            .chain([
                Operation::Broadcast(2),
                Operation::AllGather,
                Operation::AllToAll,
                Operation::Barrier,
                Operation::Send(1),
                Operation::Receive(7),
            ]);
        for operation in operations {
            for (number, dtype) in TYPES.into_iter().enumerate() {
                assert_eq!(dtype as usize, number);
                for shape in [Shape::from([]), Shape::from(5), Shape::from([2; 8])] {
                    let header = MessageHeader {
                        group: 1 << 41,
                        number: number as u64,
                        call: Call {
                            operation,
                            dtype,
                            shape,
                        },
                    };
                    assert_eq!(MessageHeader::of(&header.words()).unwrap(), header);
                }
            }
        }
    }

    #[test]
    fn refuses_words_that_are_no_header() {
        for words in [vec![], vec![0; HEADER_WORDS - 1], vec![9; HEADER_WORDS]] {
            let error = MessageHeader::of(&words).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Communication);
        }
    }
}
