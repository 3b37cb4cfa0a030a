//! A decoder of the page's columns.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Decodes a column. Shares no code with the encoder.
pub(crate) fn decode(text: &str) -> Vec<u64> {
    let mut values = Vec::new();
    let (mut value, mut zigzag, mut shift) = (0i64, 0u64, 0);
    let mut is_repeated = false;
    for byte in STANDARD.decode(text).unwrap() {
        zigzag |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte >= 0x80 {
            continue;
        }
        if is_repeated {
            values.extend((0..=zigzag).map(|_| value as u64));
            is_repeated = false;
        } else if zigzag == 0 {
            is_repeated = true;
        } else {
            let magnitude = (zigzag >> 1) as i64;
            value += if zigzag & 1 == 0 {
                magnitude
            } else {
                -magnitude - 1
            };
            values.push(value as u64);
        }
        (zigzag, shift) = (0, 0);
    }
    values
}
