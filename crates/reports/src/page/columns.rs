//! A compact text encoding of integer columns: differences, as variable-length integers, in base64.
//!
//! A column has a tenth of the size of decimal numbers. Twenty lines of JavaScript decode it.

use std::collections::HashMap;
use std::hash::Hash;

/// The largest value of a column. Larger values are clamped. JavaScript adds integers below 2^53
/// exactly, and a difference needs one bit more for its sign.
pub(super) const LARGEST: u64 = (1 << 52) - 1;

/// Encodes a column as text. Runs of equal values are run-length encoded: a difference of 0
/// precedes the number of further zero differences.
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

/// Returns the distinct values in order of their first use, and the index of each value.
///
/// Programs are repetitive, so most indices need only one byte.
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

/// Writes `count` repeats of the previous value.
fn push_repeats(bytes: &mut Vec<u8>, count: u64) {
    if count > 0 {
        bytes.push(0);
        push_number(bytes, count - 1);
    }
}

/// Writes a difference as a zigzag-encoded variable-length integer. Each byte has seven bits, the
/// lowest first. If more bytes follow, the eighth bit is set.
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
