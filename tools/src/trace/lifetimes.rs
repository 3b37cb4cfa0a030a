//! MiniMalloc's CSV format: one buffer per line, with the columns `id,lower,upper,size` in any
//! order. Other columns are ignored. A file with a column `offset` is a plan.
//!
//! Source: the README of google/minimalloc (Moffitt, ASPLOS 2023).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use super::csv_table::CsvTable;
use super::io_error;
use crate::error::Result;

/// The required columns.
pub(crate) const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

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
    /// The name, unique in the file.
    pub id: String,
    /// The first step of its lifetime.
    pub lower: u64,
    /// The step after the last one; not below `lower`.
    pub upper: u64,
    /// The size. The sizes of a file sum to less than 2⁶³.
    pub size_bytes: u64,
}

impl Lifetime {
    /// Returns whether the buffer has both a size and a lifetime.
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
    /// As for [`read`](Self::read).
    pub fn read_file(path: &Path) -> Result<Vec<Self>> {
        let name = path.display();
        let file = File::open(path).map_err(|error| io_error(&name, error))?;
        Self::read(name, BufReader::new(file))
    }

    /// Reads buffers from `input`. Errors refer to it as `name`.
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
    /// [`Io`](crate::ErrorKind::Io) with line and column for a missing column; a number that does
    /// not parse, is negative or at least 2⁶³; an interval that ends before it begins; a duplicate
    /// name; or sizes that sum to 2⁶³ or more.
    pub fn read(name: impl std::fmt::Display, input: impl BufRead) -> Result<Vec<Self>> {
        Self::read_table(CsvTable::new(name, input)?)
    }

    /// Reads the rows of a table whose header was already read.
    pub(crate) fn read_table(table: CsvTable<impl BufRead>) -> Result<Vec<Self>> {
        let (lifetimes, _) = Self::read_placed(table)?;
        Ok(lifetimes)
    }

    /// Like [`read_table`](Self::read_table), but also returns the offset of each buffer. Returns
    /// no offsets if the table has no such column, or if a buffer that occupies memory has no
    /// offset.
    pub(super) fn read_placed(
        mut table: CsvTable<impl BufRead>,
    ) -> Result<(Vec<Self>, Option<Vec<u64>>)> {
        let [id, lower, upper, size] = table.columns(COLUMNS)?;
        let offset = table.has("offset").then(|| table.columns(["offset"]));
        let offset = offset.transpose()?;
        let mut offsets = offset.map(|_| Vec::new());
        let mut lifetimes = Vec::new();
        let mut ids = HashSet::new();
        let mut total_bytes = 0u64;
        while table.advance()? {
            let lifetime = Self {
                id: table.text(id).to_owned(),
                lower: table.number(lower)?,
                upper: table.number(upper)?,
                size_bytes: table.number(size)?,
            };
            if lifetime.upper < lifetime.lower {
                let what = format!("below the lower end, {}", lifetime.lower);
                return Err(table.value_error(upper, what));
            }
            // Both are below 2⁶³.
            total_bytes += lifetime.size_bytes;
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
        }
        Ok((lifetimes, offsets))
    }
}

/// Writes a plan: MiniMalloc's columns and `offset`.
#[derive(Debug)]
pub struct LifetimeWriter<W> {
    out: W,
}

impl<W: Write> LifetimeWriter<W> {
    /// Writes the header. `out` should be buffered: writes are small.
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
        Ok(Self { out })
    }

    /// Writes a buffer with its offset in the slab, or `None` if it was not placed.
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
    /// As for [`new`](Self::new).
    pub fn write(&mut self, lifetime: &Lifetime, offset: Option<u64>) -> io::Result<()> {
        let Lifetime {
            id,
            lower,
            upper,
            size_bytes,
        } = lifetime;
        let id = quoted(id);
        match offset {
            Some(offset) => writeln!(self.out, "{id},{lower},{upper},{size_bytes},{offset}"),
            None => writeln!(self.out, "{id},{lower},{upper},{size_bytes},"),
        }
    }

    /// Flushes the file.
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
    /// As for [`new`](Self::new).
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a field, in quotes if it could not be parsed otherwise.
fn quoted(field: &str) -> Cow<'_, str> {
    if !field.contains([',', '"']) && field.trim_ascii() == field {
        return Cow::Borrowed(field);
    }
    Cow::Owned(format!("\"{}\"", field.replace('"', "\"\"")))
}
