//! Reads Python's pickles of plain data, protocols 2 to 5: numbers, texts, lists, tuples and dictionaries.
//!
//! Nothing is executed: an opcode that names or calls a function is refused by its name. Values stand in an arena, so that
//! a hostile file can neither nest deeper than the stack nor make a cycle that is never freed; the arena takes memory in
//! proportion to the file.
//!
//! Source: Python's `Lib/pickletools.py`, where each opcode is described.

mod opcodes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use opcodes::{Opcode, name_of};

/// A value, or where it stands in the arena.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Node(u32),
}

/// A value of more than a few bytes.
#[derive(Debug)]
enum Node {
    Text(String),
    List(Vec<Value>),
    Tuple(Vec<Value>),
    Dict(Vec<(Value, Value)>),
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Pickle {
    nodes: Vec<Node>,
    root: Value,
}

/// Why a file is refused, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) offset: usize,
    pub(super) reason: String,
}

type Parsed<T> = Result<T, Refusal>;

impl Pickle {
    /// The value that `bytes` are.
    pub(super) fn read(bytes: &[u8]) -> Parsed<Self> {
        Reader::new(bytes).read()
    }

    pub(super) fn root(&self) -> Value {
        self.root
    }

    pub(super) fn text(&self, value: Value) -> Option<&str> {
        match self.node(value)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements of a list or a tuple.
    pub(super) fn list(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::List(items) | Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// What a dictionary has for `key`; the last, where it stands there several times.
    pub(super) fn get(&self, dict: Value, key: &str) -> Option<Value> {
        let Node::Dict(entries) = self.node(dict)? else {
            return None;
        };
        let mut entries = entries.iter().rev();
        let entry = entries.find(|(name, _)| self.text(*name) == Some(key))?;
        Some(entry.1)
    }

    pub(super) fn is_dict(&self, value: Value) -> bool {
        matches!(self.node(value), Some(Node::Dict(_)))
    }

    fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(node) => Some(&self.nodes[node as usize]),
            _ => None,
        }
    }
}

