//! MiniMalloc's columns `alignment` and `gaps`.
//!
//! A gap `first-end` is a range of steps in which the buffer uses none of its bytes. In a gap
//! `first-end@start:stop`, the buffer uses only the bytes `start:stop`. Spaces separate gaps.
//!
//! Source: `src/converter.cc` of google/minimalloc.

use std::fmt::Write;
use std::io::BufRead;
use std::ops::Range;

use crate::plan::{BufferInterval, ConstrainedBuffer, Gap};

use super::csv_table::CsvTable;
use super::lifetimes::Lifetime;
use crate::error::Result;

#[derive(Clone, Copy, Debug)]
pub(super) struct ConstraintColumns {
    alignment: Option<usize>,
    gaps: Option<usize>,
    /// The increment of an end: 1 if the file states the last step, otherwise 0.
    added: u64,
}

impl ConstraintColumns {
    pub(super) fn of(table: &CsvTable<impl BufRead>, added: u64) -> Result<Self> {
        let column = |name| -> Result<Option<usize>> {
            let found = table.has(name).then(|| table.columns([name]));
            Ok(found.transpose()?.map(|[column]| column))
        };
        Ok(Self {
            alignment: column("alignment")?,
            gaps: column("gaps")?,
            added,
        })
    }

    /// Returns the buffer of the current row, and the column of its first constraint.
    pub(super) fn read(
        &self,
        table: &CsvTable<impl BufRead>,
        lifetime: &Lifetime,
    ) -> Result<(ConstrainedBuffer, Option<usize>)> {
        let mut constrained = None;
        let mut alignment = 1;
        if let Some(column) = self.alignment {
            alignment = table.number(column)?;
            if alignment == 0 {
                return Err(table.value_error(column, "not a whole number of at least 1"));
            }
            constrained = constrained.or((alignment > 1).then_some(column));
        }
        let mut gaps = Vec::new();
        if let Some(column) = self.gaps {
            for text in table.text(column).split_ascii_whitespace() {
                let gap = self.gap(text, lifetime);
                gaps.push(gap.map_err(|why| table.field_error(column, why))?);
            }
            gaps.sort_by_key(|gap: &Gap| (gap.lower, gap.upper));
            if let Some(pair) = gaps.windows(2).find(|pair| pair[1].lower < pair[0].upper) {
                let why = format!("two gaps overlap at step {}", pair[1].lower);
                return Err(table.field_error(column, why));
            }
            constrained = constrained.or((!gaps.is_empty()).then_some(column));
        }
        let interval = BufferInterval {
            lower: lifetime.lower,
            upper: lifetime.upper,
            size_bytes: lifetime.size_bytes,
        };
        let buffer = ConstrainedBuffer {
            interval,
            alignment,
            gaps,
        };
        Ok((buffer, constrained))
    }

    fn gap(&self, text: &str, lifetime: &Lifetime) -> std::result::Result<Gap, String> {
        let malformed =
            || format!("\"{text}\" is not a gap, expected first-end or first-end@start:stop");
        let (steps, used) = match text.split_once('@') {
            Some((steps, used)) => (steps, Some(used)),
            None => (text, None),
        };
        let steps = range(steps, '-').ok_or_else(malformed)?;
        let (lower, upper) = (steps.start, steps.end.saturating_add(self.added));
        if upper < lower || lower < lifetime.lower || upper > lifetime.upper {
            let Lifetime { lower, upper, .. } = lifetime;
            return Err(format!(
                "the gap \"{text}\" is outside of the lifetime, expected steps from {lower} to \
                 below {upper}"
            ));
        }
        let used = match used {
            Some(used) => range(used, ':').ok_or_else(malformed)?,
            None => 0..0,
        };
        if used.end < used.start || used.end > lifetime.size_bytes {
            let size = lifetime.size_bytes;
            return Err(format!(
                "the gap \"{text}\" uses bytes outside of the buffer of {size} bytes"
            ));
        }
        Ok(Gap { lower, upper, used })
    }
}

/// Parses two whole numbers below 2⁶³ with a separator between them.
fn range(text: &str, separator: char) -> Option<Range<u64>> {
    let (start, end) = text.split_once(separator)?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| is_number)?;
        u64::try_from(number).ok()
    };
    Some(number(start)?..number(end)?)
}

/// Formats gaps in MiniMalloc's notation.
pub(super) fn gaps_text(gaps: &[Gap]) -> String {
    let mut text = String::new();
    for Gap { lower, upper, used } in gaps {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{lower}-{upper}");
        if !used.is_empty() {
            let _ = write!(text, "@{}:{}", used.start, used.end);
        }
    }
    text
}
