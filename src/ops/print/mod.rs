//! Arrays as text, in NumPy's form.

mod cells;

use std::fmt;

use cells::{cells, scalar};
use ndarray::SliceInfoElem;

use crate::array::{AnyElement, Array};
use crate::error::Result;

/// The maximum number of elements of an array that is shown completely.
const MAX_WHOLE_ELEMENTS: usize = 1000;

/// The number of indices that an elided array shows at each end of an axis.
const EDGE: usize = 3;

/// The maximum number of characters of a row that does not wrap.
const LINE_WIDTH: usize = 75;

/// Returns whether an elided array shows only the ends of an axis of length `length`.
fn is_elided(length: usize) -> bool {
    length > 2 * EDGE
}

/// Returns the elements that are shown, in row-major order.
///
/// Only the shown elements are downloaded.
#[track_caller]
fn shown<T: AnyElement>(array: &Array<T>, elided: bool) -> Result<Vec<T>> {
    if !elided || !array.shape().iter().copied().any(is_elided) {
        return array.to_vec();
    }
    let length = array.shape()[0] as isize;
    let edge = EDGE as isize;
    let firsts: Vec<SliceInfoElem> = match array.shape() {
        [_] => vec![(0..edge).into(), (length - edge..length).into()],
        [outer, ..] if is_elided(*outer) => (0..edge)
            .chain(length - edge..length)
            .map(SliceInfoElem::from)
            .collect(),
        _ => (0..length).map(SliceInfoElem::from).collect(),
    };
    let mut selection = vec![SliceInfoElem::from(..); array.ndim()];
    let mut elements = Vec::new();
    for first in firsts {
        selection[0] = first;
        elements.extend(shown(&array.slice(&selection)?, elided)?);
    }
    Ok(elements)
}

/// A writer of the shown cells, in nested brackets.
struct CellWriter {
    cells: std::vec::IntoIter<String>,
    /// The text between two cells.
    separator: &'static str,
    elided: bool,
    text: String,
    /// The byte index at which the last line of `text` starts.
    line: usize,
}

impl CellWriter {
    /// Writes the cells of `axes` in lines of `width`, indented by `indent` columns. These columns
    /// include the first bracket.
    fn write(&mut self, axes: &[usize], indent: usize, width: usize) {
        match axes {
            // A single cell needs no alignment.
            [] => {
                let cell = self.cells.next().unwrap_or_default();
                self.text.push_str(cell.trim_start());
            }
            [length] => {
                self.text.push('[');
                for position in self.positions(*length) {
                    // The line must also fit the separator or the bracket.
                    match position {
                        Some(_) => self.next_cell(indent, width - 1),
                        None => self.word("...", indent, width - 1),
                    }
                    if position != length.checked_sub(1) {
                        self.text.push_str(self.separator);
                    }
                }
                self.text.push(']');
            }
            [length, inner @ ..] => {
                self.text.push('[');
                for position in self.positions(*length) {
                    match position {
                        Some(_) => self.write(inner, indent + 1, width - 1),
                        None => self.text.push_str("..."),
                    }
                    if position != length.checked_sub(1) {
                        self.text.push_str(self.separator.trim_end());
                        self.text.push_str(&"\n".repeat(inner.len()));
                        self.begin_line(indent);
                    }
                }
                self.text.push(']');
            }
        }
    }

    /// Returns the positions of an axis that are shown, and `None` for the elided positions.
    fn positions(&self, length: usize) -> Vec<Option<usize>> {
        if !self.elided || !is_elided(length) {
            return (0..length).map(Some).collect();
        }
        let firsts = (0..EDGE).map(Some);
        let lasts = (length - EDGE..length).map(Some);
        firsts.chain([None]).chain(lasts).collect()
    }

    fn next_cell(&mut self, indent: usize, width: usize) {
        let cell = self.cells.next().unwrap_or_default();
        self.word(&cell, indent, width);
    }

    /// Appends `word` to the line, or to a new line if `word` fits only on a new line.
    fn word(&mut self, word: &str, indent: usize, width: usize) {
        let length = self.text.len() - self.line;
        if length > indent && length + word.len() > width {
            self.text.truncate(self.text.trim_end().len());
            self.text.push('\n');
            self.begin_line(indent);
        }
        self.text.push_str(word);
    }

    fn begin_line(&mut self, indent: usize) {
        self.line = self.text.len();
        self.text.push_str(&" ".repeat(indent));
    }
}

/// Returns the array in brackets after `prefix`, in lines of at most `width` characters.
fn table<T: AnyElement>(
    array: &Array<T>,
    precision: Option<usize>,
    (prefix, separator, width): (&str, &'static str, usize),
) -> String {
    if array.is_empty() {
        return format!("{prefix}[]");
    }
    let elided = array.len() > MAX_WHOLE_ELEMENTS;
    let elements = match shown(array, elided) {
        Ok(elements) => elements,
        // A formatting error would become a panic in `to_string`.
        Err(error) => return format!("{prefix}<unreadable: {error}>"),
    };
    let mut table = CellWriter {
        cells: cells(&elements, precision).into_iter(),
        separator,
        elided,
        text: prefix.into(),
        line: 0,
    };
    table.write(array.shape(), prefix.len() + 1, width);
    table.text
}

/// Shows the elements in nested brackets, in columns, with up to 8 decimals, like NumPy's `print`.
/// Uses scientific notation if elements are large, small or far apart. If an array has more than a
/// thousand elements, shows only three elements at each end of each axis.
///
/// A precision (`{:.2}`) sets the number of decimals of floating-point elements.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let array = Array::arange(8, 12, 1)?.reshape([2, 2])?;
/// assert_eq!(array.to_string(), "[[ 8  9]\n [10 11]]");
/// let long = Array::arange(0, 2000, 1)?;
/// assert_eq!(format!("{long}"), "[   0    1    2 ... 1997 1998 1999]");
/// let thirds = Array::arange(0.0, 3.0, 1.0)? / 3.0;
/// assert_eq!(thirds.eval()?.to_string(), "[0.         0.33333333 0.66666667]");
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: AnyElement> fmt::Display for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = f.precision();
        if self.ndim() == 0
            && precision.is_none()
            && let Ok(element) = self.item()
        {
            return f.write_str(&scalar(element));
        }
        f.write_str(&table(self, precision, ("", " ", LINE_WIDTH)))
    }
}

/// Shows the elements like NumPy's `repr`, and then the shape, the type and the device.
///
/// Formatting never fails, waits or allocates on a device. If the elements are on a GPU, or are
/// still being written, three dots replace them. `Display` waits, and shows the elements in any
/// case.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Device};
///
/// let array = Array::from_vec(vec![0.5f32, 1.0], 2)?.to_device(&Device::host())?;
/// assert_eq!(format!("{array:?}"), "array([0.5, 1. ], shape=[2], dtype=f32, device=host)");
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: AnyElement> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last line must also fit the closing bracket.
        let text = match self.buffer().is_readable_now() {
            true => table(self, f.precision(), ("array(", ", ", LINE_WIDTH - 1)),
            false => "array(...".into(),
        };
        let shape = self.layout().shape();
        let extras = format!(
            "shape={shape}, dtype={}, device={})",
            T::NAME,
            self.device()
        );
        let last = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
        let fits = last + 1 + extras.len() < LINE_WIDTH;
        let spacer = if fits { " " } else { "\n      " };
        write!(f, "{text},{spacer}{extras}")
    }
}
