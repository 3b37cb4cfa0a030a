//! Columns of numbers as text: differences, as variable-length integers, in base64.
//!
//! The columns take a tenth of the decimal numbers' bytes, and twenty lines of JavaScript read
//! them.

use std::collections::HashMap;
use std::hash::Hash;

/// The largest number of a column. Larger numbers are written as this number. JavaScript adds
/// numbers below 2^53 exactly, and a difference takes one bit more for its sign.
pub(super) const LARGEST: u64 = (1 << 52) - 1;

/// Returns a column as text. A difference of 0 is followed by the number of further differences of
/// 0.
pub(super) fn encode(values: impl IntoIterator<Item = u64>) -> String {
    let mut bytes = Vec::new();
    let (mut previous, mut repeats) = (0, 0u64);
    for value in values {
        let value = value.min(LARGEST) as i64;
        if value == previous {
            repeats += 1;
            continue;
        }
        push_repeats(&mut bytes, std::mem::take(&mut repeats));
        push_difference(&mut bytes, value - previous);
        previous = value;
    }
    push_repeats(&mut bytes, repeats);
    base64(&bytes)
}

/// Returns the distinct values in the order of their first use, and for each value its index.
///
/// A program repeats itself, so an index mostly takes one byte.
pub(super) fn distinct<T: Copy + Eq + Hash>(
    values: impl IntoIterator<Item = T>,
) -> (Vec<T>, Vec<u64>) {
    let mut numbers: HashMap<T, u64> = HashMap::new();
    let mut table = Vec::new();
    let indices = values.into_iter().map(|value| {
        *numbers.entry(value).or_insert_with(|| {
            table.push(value);
            table.len() as u64 - 1
        })
    });
    let indices = indices.collect();
    (table, indices)
}

/// Writes a value that occurs `count` times more.
fn push_repeats(bytes: &mut Vec<u8>, count: u64) {
    if count > 0 {
        bytes.push(0);
        push_number(bytes, count - 1);
    }
}

/// Writes seven bits a byte, the lowest first. The eighth bit is set if more bytes follow. The sign
/// is the lowest bit.
fn push_difference(bytes: &mut Vec<u8>, difference: i64) {
    push_number(bytes, ((difference << 1) ^ (difference >> 63)) as u64);
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                let index = bits >> (18 - 6 * digit) & 63;
                text.push(DIGITS[index as usize].into());
            }
        }
    }
    text
}
