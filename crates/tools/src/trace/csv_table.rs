//! CSV files with a header line. They are read line by line in constant memory.
//!
//! Lines have Unix or Windows line ends. Blank lines and a leading byte order mark are skipped.
//! White space around a field is trimmed. A field may be in double quotes, in which a doubled quote
//! represents one quote. A quoted field must end on its line, so that each error has one line
//! number.

use std::fmt::Display;
use std::io::{BufRead, Read};
use std::mem;
use std::ops::Range;

use super::io_error;
use crate::error::{Error, ErrorCode, Result};

/// The maximum length of a line. Longer lines are rejected, so that a file without line ends cannot
/// exhaust the memory.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The maximum number of fields. Rows with more fields are rejected. Each field needs a `Range` of
/// 16 bytes, but may take only one byte of the line.
const MAX_COLUMNS: usize = 4096;

/// The byte order mark that some programs write before UTF-8 text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A CSV file, read row by row.
///
/// Invariant: `fields` are ranges of `line`, one per column of `header`.
#[derive(Debug)]
pub(crate) struct CsvTable<R> {
    name: String,
    input: R,
    header: Vec<String>,
    /// The current row. Quotes around fields are removed.
    line: String,
    fields: Vec<Range<usize>>,
    /// The line number of the current row, counted from 1.
    pub(crate) line_number: u64,
}

