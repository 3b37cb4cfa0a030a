//! MiniMalloc's CSV format: one buffer per line, with the columns `id,lower,upper,size` in any
//! order. The column `id` may also be named `buffer` or `buffer_id`. The column `lower` may also be
//! named `begin` or `start`. A file may have a column `end` instead of `upper`. The column `end`
//! contains the last step, `upper - 1`.
//!
//! The columns `alignment` and `gaps` constrain the valid plans. [`Lifetime::read_constrained`]
//! reads both columns. Every other reader refuses a row with a constraint that it cannot honour. A
//! file with a column `offset` is a plan. If the file is planned again, its offsets are ignored.
//! All other columns are ignored.
//!
//! Source: the README and `src/converter.cc` of google/minimalloc (Moffitt, ASPLOS 2023).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use crate::plan::ConstrainedBuffer;

use super::constraints::{ConstraintColumns, gaps_text};
use super::csv_table::CsvTable;
use super::io_error;
use crate::error::Result;

/// The required columns.
pub(crate) const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

/// The aliases of the required columns.
const ALIASES: [&[&str]; 4] = [&["buffer", "buffer_id"], &["begin", "start"], &["end"], &[]];

/// The name of the column that contains last steps.
const LAST: &str = "end";

/// The rows of a file: lifetimes and constraints, and the offset of each buffer if the file is a
/// plan.
type TableRows = (Vec<Lifetime>, Vec<ConstrainedBuffer>, Option<Vec<u64>>);

/// The constraints that a reader honours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Honoured {
    None,
    /// Only alignments. Both callers ignore them. A profile uses a plan's offsets, and a replay
    /// aligns blocks to the pool's unit.
    Alignments,
    All,
}

/// The lifetime and the size of a buffer.
///
/// # Examples
///
/// ```
/// # extern crate cachescope_tools as cachescope;
/// use cachescope::trace::Lifetime;
///
/// let lifetimes = Lifetime::read("two.csv", &b"id,lower,upper,size\na,0,2,512\nb,1,1,64\n"[..])?;
/// assert_eq!((lifetimes[0].lower, lifetimes[0].upper, lifetimes[0].size_bytes), (0, 2, 512));
/// assert!(!lifetimes[1].occupies());
/// # Ok::<(), cachescope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The unique name of the buffer in the file.
    pub id: String,
    /// The first step of the lifetime.
    pub lower: u64,
    /// The step after the last step; not below `lower`.
    pub upper: u64,
    /// The size in bytes. The sizes of a file sum to less than 2⁶³.
    pub size_bytes: u64,
}

impl Lifetime {
    /// Returns whether neither the size nor the lifetime is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Lifetime;
    ///
    /// let lifetime = |upper| Lifetime { id: "a".into(), lower: 1, upper, size_bytes: 64 };
    /// assert!(lifetime(2).occupies());
    /// assert!(!lifetime(1).occupies());
    /// ```
    pub fn occupies(&self) -> bool {
        self.lower < self.upper && self.size_bytes > 0
    }

