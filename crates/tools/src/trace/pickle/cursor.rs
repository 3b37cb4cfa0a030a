//! A cursor that reads the operands of opcodes.

use super::Scalar;
use super::opcodes::Opcode;

#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn file_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Reads `count` bytes. Returns `None` if fewer bytes remain.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// Reads an unsigned little-endian integer of up to 8 bytes.
    pub(super) fn number(&mut self, count: usize) -> Option<u64> {
        let bytes = self.take(count)?.iter().rev();
        Some(bytes.fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads a signed little-endian integer of up to 16 bytes.
    pub(super) fn signed(&mut self, count: usize) -> Option<i128> {
        let bytes = self.take(count)?;
        let sign = bytes.last().map_or(0, |&last| i128::from(last as i8 >> 7));
        let bytes = bytes.iter().rev();
        Some(bytes.fold(sign, |number, &byte| number << 8 | i128::from(byte)))
    }

    pub(super) fn float(&mut self) -> Option<f64> {
        let bytes = self.take(8)?.first_chunk().copied()?;
        Some(f64::from_be_bytes(bytes))
    }

    /// Reads a length, and the text of this length after it.
    pub(super) fn text(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(length_bytes)?;
        self.take(usize::try_from(length).ok()?)
    }

    /// Reads an opcode that pushes a text, bytes, a float or an integer, with its operand.
    pub(super) fn scalar(&mut self) -> Option<Scalar<'a>> {
        match Opcode::of(self.byte()?)? {
            Opcode::Text { length_bytes } => self.text(length_bytes).map(Scalar::Text),
            Opcode::Bytes { .. } => Some(Scalar::Unused),
            Opcode::Float => self.float().map(Scalar::Float),
            Opcode::Long { length_bytes } => {
                let length = self.number(length_bytes)? as usize;
                if length > size_of::<i128>() {
                    return Some(Scalar::Unused);
                }
                self.signed(length).map(Scalar::Int)
            }
            _ => None,
        }
    }
}
