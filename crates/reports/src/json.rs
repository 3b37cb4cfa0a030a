//! Text in JSON.

use std::fmt::{self, Write};

/// A value that is displayed as a JSON string, with quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Quoted<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_char('"')?;
        write!(Escaping(out), "{}", self.0)?;
        out.write_char('"')
    }
}

/// A writer that escapes text for a JSON string.
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let must_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        let mut written = 0;
        // The escaped bytes are ASCII, so they never occur inside of a multi-byte character.
        for (at, byte) in text
            .bytes()
            .enumerate()
            .filter(|(_, byte)| must_escape(*byte))
        {
            self.0.write_str(&text[written..at])?;
            match byte {
                b'"' | b'\\' => write!(self.0, "\\{}", char::from(byte))?,
                _ => write!(self.0, "\\u{byte:04x}")?,
            }
            written = at + 1;
        }
        self.0.write_str(&text[written..])
    }
}
