//! The opcodes of pickles: plain data, and the names of refused opcodes.

use super::arena::ContainerKind;

/// An opcode for plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Proto,
    Frame,
    Stop,
    Mark,
    Pop,
    PopMark,
    Dup,
    None,
    True,
    False,
    /// An integer, signed if it has 4 bytes, otherwise unsigned.
    Int {
        bytes: usize,
    },
    Long {
        length_bytes: usize,
    },
    Float,
    Text {
        length_bytes: usize,
    },
    Bytes {
        length_bytes: usize,
    },
    Empty(ContainerKind),
    /// Collects the values above the last mark in a new container. The container is not a
    /// dictionary.
    Collect(ContainerKind),
    TupleOf(usize),
    Dict,
    Append,
    /// Appends the values above the last mark to a list or a set.
    Appends(ContainerKind),
    SetItem,
    SetItems,
    Memoize,
    Put {
        bytes: usize,
    },
    Get {
        bytes: usize,
    },
}

impl Opcode {
    /// Returns the opcode of `byte`, or `None` if it is not an opcode for plain data.
    pub(super) fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0x80 => Self::Proto,
            0x95 => Self::Frame,
            b'.' => Self::Stop,
            b'(' => Self::Mark,
            b'0' => Self::Pop,
            b'1' => Self::PopMark,
            b'2' => Self::Dup,
            b'N' => Self::None,
            0x88 => Self::True,
            0x89 => Self::False,
            b'K' => Self::Int { bytes: 1 },
            b'M' => Self::Int { bytes: 2 },
            b'J' => Self::Int { bytes: 4 },
            0x8a => Self::Long { length_bytes: 1 },
            0x8b => Self::Long { length_bytes: 4 },
            b'G' => Self::Float,
            0x8c => Self::Text { length_bytes: 1 },
            b'X' => Self::Text { length_bytes: 4 },
            0x8d => Self::Text { length_bytes: 8 },
            b'C' => Self::Bytes { length_bytes: 1 },
            b'B' => Self::Bytes { length_bytes: 4 },
            0x8e | 0x96 => Self::Bytes { length_bytes: 8 },
            b']' => Self::Empty(ContainerKind::List),
            b')' => Self::Empty(ContainerKind::Tuple),
            b'}' => Self::Empty(ContainerKind::Dict),
            0x8f => Self::Empty(ContainerKind::Set),
            b'l' => Self::Collect(ContainerKind::List),
            b't' => Self::Collect(ContainerKind::Tuple),
            0x85 => Self::TupleOf(1),
            0x86 => Self::TupleOf(2),
            0x87 => Self::TupleOf(3),
            b'd' => Self::Dict,
            0x91 => Self::Collect(ContainerKind::Set),
            b'a' => Self::Append,
            b'e' => Self::Appends(ContainerKind::List),
            0x90 => Self::Appends(ContainerKind::Set),
            b's' => Self::SetItem,
            b'u' => Self::SetItems,
            0x94 => Self::Memoize,
            b'q' => Self::Put { bytes: 1 },
            b'r' => Self::Put { bytes: 4 },
            b'h' => Self::Get { bytes: 1 },
            b'j' => Self::Get { bytes: 4 },
            _ => return None,
        })
    }
}

/// The refused opcodes. They call functions, reference objects outside of the file, or belong only
/// to older protocols.
const REFUSED: [(u8, &str); 22] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'S', "STRING"),
    (b'T', "BINSTRING"),
    (b'U', "SHORT_BINSTRING"),
    (b'V', "UNICODE"),
    (b'F', "FLOAT"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];

pub(super) fn name_of(byte: u8) -> Option<&'static str> {
    let refused = REFUSED.iter().find(|(refused, _)| *refused == byte);
    refused.map(|(_, name)| *name)
}
