//! Arrays as text, in NumPy's form.

use std::any::TypeId;
use std::fmt;

use ndarray::SliceInfoElem;

use crate::array::{Array, Element};
use crate::error::Result;

/// An array of more elements than this is shown by its edges.
const WHOLE_ELEMENTS: usize = 1000;

/// How many indices of each end of an axis are shown of such an array.
const EDGE: usize = 3;

/// Whether only the ends of an axis are shown, where an array is shown by its edges.
fn is_elided(length: usize) -> bool {
    length > 2 * EDGE
}

/// The elements that are shown, in row-major order.
///
/// The edges are fetched one by one, so that printing a large array moves few of its bytes.
fn shown<T: Element>(array: &Array<T>, edges: bool) -> Result<Vec<T>> {
    if !edges || !array.shape().iter().copied().any(is_elided) {
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
        elements.extend(shown(&array.slice(&selection)?, edges)?);
    }
    Ok(elements)
}

/// One element as text; a precision is for floating-point numbers, and would cut `true` short.
fn cell<T: Element>(element: T, precision: Option<usize>) -> String {
    match precision {
        Some(digits) if TypeId::of::<T>() != TypeId::of::<bool>() => {
            format!("{element:.digits$?}")
        }
        _ => format!("{element:?}"),
    }
}

/// Writes the shown cells in nested brackets, all in one width.
struct Table<'f, 'a> {
    f: &'f mut fmt::Formatter<'a>,
    cells: std::vec::IntoIter<String>,
    width: usize,
    edges: bool,
}

impl Table<'_, '_> {
    fn write(&mut self, axes: &[usize], depth: usize) -> fmt::Result {
        let Some((&length, inner)) = axes.split_first() else {
            let text = self.cells.next().unwrap_or_default();
            return write!(self.f, "{text:>width$}", width = self.width);
        };
        let elided = self.edges && is_elided(length);
        self.f.write_str("[")?;
        for position in 0..if elided { 2 * EDGE } else { length } {
            if position > 0 {
                self.separate(inner.len(), depth)?;
            }
            if elided && position == EDGE {
                self.f.write_str("…")?;
                self.separate(inner.len(), depth)?;
            }
            self.write(inner, depth + 1)?;
        }
        self.f.write_str("]")
    }

    /// A comma, and as many line breaks as there are axes inside.
    fn separate(&mut self, inner: usize, depth: usize) -> fmt::Result {
        if inner == 0 {
            return self.f.write_str(", ");
        }
        let indent = depth + 1;
        write!(self.f, ",{}{:indent$}", "\n".repeat(inner), "")
    }
}

/// The elements in nested brackets; of more than a thousand, the three at either end of each axis.
/// A precision (`{:.2}`) gives floating-point elements that many decimals.
///
/// # Examples
///
/// ```
/// use cachescope::Array;
///
/// let array = Array::arange(8, 12, 1)?.reshape([2, 2])?;
/// assert_eq!(array.to_string(), "[[ 8,  9],\n [10, 11]]");
/// let long = Array::arange(0, 2000, 1)?;
/// assert_eq!(format!("{long}"), "[   0,    1,    2, …, 1997, 1998, 1999]");
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: Element> fmt::Display for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("[]");
        }
        let edges = self.len() > WHOLE_ELEMENTS;
        let elements = match shown(self, edges) {
            Ok(elements) => elements,
            // A formatting error would become a panic in `to_string`.
            Err(error) => return write!(f, "<unreadable: {error}>"),
        };
        let precision = f.precision();
        let cells: Vec<String> = elements
            .into_iter()
            .map(|element| cell(element, precision))
            .collect();
        let width = cells.iter().map(String::len).max().unwrap_or(0);
        let mut table = Table {
            f,
            cells: cells.into_iter(),
            width,
            edges,
        };
        table.write(self.shape(), 0)
    }
}

/// The elements as `Display` shows them, then the type, the shape and the device.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, Device};
///
/// let array = Array::from_vec(vec![0.5f32, 1.0], 2)?.to_device(&Device::host())?;
/// assert_eq!(format!("{array:?}"), "[0.5, 1.0], f32, shape [2] on host");
/// # Ok::<(), cachescope::Error>(())
/// ```
impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        let shape = self.layout().shape();
        write!(f, ", {}, shape {shape} on {}", T::NAME, self.device())
    }
}