impl<R: BufRead> CsvTable<R> {
    /// Creates a table, and reads its header. Errors refer to the input as `name`.
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io) if the header is missing or cannot be read.
    pub(crate) fn new(name: impl Display, input: R) -> Result<Self> {
        let mut table = Self {
            name: name.to_string(),
            input,
            header: Vec::new(),
            line: String::new(),
            fields: Vec::new(),
            line_number: 0,
        };
        if !table.read_line()? {
            let text = format!("{}: no header: the file is empty", table.name);
            return Err(Error::new(ErrorCode::Content, text));
        }
        table.split()?;
        let names = table.fields.iter().map(|field| &table.line[field.clone()]);
        table.header = names.map(str::to_owned).collect();
        Ok(table)
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    pub(crate) fn columns<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N]> {
        self.columns_by(names, [&[]; N])
    }

    /// Returns the indices of the named columns. If a name is missing, an alias in `others` is
    /// used.
    pub(crate) fn columns_by<const N: usize>(
        &self,
        names: [&str; N],
        others: [&[&str]; N],
    ) -> Result<[usize; N]> {
        let mut columns = [0; N];
        for (column, (name, others)) in columns.iter_mut().zip(names.iter().zip(others)) {
            let is_named = |title: &str| title == *name || others.contains(&title);
            let mut found = (0..).zip(&self.header).filter(|(_, title)| is_named(title));
            let Some((first, _)) = found.next() else {
                let expected = names.join(",");
                return Err(
                    self.row_error(format!("no column {name}, expected the columns {expected}"))
                );
            };
            if let Some((second, _)) = found.next() {
                return Err(self.field_error(second, "a duplicate column"));
            }
            *column = first;
        }
        Ok(columns)
    }

    pub(crate) fn title(&self, column: usize) -> &str {
        &self.header[column]
    }

    /// Reads the next row. Returns false at the end of the file.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        if !self.read_line()? {
            return Ok(false);
        }
        self.split()?;
        let (found, expected) = (self.fields.len(), self.header.len());
        if found != expected {
            return Err(self.row_error(format!("{found} columns, the header has {expected}")));
        }
        Ok(true)
    }

    #[inline]
    pub(crate) fn text(&self, column: usize) -> &str {
        &self.line[self.fields[column].clone()]
    }

    /// Parses a field of the current row as a whole number below 2⁶³.
    pub(crate) fn number(&self, column: usize) -> Result<u64> {
        let text = self.text(column);
        let reason = match text.parse::<i64>() {
            // Rust also parses "+1" and "-0".
            Ok(number) if text.as_bytes()[0].is_ascii_digit() => return Ok(number as u64),
            _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                "2^63 or more"
            }
            Ok(_) if text.starts_with('-') => "negative",
            _ => "not a whole number",
        };
        Err(self.value_error(column, reason))
    }

    /// Creates the error for an invalid value in the current row.
    pub(crate) fn value_error(&self, column: usize, what: impl Display) -> Error {
        self.field_error(column, format!("\"{}\" is {what}", self.text(column)))
    }

    /// Creates the error for a field of the current row.
    pub(crate) fn field_error(&self, column: usize, reason: impl Display) -> Error {
        let place = match self.header.get(column) {
            Some(name) => format!("column {} ({name})", column + 1),
            None => format!("column {}", column + 1),
        };
        self.row_error(format!("{place}: {reason}"))
    }

    fn row_error(&self, reason: impl Display) -> Error {
        let text = format!("{}:{}: {reason}", self.name, self.line_number);
        Error::new(ErrorCode::Content, text)
    }

    /// Reads the next nonblank line. Returns false at the end of the file.
    fn read_line(&mut self) -> Result<bool> {
        loop {
            let mut bytes = mem::take(&mut self.line).into_bytes();
            bytes.clear();
            let mut bounded = (&mut self.input).take(MAX_LINE_BYTES + 1);
            let read = bounded.read_until(b'\n', &mut bytes);
            let read = read.map_err(|error| io_error(&self.name, error))?;
            if read == 0 {
                return Ok(false);
            }
            self.line_number += 1;
            if read as u64 > MAX_LINE_BYTES {
                return Err(self.row_error("a line of more than 1 MiB"));
            }
            self.line = String::from_utf8(bytes).map_err(|error| {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let column = valid.iter().filter(|&&byte| byte == b',').count();
                self.field_error(column, "not UTF-8")
            })?;
            if self.line_number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.remove(0);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn split(&mut self) -> Result<()> {
        self.fields.clear();
        // The count includes commas in quotes, so it bounds the number of fields.
        if self.line.bytes().filter(|&byte| byte == b',').count() >= MAX_COLUMNS {
            return Err(self.row_error(format!("more than {MAX_COLUMNS} columns")));
        }
        if self.line.contains('"') {
            return self.split_quoted();
        }
        let mut begin = 0;
        for field in self.line.split(',') {
            let end = begin + field.len();
            let trimmed = begin + (field.len() - field.trim_ascii_start().len());
            self.fields
                .push(trimmed..trimmed + field.trim_ascii().len());
            begin = end + 1;
        }
        Ok(())
    }

    /// Splits a line with quotes. Rewrites the line without the quotes.
    fn split_quoted(&mut self) -> Result<()> {
        let line = mem::take(&mut self.line);
        let mut rest = Some(&*line);
        while let Some(text) = rest {
            let begin = self.line.len();
            let text = text.trim_ascii_start();
            let after = match text.strip_prefix('"') {
                Some(quoted) => self.unquote(quoted)?,
                None => {
                    let (field, after) = text.split_at(text.find(',').unwrap_or(text.len()));
                    self.line.push_str(field.trim_ascii_end());
                    after
                }
            };
            self.fields.push(begin..self.line.len());
            rest = after.strip_prefix(',');
        }
        Ok(())
    }

    /// Appends a quoted field to the line. Returns the text after its closing quote.
    fn unquote<'a>(&mut self, quoted: &'a str) -> Result<&'a str> {
        let column = self.fields.len();
        let mut rest = quoted;
        loop {
            let Some((part, after)) = rest.split_once('"') else {
                return Err(self.field_error(column, "an unclosed quote"));
            };
            self.line.push_str(part);
            match after.strip_prefix('"') {
                Some(_) => self.line.push('"'),
                None => {
                    let after = after.trim_ascii_start();
                    if !after.is_empty() && !after.starts_with(',') {
                        return Err(self.field_error(column, "text after the closing quote"));
                    }
                    return Ok(after);
                }
            }
            rest = &after[1..];
        }
    }
}