    /// Reads the file at `path`.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Lifetime;
    ///
    /// let path = std::env::temp_dir().join(format!("cachescope-two-{}.csv", std::process::id()));
    /// std::fs::write(&path, "id,lower,upper,size\na,0,2,512\nb,1,3,64\n").unwrap();
    /// assert_eq!(Lifetime::read_file(&path)?[1].id, "b");
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read), or an error if the file cannot be opened.
    pub fn read_file(path: &Path) -> Result<Vec<Self>> {
        let name = path.display();
        let file = File::open(path).map_err(|error| io_error(&name, error))?;
        Self::read(name, BufReader::new(file))
    }

    /// Reads buffers from `input`. Errors refer to the input as `name`.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Lifetime;
    ///
    /// let lifetimes = Lifetime::read("a file", &b"size,id,lower,upper\n512,a,0,2\n"[..])?;
    /// assert_eq!((lifetimes[0].upper, lifetimes[0].size_bytes), (2, 512));
    /// let error = Lifetime::read("a file", &b"id,lower,upper,size\na,0,x,512\n"[..]).unwrap_err();
    /// assert!(error.to_string().starts_with("a file:2: column 3 (upper)"));
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Io`](crate::ErrorKind::Io), with line and column, for
    /// - a missing column or a duplicate name;
    /// - an interval that ends before it begins;
    /// - a number that does not parse, is negative, or is at least 2⁶³;
    /// - sizes that sum to 2⁶³ or more;
    /// - an alignment or gaps, which [`read_constrained`](Self::read_constrained) reads.
    pub fn read(name: impl std::fmt::Display, input: impl BufRead) -> Result<Vec<Self>> {
        let (lifetimes, ..) = Self::read_rows(CsvTable::new(name, input)?, Honoured::None)?;
        Ok(lifetimes)
    }

    /// Reads buffers like [`read`](Self::read), with the optional columns `alignment` and `gaps`.
    /// The offset of a buffer must be a multiple of its alignment. In its gaps, a buffer uses only
    /// a part of its bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::Lifetime;
    ///
    /// let file = &b"id,lower,upper,size,alignment,gaps\na,0,9,8,4,1-3 5-6@0:2\n"[..];
    /// let (lifetimes, buffers) = Lifetime::read_constrained("a file", file)?;
    /// assert_eq!((lifetimes[0].upper, buffers[0].alignment), (9, 4));
    /// assert_eq!(buffers[0].gaps[1].used, 0..2);
    /// assert!(Lifetime::read("a file", file).is_err()); // It has constraints.
    /// # Ok::<(), cachescope::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read), except for constraints. Returns
    /// [`Io`](crate::ErrorKind::Io), with line and column, for an alignment of 0 and for invalid
    /// gaps. Gaps are invalid if they are malformed, overlap, or are outside of the buffer.
    pub fn read_constrained(
        name: impl std::fmt::Display,
        input: impl BufRead,
    ) -> Result<(Vec<Self>, Vec<ConstrainedBuffer>)> {
        let table = CsvTable::new(name, input)?;
        let (lifetimes, buffers, _) = Self::read_rows(table, Honoured::All)?;
        Ok((lifetimes, buffers))
    }

    /// Reads the rows of a table for a replay. A replay ignores alignments, because a pool aligns
    /// its blocks to its unit.
    pub(crate) fn read_table(table: CsvTable<impl BufRead>) -> Result<Vec<Self>> {
        let (lifetimes, ..) = Self::read_rows(table, Honoured::Alignments)?;
        Ok(lifetimes)
    }

    /// Reads rows like [`read_table`](Self::read_table), and also returns the constraints and the
    /// offsets. Returns no offsets if the table has no column `offset`, or if a buffer that
    /// occupies memory has no offset.
    pub(super) fn read_rows(
        mut table: CsvTable<impl BufRead>,
        honoured: Honoured,
    ) -> Result<TableRows> {
        let [id, lower, upper, size] = table.columns_by(COLUMNS, ALIASES)?;
        let added = u64::from(table.title(upper) == LAST);
        let constraints = ConstraintColumns::of(&table, added)?;
        let offset = table.has("offset").then(|| table.columns(["offset"]));
        let offset = offset.transpose()?;
        let mut offsets = offset.map(|_| Vec::new());
        let (mut lifetimes, mut buffers) = (Vec::new(), Vec::new());
        let mut ids = HashSet::new();
        let mut total_bytes = 0u64;
        while table.advance()? {
            let lifetime = Self {
                id: table.text(id).to_owned(),
                lower: table.number(lower)?,
                upper: table.number(upper)? + added,
                size_bytes: table.number(size)?,
            };
            if lifetime.upper < lifetime.lower {
                let what = format!("below the lower end, {}", lifetime.lower);
                return Err(table.value_error(upper, what));
            }
            let (buffer, constrained) = constraints.read(&table, &lifetime)?;
            let is_honoured = match honoured {
                Honoured::None => constrained.is_none(),
                Honoured::Alignments => buffer.gaps.is_empty(),
                Honoured::All => true,
            };
            if let (false, Some(column)) = (is_honoured, constrained) {
                let what = "a constraint that only `cachescope plan` honours";
                return Err(table.value_error(column, what));
            }
            // Each of the three numbers is below 2⁶³. If their sum saturates, the following check
            // refuses it.
            total_bytes = total_bytes
                .saturating_add(lifetime.size_bytes)
                .saturating_add(buffer.alignment - 1);
            if total_bytes > i64::MAX as u64 {
                let reason = "the sizes up to here sum to 2^63 or more";
                return Err(table.field_error(size, reason));
            }
            if !ids.insert(lifetime.id.clone()) {
                return Err(table.value_error(id, "a duplicate id"));
            }
            if let (Some([offset]), Some(own)) = (offset, &mut offsets) {
                match table.text(offset) {
                    "" if lifetime.occupies() => offsets = None,
                    "" => own.push(0),
                    _ => own.push(table.number(offset)?),
                }
            }
            lifetimes.push(lifetime);
            if honoured == Honoured::All {
                buffers.push(buffer);
            }
        }
        Ok((lifetimes, buffers, offsets))
    }
}

/// A writer of plans in MiniMalloc's format, with the column `offset`.
#[derive(Debug)]
pub struct LifetimeWriter<W> {
    out: W,
    has_constraints: bool,
}

impl<W: Write> LifetimeWriter<W> {
    /// Writes the header. The caller should buffer `out`, because writes are small.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::LifetimeWriter;
    ///
    /// let mut file = Vec::new();
    /// LifetimeWriter::new(&mut file)?.finish()?;
    /// assert_eq!(file, b"id,lower,upper,size,offset\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        writeln!(out, "{},offset", COLUMNS.join(","))?;
        Ok(Self {
            out,
            has_constraints: false,
        })
    }

    /// Writes a header with the columns `alignment` and `gaps`, for buffers that have constraints.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::{Lifetime, LifetimeWriter};
    ///
    /// let input = &b"id,lower,upper,size,alignment\na,0,2,5,8\n"[..];
    /// let (lifetimes, buffers) = Lifetime::read_constrained("a file", input)?;
    /// let mut file = Vec::new();
    /// let mut writer = LifetimeWriter::constrained(&mut file)?;
    /// writer.write_constrained(&lifetimes[0], &buffers[0], Some(8))?;
    /// writer.finish()?;
    /// assert_eq!(file, b"id,lower,upper,size,alignment,gaps,offset\na,0,2,5,8,,8\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn constrained(mut out: W) -> io::Result<Self> {
        writeln!(out, "{},alignment,gaps,offset", COLUMNS.join(","))?;
        Ok(Self {
            out,
            has_constraints: true,
        })
    }

    /// Writes a buffer with its constraints, and with its offset if it was placed.
    ///
    /// # Examples
    ///
    /// See [`constrained`](Self::constrained).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn write_constrained(
        &mut self,
        lifetime: &Lifetime,
        buffer: &ConstrainedBuffer,
        offset: Option<u64>,
    ) -> io::Result<()> {
        let constraints = match self.has_constraints {
            true => format!(",{},{}", buffer.alignment, gaps_text(&buffer.gaps)),
            false => String::new(),
        };
        self.write_row(lifetime, &constraints, offset)
    }

    /// Writes a buffer, with its offset if it was placed.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use cachescope::trace::{Lifetime, LifetimeWriter};
    ///
    /// let mut file = Vec::new();
    /// let mut writer = LifetimeWriter::new(&mut file)?;
    /// let lifetime = Lifetime { id: "a".into(), lower: 0, upper: 2, size_bytes: 512 };
    /// writer.write(&lifetime, Some(1024))?;
    /// writer.finish()?;
    /// assert!(file.ends_with(b"\na,0,2,512,1024\n"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn write(&mut self, lifetime: &Lifetime, offset: Option<u64>) -> io::Result<()> {
        let constraints = if self.has_constraints { ",1," } else { "" };
        self.write_row(lifetime, constraints, offset)
    }

    fn write_row(
        &mut self,
        lifetime: &Lifetime,
        constraints: &str,
        offset: Option<u64>,
    ) -> io::Result<()> {
        let Lifetime {
            id,
            lower,
            upper,
            size_bytes,
        } = lifetime;
        let id = quoted(id);
        write!(self.out, "{id},{lower},{upper},{size_bytes}{constraints},")?;
        match offset {
            Some(offset) => writeln!(self.out, "{offset}"),
            None => writeln!(self.out),
        }
    }

    /// Flushes the output.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate cachescope_tools as cachescope;
    /// use std::io::BufWriter;
    ///
    /// use cachescope::trace::LifetimeWriter;
    ///
    /// let mut file = Vec::new();
    /// LifetimeWriter::new(BufWriter::new(&mut file))?.finish()?;
    /// assert!(!file.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a field, in quotes if it would not parse without them.
fn quoted(field: &str) -> Cow<'_, str> {
    if !field.contains([',', '"']) && field.trim_ascii() == field {
        return Cow::Borrowed(field);
    }
    Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
}
