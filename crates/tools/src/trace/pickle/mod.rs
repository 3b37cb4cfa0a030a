//! A reader of Python pickles of plain data, protocols 2 to 5. It reads numbers, texts, lists,
//! tuples and dictionaries. It also accepts bytes and sets, although no snapshot needs them.
//!
//! The reader executes no code. It refuses each opcode that imports or calls a function, and names
//! the opcode. Texts and wide integers stay in the file's bytes. Containers are ranges of one
//! arena. So no function recurses, and a cycle leaks no memory. Reading takes O(n log n) steps, and
//! less than 64 bytes of memory per byte of the file.
//!
//! Source: Python's `Lib/pickletools.py`, which describes each opcode.

mod arena;
mod cursor;
mod memo;
mod opcodes;
mod reader;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use arena::{ContainerKind, ContainerNode};
use cursor::Cursor;
use reader::Reader;

/// The maximum length in bytes of a key that [`Pickle::get`] finds. The maximum bounds the time of
/// a comparison.
const MAX_KEY_BYTES: usize = 32;

/// The maximum number of entries of a dictionary that stays unsorted.
const MAX_UNSORTED_ENTRIES: usize = 16;

/// A value, inline or by reference. One byte of a file can create a value, so a value has only 8
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i32),
    /// The offset of the opcode of a text, bytes, a float or a wide integer.
    At(u32),
    /// The index of a list, a tuple, a dictionary or a set.
    ContainerNode(u32),
}

const _: () = assert!(size_of::<Value>() == 8);

/// The content of a value, except for containers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// UTF-8 text. Lone surrogates are exceptions. Python encodes each of them as three bytes.
    Text(&'a [u8]),
    /// Bytes, or an integer that exceeds 128 bits.
    Unused,
}

/// The content of a file.
///
/// Invariant: each [`Value::At`] is the offset of an opcode whose operand was read. Each
/// [`Value::ContainerNode`] is an index of `nodes`.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    nodes: Vec<ContainerNode>,
    /// The elements of all containers. In a dictionary, keys and values alternate.
    items: Vec<Value>,
    root: Value,
}

/// The refusal of a file: the reason, and the offset of the refused byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) offset: usize,
    pub(super) reason: String,
}

type Parsed<T> = Result<T, Refusal>;

impl<'a> Pickle<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Parsed<Self> {
        let (arena, root) = Reader::new(bytes)?.read()?;
        let (nodes, items) = arena.finish();
        let mut pickle = Self {
            bytes,
            nodes,
            items,
            root,
        };
        pickle.sort_large_dicts();
        Ok(pickle)
    }

    pub(super) fn root(&self) -> Value {
        self.root
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Returns the memory that the values occupy, without the bytes of the file.
    pub(super) fn memory_bytes(&self) -> u64 {
        let (nodes, items) = (self.nodes.capacity(), self.items.capacity());
        (nodes * size_of::<ContainerNode>() + items * size_of::<Value>()) as u64
    }

    /// Returns the content of a value, or `None` for a container.
    pub(super) fn scalar(&self, value: Value) -> Option<Scalar<'a>> {
        match value {
            Value::None => Some(Scalar::None),
            Value::Bool(value) => Some(Scalar::Bool(value)),
            Value::Int(number) => Some(Scalar::Int(number.into())),
            Value::At(offset) => Cursor::new(self.bytes, offset as usize).scalar(),
            Value::ContainerNode(_) => None,
        }
    }

    pub(super) fn number(&self, value: Value) -> Option<i128> {
        match self.scalar(value)? {
            Scalar::Int(number) => Some(number),
            _ => None,
        }
    }

    pub(super) fn text(&self, value: Value) -> Option<&'a [u8]> {
        match self.scalar(value)? {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a text. Replaces bytes that are not UTF-8 by U+FFFD.
    pub(super) fn string(&self, value: Value) -> Option<Cow<'a, str>> {
        self.text(value).map(String::from_utf8_lossy)
    }

    /// Returns the elements of a list or a tuple.
    pub(super) fn list(&self, value: Value) -> Option<&[Value]> {
        let node = self.node(value)?;
        let is_list = matches!(node.kind, ContainerKind::List | ContainerKind::Tuple);
        is_list.then(|| &self.items[node.range()])
    }

    /// Returns the value of `key`, which has at most 32 bytes. If the dictionary contains the key
    /// several times, returns the last value.
    pub(super) fn get(&self, dict: Value, key: &str) -> Option<Value> {
        debug_assert!(key.len() <= MAX_KEY_BYTES, "{key}");
        let node = self
            .node(dict)
            .filter(|node| node.kind == ContainerKind::Dict)?;
        let (entries, _) = self.items[node.range()].as_chunks::<2>();
        let wanted = Some(key.as_bytes());
        let entry = if entries.len() <= MAX_UNSORTED_ENTRIES {
            let mut entries = entries.iter().rev();
            entries.find(|[name, _]| self.text(*name) == wanted)
        } else {
            let end = entries.partition_point(|[name, _]| self.key(*name) <= wanted);
            let last = entries[..end].last();
            last.filter(|[name, _]| self.key(*name) == wanted)
        };
        entry.map(|[_, value]| *value)
    }

    pub(super) fn is_dict(&self, value: Value) -> bool {
        self.node(value)
            .is_some_and(|node| node.kind == ContainerKind::Dict)
    }

    fn node(&self, value: Value) -> Option<&ContainerNode> {
        match value {
            Value::ContainerNode(node) => Some(&self.nodes[node as usize]),
            _ => None,
        }
    }

    /// Returns the text of a key, or `None` if it exceeds [`MAX_KEY_BYTES`].
    fn key(&self, name: Value) -> Option<&'a [u8]> {
        self.text(name).filter(|text| text.len() <= MAX_KEY_BYTES)
    }

    /// Sorts the entries of large dictionaries by key. The sort is stable.
    fn sort_large_dicts(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        for node in &self.nodes {
            let range = node.range();
            if node.kind == ContainerKind::Dict && range.len() / 2 > MAX_UNSORTED_ENTRIES {
                let (entries, _) = items[range].as_chunks_mut::<2>();
                entries.sort_by(|[a, _], [b, _]| self.key(*a).cmp(&self.key(*b)));
            }
        }
        self.items = items;
    }
}
