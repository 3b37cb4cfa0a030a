//! The stack machine that executes the opcodes of a file.

use super::arena::{Arena, ContainerKind};
use super::cursor::Cursor;
use super::memo::Memo;
use super::opcodes::{Opcode, name_of};
use super::{Parsed, Refusal, Value};

/// The state of the machine while it reads a file.
///
/// Invariant: a mark is the height of the stack when the mark was set. Marks are in ascending
/// order, and the stack is at least as high as the last mark. The file has fewer than 2³² bytes.
pub(super) struct Reader<'a> {
    cursor: Cursor<'a>,
    opcode_at: usize,
    arena: Arena,
    stack: Vec<Value>,
    marks: Vec<u32>,
    memo: Memo,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Parsed<Self> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Refusal {
                offset: u32::MAX as usize,
                reason: "the file has 4 GiB or more".into(),
            });
        }
        Ok(Self {
            cursor: Cursor::new(bytes, 0),
            opcode_at: 0,
            arena: Arena::default(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Memo::default(),
        })
    }

    /// Reads the whole file. Returns its containers, and the value at the top of the stack.
    pub(super) fn read(mut self) -> Parsed<(Arena, Value)> {
        loop {
            self.opcode_at = self.cursor.at;
            let byte = self.operand(Cursor::byte)?;
            let Some(opcode) = Opcode::of(byte) else {
                let reason = match name_of(byte) {
                    Some(name) => {
                        format!("the opcode {name}, which plain data does not need, is refused")
                    }
                    None => format!("{byte:#04x} is not an opcode"),
                };
                return Err(self.refusal(reason));
            };
            if opcode == Opcode::Stop {
                let root = self.pop()?;
                return Ok((self.arena, root));
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: Opcode) -> Parsed<()> {
        match opcode {
            Opcode::Proto => self.protocol()?,
            // A frame length is useful only when a pipe is read.
            Opcode::Frame => drop(self.operand(|cursor| cursor.take(8))?),
            Opcode::Mark => self.marks.push(self.stack.len() as u32),
            Opcode::Pop => self.discard()?,
            Opcode::PopMark => {
                let mark = self.pop_mark()?;
                self.stack.truncate(mark);
            }
            Opcode::Dup => {
                let value = self.top()?;
                self.stack.push(value);
            }
            Opcode::None => self.stack.push(Value::None),
            Opcode::True => self.stack.push(Value::Bool(true)),
            Opcode::False => self.stack.push(Value::Bool(false)),
            Opcode::Int { bytes } => {
                let number = self.operand(|cursor| cursor.number(bytes))?;
                self.stack.push(Value::Int(number as u32 as i32));
            }
            Opcode::Long { length_bytes } => self.long(length_bytes)?,
            Opcode::Float => {
                self.operand(Cursor::float)?;
                self.push_in_place();
            }
            Opcode::Text { length_bytes } | Opcode::Bytes { length_bytes } => {
                self.operand(|cursor| cursor.text(length_bytes))?;
                self.push_in_place();
            }
            Opcode::Empty(kind) => self.push_node(kind, self.stack.len()),
            Opcode::Collect(kind) => {
                let mark = self.pop_mark()?;
                self.push_node(kind, mark);
            }
            Opcode::TupleOf(count) => {
                let from = self.last(count)?;
                self.push_node(ContainerKind::Tuple, from);
            }
            Opcode::Dict => {
                let mark = self.pop_mark()?;
                self.check_pairs(mark)?;
                self.push_node(ContainerKind::Dict, mark);
            }
            Opcode::Append => {
                let from = self.last(1)?;
                self.append(ContainerKind::List, from)?;
            }
            Opcode::Appends(kind) => {
                let mark = self.pop_mark()?;
                self.append(kind, mark)?;
            }
            Opcode::SetItem => {
                let from = self.last(2)?;
                self.set(from)?;
            }
            Opcode::SetItems => {
                let mark = self.pop_mark()?;
                self.set(mark)?;
            }
            Opcode::Memoize => {
                // The file has more bytes than memoised values, so the cast does not truncate.
                let number = self.memo.len() as u32;
                self.remember(number)?;
            }
            Opcode::Put { bytes } => {
                let number = self.operand(|cursor| cursor.number(bytes))?;
                self.remember(number as u32)?;
            }
            Opcode::Get { bytes } => {
                let number = self.operand(|cursor| cursor.number(bytes))?;
                let Some(value) = self.memo.get(number as u32) else {
                    return Err(self.refusal(format!("the memo has no value with number {number}")));
                };
                self.stack.push(value);
            }
            Opcode::Stop => {}
        }
        Ok(())
    }

    fn protocol(&mut self) -> Parsed<()> {
        let version = self.operand(Cursor::byte)?;
        if (2..=5).contains(&version) {
            return Ok(());
        }
        Err(self.refusal(format!("protocol {version}, expected 2 to 5")))
    }

    /// Pushes an integer of arbitrary length.
    fn long(&mut self, length_bytes: usize) -> Parsed<()> {
        let length = self.operand(|cursor| cursor.number(length_bytes))? as usize;
        let bytes = self.operand(|cursor| cursor.take(length))?;
        let small = Cursor::new(bytes, 0).signed(length.min(5));
        match small.map(i32::try_from) {
            Some(Ok(number)) if length <= 5 => self.stack.push(Value::Int(number)),
            _ => self.push_in_place(),
        }
        Ok(())
    }

    /// Appends to a container of the given kind. The container grows in place, so all references to
    /// it include the new elements.
    fn append(&mut self, kind: ContainerKind, from: usize) -> Parsed<()> {
        let number = self.container(from)?;
        if self.arena.kind(number) != kind {
            let kind = if kind == ContainerKind::List {
                "list"
            } else {
                "set"
            };
            return Err(self.refusal(format!(
                "an element is appended to a value that is not a {kind}"
            )));
        }
        self.arena.extend(number, &self.stack[from..]);
        self.stack.truncate(from);
        Ok(())
    }

    fn set(&mut self, from: usize) -> Parsed<()> {
        self.check_pairs(from)?;
        let number = self.container(from)?;
        if self.arena.kind(number) != ContainerKind::Dict {
            return Err(self.refusal("a key is set on a value that is not a dictionary".into()));
        }
        self.arena.extend(number, &self.stack[from..]);
        self.stack.truncate(from);
        Ok(())
    }

    /// Checks that the values from `from` on are pairs of a key and a value.
    fn check_pairs(&self, from: usize) -> Parsed<()> {
        if (self.stack.len() - from).is_multiple_of(2) {
            return Ok(());
        }
        Err(self.refusal("a key has no value".into()))
    }

    fn remember(&mut self, number: u32) -> Parsed<()> {
        let value = self.top()?;
        self.memo.put(number, value);
        Ok(())
    }

    /// Pushes a reference to the current opcode.
    fn push_in_place(&mut self) {
        self.stack.push(Value::At(self.opcode_at as u32));
    }

    /// Moves the values from `from` on into a new container, and pushes this container.
    fn push_node(&mut self, kind: ContainerKind, from: usize) {
        let number = self.arena.push(kind, &self.stack[from..]);
        self.stack.truncate(from);
        self.stack.push(Value::ContainerNode(number));
    }

    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |&mark| mark as usize)
    }

    /// Returns the stack index of the first of the last `count` values. All of them must be above
    /// the last mark.
    fn last(&self, count: usize) -> Parsed<usize> {
        let from = self.stack.len().checked_sub(count);
        let from = from.filter(|&from| from >= self.floor());
        from.ok_or_else(|| self.refusal("there is no value on the stack".into()))
    }

    fn top(&self) -> Parsed<Value> {
        Ok(self.stack[self.last(1)?])
    }

    /// Returns the index of the container directly below `from`.
    fn container(&self, from: usize) -> Parsed<u32> {
        let below = from.checked_sub(1).filter(|&below| below >= self.floor());
        match below.map(|below| self.stack[below]) {
            Some(Value::ContainerNode(number)) => Ok(number),
            Some(_) => Err(self.refusal("a number is used as a list or a dictionary".into())),
            None => Err(self.refusal("there is no value on the stack".into())),
        }
    }

    fn pop(&mut self) -> Parsed<Value> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    /// Removes the top value, or the mark at the top.
    fn discard(&mut self) -> Parsed<()> {
        if self
            .marks
            .last()
            .is_some_and(|&mark| mark as usize == self.stack.len())
        {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Removes the last mark. Returns the stack height at this mark.
    fn pop_mark(&mut self) -> Parsed<usize> {
        let mark = self.marks.pop();
        let mark = mark.ok_or_else(|| self.refusal("there is no mark on the stack".into()))?;
        Ok(mark as usize)
    }

    /// Reads an operand. Refuses a file that ends inside of the operand.
    fn operand<T>(&mut self, read: impl FnOnce(&mut Cursor<'a>) -> Option<T>) -> Parsed<T> {
        read(&mut self.cursor).ok_or_else(|| Refusal {
            offset: self.cursor.file_bytes(),
            reason: "the file is cut short".into(),
        })
    }

    fn refusal(&self, reason: String) -> Refusal {
        Refusal {
            offset: self.opcode_at,
            reason,
        }
    }
}