/// A file on the way.
///
/// Invariants: a mark is the height of the stack when it was set, marks never fall from one to the next, and the stack is
/// never lower than the last.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the present opcode stands.
    opcode_at: usize,
    nodes: Vec<Node>,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            opcode_at: 0,
            nodes: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        }
    }

    fn read(mut self) -> Parsed<Pickle> {
        loop {
            self.opcode_at = self.at;
            let byte = self.byte()?;
            let Some(opcode) = Opcode::of(byte) else {
                let reason = match name_of(byte) {
                    Some(name) => {
                        format!("the opcode {name}, which plain data does not need, is refused")
                    }
                    None => format!("{byte:#04x} is no opcode"),
                };
                return Err(self.refusal(reason));
            };
            if opcode == Opcode::Stop {
                let root = self.pop()?;
                return Ok(Pickle {
                    nodes: self.nodes,
                    root,
                });
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: Opcode) -> Parsed<()> {
        match opcode {
            Opcode::Proto => {
                let version = self.byte()?;
                if !(2..=5).contains(&version) {
                    return Err(self.refusal(format!("protocol {version}, and 2 to 5 are read")));
                }
                Ok(())
            }
            // The lengths of frames are of use to who reads from a pipe.
            Opcode::Frame => self.take(8).map(drop),
            Opcode::Mark => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            Opcode::Pop => self.discard(),
            Opcode::PopMark => self.above_mark().map(drop),
            Opcode::Dup => {
                let value = self.top()?;
                self.push(value)
            }
            Opcode::None => self.push(Value::None),
            Opcode::True => self.push(Value::Bool(true)),
            Opcode::False => self.push(Value::Bool(false)),
            Opcode::Int { bytes, is_signed } => {
                let number = self.number(bytes)?;
                let number = match is_signed {
                    true => i64::from(number as i32),
                    false => number as i64,
                };
                self.push(Value::Int(number))
            }
            Opcode::Long { length_bytes } => {
                let length = self.number(length_bytes)? as usize;
                let number = self.long(length)?;
                self.push(Value::Int(number))
            }
            Opcode::Float => {
                let bytes = self.take(8)?.first_chunk().copied().unwrap_or_default();
                self.push(Value::Float(f64::from_be_bytes(bytes)))
            }
            Opcode::Text { length_bytes } => {
                let length = self.number(length_bytes)?;
                let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
                // Python writes a lone surrogate as three bytes that are no UTF-8.
                let text = String::from_utf8_lossy(bytes).into_owned();
                self.push_node(Node::Text(text))
            }
            Opcode::EmptyList => self.push_node(Node::List(Vec::new())),
            Opcode::EmptyTuple => self.push_node(Node::Tuple(Vec::new())),
            Opcode::EmptyDict => self.push_node(Node::Dict(Vec::new())),
            Opcode::List => {
                let items = self.above_mark()?;
                self.push_node(Node::List(items))
            }
            Opcode::Tuple => {
                let items = self.above_mark()?;
                self.push_node(Node::Tuple(items))
            }
            Opcode::TupleOf(count) => {
                let mut items = Vec::with_capacity(count);
                for _ in 0..count {
                    items.push(self.pop()?);
                }
                items.reverse();
                self.push_node(Node::Tuple(items))
            }
            Opcode::Dict => {
                let items = self.above_mark()?;
                let entries = self.pairs(&items)?;
                self.push_node(Node::Dict(entries))
            }
            Opcode::Append => {
                let item = self.pop()?;
                self.append(&[item])
            }
            Opcode::Appends => {
                let items = self.above_mark()?;
                self.append(&items)
            }
            Opcode::SetItem => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])
            }
            Opcode::SetItems => {
                let items = self.above_mark()?;
                self.set(&items)
            }
            Opcode::Memoize => {
                let number = self.memo.len() as u64;
                self.remember(number)
            }
            Opcode::Put { bytes } => {
                let number = self.number(bytes)?;
                self.remember(number)
            }
            Opcode::Get { bytes } => {
                let number = self.number(bytes)?;
                let Some(&value) = self.memo.get(&number) else {
                    return Err(self.refusal(format!("nothing was remembered as number {number}")));
                };
                self.push(value)
            }
            Opcode::Stop => Ok(()),
        }
    }

    /// Lists grow in place: who remembered one sees what is added.
    fn append(&mut self, items: &[Value]) -> Parsed<()> {
        match self.top_node()? {
            Node::List(list) => {
                list.extend_from_slice(items);
                Ok(())
            }
            _ => Err(self.refusal("something is added to what is no list".into())),
        }
    }

    fn set(&mut self, items: &[Value]) -> Parsed<()> {
        let entries = self.pairs(items)?;
        match self.top_node()? {
            Node::Dict(dict) => {
                dict.extend(entries);
                Ok(())
            }
            _ => Err(self.refusal("a key is set of what is no dictionary".into())),
        }
    }

    /// Keys and values in turns as pairs.
    fn pairs(&self, items: &[Value]) -> Parsed<Vec<(Value, Value)>> {
        match items.as_chunks() {
            (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
            _ => Err(self.refusal("a key has no value".into())),
        }
    }

    fn remember(&mut self, number: u64) -> Parsed<()> {
        let value = self.top()?;
        self.memo.insert(number, value);
        Ok(())
    }

    fn push(&mut self, value: Value) -> Parsed<()> {
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Parsed<()> {
        let number = u32::try_from(self.nodes.len());
        let number = number.map_err(|_| self.refusal("more than 2^32 values".into()))?;
        self.nodes.push(node);
        self.push(Value::Node(number))
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Parsed<Value> {
        let above = &self.stack[self.floor()..];
        let top = above.last().copied();
        top.ok_or_else(|| self.refusal("there is no value on the stack".into()))
    }

    fn top_node(&mut self) -> Parsed<&mut Node> {
        match self.top()? {
            Value::Node(number) => Ok(&mut self.nodes[number as usize]),
            _ => Err(self.refusal("a number is used as a list or a dictionary".into())),
        }
    }

    fn pop(&mut self) -> Parsed<Value> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    /// Takes off the last value, or the mark that stands there.
    fn discard(&mut self) -> Parsed<()> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Takes off what stands above the last mark, and the mark.
    fn above_mark(&mut self) -> Parsed<Vec<Value>> {
        let Some(mark) = self.marks.pop() else {
            return Err(self.refusal("there is no mark on the stack".into()));
        };
        Ok(self.stack.split_off(mark))
    }

    fn byte(&mut self) -> Parsed<u8> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            return Err(Refusal {
                offset: self.bytes.len(),
                reason: "the file is cut short".into(),
            });
        };
        self.at += count;
        Ok(taken)
    }

    /// An unsigned number of up to eight bytes, the lowest first.
    fn number(&mut self, count: usize) -> Parsed<u64> {
        let bytes = self.take(count)?.iter().rev();
        Ok(bytes.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// A signed number of `count` bytes.
    fn long(&mut self, count: usize) -> Parsed<i64> {
        if count > 8 {
            return Err(self.refusal(format!("an integer of {count} bytes, and 8 are read")));
        }
        if count == 0 {
            return Ok(0);
        }
        let unused = 64 - 8 * count as u32;
        Ok((self.number(count)? << unused) as i64 >> unused)
    }

    fn refusal(&self, reason: String) -> Refusal {
        Refusal {
            offset: self.opcode_at,
            reason,
        }
    }
}
