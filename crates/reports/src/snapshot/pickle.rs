//! Writes pickles of protocol 4, with only the opcodes that PyTorch's viewer supports.

use std::io::{self, Write};

mod opcode {
    pub(super) const APPENDS: u8 = b'e';
    pub(super) const BINGET: u8 = b'h';
    pub(super) const BININT: u8 = b'J';
    pub(super) const BININT1: u8 = b'K';
    pub(super) const BININT2: u8 = b'M';
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const EMPTY_LIST: u8 = b']';
    pub(super) const LONG1: u8 = 0x8a;
    pub(super) const LONG_BINGET: u8 = b'j';
    pub(super) const MARK: u8 = b'(';
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const NEWTRUE: u8 = 0x88;
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const STOP: u8 = b'.';
}

/// The maximum number of items per `APPENDS`. The viewer passes the items as arguments of one call,
/// and the number of arguments is limited. Python's pickler also writes batches of 1000 items.
const BATCH: usize = 1000;

/// The buffer size from which on the buffer is written.
const BUFFER_BYTES: usize = 1 << 16;

/// The maximum number. Larger numbers are clamped to this maximum. The viewer sums signed numbers
/// of at most 8 bytes. It parses longer numbers as another type, and fails.
pub(super) const GREATEST: u64 = i64::MAX as u64;

/// The memo index of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memo(u32);

/// An incomplete list, with the number of items in its current batch.
#[derive(Debug)]
pub(super) struct List(usize);

/// An incomplete pickle. Values are written in nesting order.
pub(super) struct Pickle<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    memoised: u32,
}

impl<'a> Pickle<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 1024);
        buffer.extend([opcode::PROTO, 4]);
        Self {
            out,
            buffer,
            memoised: 0,
        }
    }

    /// Writes the end of the pickle, and flushes the output.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.buffer.push(opcode::STOP);
        self.out.write_all(&self.buffer)?;
        self.out.flush()
    }

    /// If the buffer is full, writes it to the output.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Begins a dictionary. The caller then writes keys and values alternately.
    pub(super) fn begin_dict(&mut self) {
        self.buffer.extend([opcode::EMPTY_DICT, opcode::MARK]);
    }

    pub(super) fn end_dict(&mut self) {
        self.buffer.push(opcode::SETITEMS);
    }

    /// Begins a list. The caller calls [`item`](Self::item) before it writes each item.
    pub(super) fn begin_list(&mut self) -> List {
        self.buffer.extend([opcode::EMPTY_LIST, opcode::MARK]);
        List(0)
    }

    pub(super) fn item(&mut self, list: &mut List) {
        if list.0 == BATCH {
            self.buffer.extend([opcode::APPENDS, opcode::MARK]);
            list.0 = 0;
        }
        list.0 += 1;
    }

    pub(super) fn end_list(&mut self, _: List) {
        self.buffer.push(opcode::APPENDS);
    }

    pub(super) fn text(&mut self, text: &str) {
        let length = text.len();
        match u8::try_from(length) {
            Ok(length) => self.buffer.extend([opcode::SHORT_BINUNICODE, length]),
            Err(_) => self.operand(opcode::BINUNICODE, &(length as u32).to_le_bytes()),
        }
        self.buffer.extend(text.as_bytes());
    }

    pub(super) fn yes(&mut self) {
        self.buffer.push(opcode::NEWTRUE);
    }

    /// Writes a number in its shortest encoding.
    pub(super) fn number(&mut self, number: u64) {
        let number = number.min(GREATEST);
        let bytes = number.to_le_bytes();
        match number {
            0..=0xff => self.operand(opcode::BININT1, &bytes[..1]),
            0x100..=0xffff => self.operand(opcode::BININT2, &bytes[..2]),
            0x1_0000..=0x7fff_ffff => self.operand(opcode::BININT, &bytes[..4]),
            _ => {
                // The encoding is two's complement, so the highest bit of the last byte is the
                // sign.
                let significant_bits = 64 - number.leading_zeros();
                let length = significant_bits as usize / 8 + 1;
                self.operand(opcode::LONG1, &[length as u8]);
                self.buffer.extend(&bytes[..length]);
            }
        }
    }

    /// Memoises the last written value.
    pub(super) fn memoise(&mut self) -> Memo {
        self.buffer.push(opcode::MEMOIZE);
        self.memoised += 1;
        Memo(self.memoised - 1)
    }

    /// Writes a reference to a memoised value.
    pub(super) fn again(&mut self, Memo(number): Memo) {
        match u8::try_from(number) {
            Ok(number) => self.operand(opcode::BINGET, &[number]),
            Err(_) => self.operand(opcode::LONG_BINGET, &number.to_le_bytes()),
        }
    }

    fn operand(&mut self, opcode: u8, operand: &[u8]) {
        self.buffer.push(opcode);
        self.buffer.extend(operand);
    }
}
