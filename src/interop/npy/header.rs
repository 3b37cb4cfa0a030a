//! The header of a NumPy file: a magic string, a version, and a Python dictionary of three keys.

use std::io::Read;

use super::NpyContext;
use crate::array::{AnyArray, DType};
use crate::error::{ErrorCode, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The first bytes of a ZIP archive.
const ZIP_MAGIC: &[u8] = b"PK";

/// The number of bytes before the dictionary in a file of version 1, which is the written version.
const PREFIX_BYTES: usize = MAGIC.len() + 4;

/// The alignment of the elements in the file.
const ALIGNMENT_BYTES: usize = 64;

/// The maximum length of a dictionary. A dictionary for plain numbers in eight axes is much
/// shorter.
const LONGEST_BYTES: usize = 1 << 16;

#[derive(Debug, PartialEq)]
pub(super) struct Header {
    /// The type of the elements as NumPy writes it, such as `<f4`.
    pub(super) descr: String,
    /// True for Fortran order: the elements along the first axis are consecutive.
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<usize>,
    /// The length of the header in bytes.
    pub(super) size_bytes: u64,
}

impl Header {
    #[track_caller]
    pub(super) fn read(reader: &mut dyn Read, context: &NpyContext<'_>) -> Result<Self> {
        let malformed = |problem: &str| context.error(ErrorCode::Content, problem);
        // The buffer grows while the file is read, because the file may be shorter than its header
        // claims.
        let mut bytes = |count: usize| {
            let mut bytes = Vec::new();
            let read = (&mut *reader).take(count as u64).read_to_end(&mut bytes);
            read.map_err(|error| context.io(error))?;
            if bytes.len() < count {
                return Err(malformed("the file is cut short within its header"));
            }
            Ok(bytes)
        };
        let magic = bytes(MAGIC.len())?;
        if magic.starts_with(ZIP_MAGIC) {
            let problem =
                "the file is an archive (.npz), expected one array: call `NpzReader::open`";
            return Err(malformed(problem));
        }
        if magic != MAGIC {
            return Err(malformed("the file is not a .npy file"));
        }
        let version = bytes(2)?;
        let width = match version[..] {
            [1, 0] => 2,
            [2 | 3, 0] => 4,
            _ => {
                let problem = format!(
                    "the version is {}.{}, expected 1.0, 2.0 or 3.0",
                    version[0], version[1]
                );
                return Err(malformed(&problem));
            }
        };
        let length = bytes(width)?;
        let length = length.iter().rev();
        let length = length.fold(0usize, |length, &byte| length << 8 | usize::from(byte));
        if length > LONGEST_BYTES {
            let problem =
                format!("the header claims {length} bytes, expected at most {LONGEST_BYTES}");
            return Err(malformed(&problem));
        }
        let text = String::from_utf8(bytes(length)?);
        let text = text.map_err(|_| malformed("the header is not text in UTF-8"))?;
        let size_bytes = (MAGIC.len() + 2 + width + length) as u64;
        parse(&text, size_bytes)
            .ok_or_else(|| malformed(&format!("cannot read the header {:?}", text.trim_end())))
    }
}

/// Parses a header's dictionary. Returns `None` if the dictionary does not have the form that NumPy
/// writes.
fn parse(text: &str, size_bytes: u64) -> Option<Header> {
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    let mut rest = Parser(text);
    rest.skip("{")?;
    while rest.skip("}").is_none() {
        let key = rest.string()?;
        rest.skip(":")?;
        let is_new = match key {
            "descr" => descr.replace(rest.descr()?).is_none(),
            "fortran_order" => fortran_order.replace(rest.boolean()?).is_none(),
            "shape" => shape.replace(rest.shape()?).is_none(),
            _ => false,
        };
        if !is_new {
            return None;
        }
        if rest.skip(",").is_none() && !rest.0.trim_start().starts_with('}') {
            return None;
        }
    }
    rest.0.trim_start().is_empty().then_some(())?;
    Some(Header {
        descr: descr?,
        fortran_order: fortran_order?,
        shape: shape?,
        size_bytes,
    })
}

/// The text that is not parsed yet.
struct Parser<'a>(&'a str);

impl<'a> Parser<'a> {
    /// If the text starts with `word`, skips it. Otherwise, returns `None`.
    fn skip(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(word)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let quote = if self.skip("'").is_some() {
            '\''
        } else {
            self.skip("\"")?;
            '"'
        };
        let (text, rest) = self.0.split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    /// Parses a type. For a structured type, returns the text of its list of fields.
    fn descr(&mut self) -> Option<String> {
        if self.skip("[").is_none() {
            return Some(self.string()?.into());
        }
        let mut open = 1;
        let closes = |letter: char| {
            open += match letter {
                '[' => 1,
                ']' => -1,
                _ => 0,
            };
            open == 0
        };
        let end = self.0.find(closes)?;
        let fields = format!("[{}]", &self.0[..end]);
        self.0 = &self.0[end + 1..];
        Some(fields)
    }

    fn boolean(&mut self) -> Option<bool> {
        let holds = self.skip("True").is_some();
        if !holds {
            self.skip("False")?;
        }
        Some(holds)
    }

    fn shape(&mut self) -> Option<Vec<usize>> {
        self.skip("(")?;
        let mut lengths = Vec::new();
        while self.skip(")").is_none() {
            let rest = self.0.trim_start();
            let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
            lengths.push(rest[..end].parse().ok()?);
            self.0 = &rest[end..];
            // Python 2 wrote a suffix after a long integer.
            self.skip("L");
            if self.skip(",").is_none() && !self.0.trim_start().starts_with(')') {
                return None;
            }
        }
        Some(lengths)
    }
}

/// Returns the byte order and size of `dtype` as NumPy writes it.
pub(super) fn descr(dtype: DType) -> String {
    let order = match (dtype.size_bytes(), cfg!(target_endian = "big")) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    format!("{order}{}", kind_of(dtype.name()))
}

/// The names of types in Rust and in NumPy.
const KINDS: [(&str, &str); 15] = [
    ("f32", "f4"),
    ("f64", "f8"),
    ("f16", "f2"),
    ("bf16", "V2"),
    ("i8", "i1"),
    ("i16", "i2"),
    ("i32", "i4"),
    ("i64", "i8"),
    ("u8", "u1"),
    ("u16", "u2"),
    ("u32", "u4"),
    ("u64", "u8"),
    ("bool", "b1"),
    ("Complex<f32>", "c8"),
    ("Complex<f64>", "c16"),
];

/// Returns NumPy's name of the type whose name in Rust is `name`.
pub(super) fn kind_of(name: &str) -> &'static str {
    let known = KINDS.iter().find(|(rust, _)| *rust == name);
    known.map_or("", |(_, kind)| kind)
}

/// Returns Rust's name of the type whose name in NumPy is `kind`.
pub(super) fn name_of(kind: &str) -> Option<&'static str> {
    let known = KINDS.iter().find(|(_, numpy)| *numpy == kind);
    known.map(|(name, _)| *name)
}

/// Returns the header of a file with the elements of `array` in row-major order.
pub(super) fn format(array: &AnyArray) -> Vec<u8> {
    let lengths: Vec<String> = array.dims().iter().map(usize::to_string).collect();
    let lengths = match lengths.as_slice() {
        [only] => format!("{only},"),
        lengths => lengths.join(", "),
    };
    let descr = descr(array.dtype);
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    let total = (PREFIX_BYTES + text.len() + 1).next_multiple_of(ALIGNMENT_BYTES);
    let length = total - PREFIX_BYTES;
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    // The length cannot overflow two bytes: eight axes have at most twenty digits each.
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{text:<0$}\n", length - 1).bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, fortran_order: bool, shape: &[usize]) -> Option<Header> {
        Some(Header {
            descr: descr.into(),
            fortran_order,
            shape: shape.into(),
            size_bytes: 0,
        })
    }

    #[test]
    fn what_numpy_writes_is_read() {
        for (text, expected) in [
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
                header("<f4", false, &[2, 3]),
            ),
            (
                "{\"shape\":(5,),'fortran_order':True,'descr':'|b1'}",
                header("|b1", true, &[5]),
            ),
            (
                "{'descr': '>i8', 'fortran_order': False, 'shape': (), }",
                header(">i8", false, &[]),
            ),
            (
                "{'descr': '<i4', 'fortran_order': False, 'shape': (3L, 4L), }",
                header("<i4", false, &[3, 4]),
            ),
            (
                "{'descr': [('a', '<f4', (2,)), ('b', [('c', 'u1')])], 'fortran_order': False, 'shape': (1,)}",
                header("[('a', '<f4', (2,)), ('b', [('c', 'u1')])]", false, &[1]),
            ),
        ] {
            assert_eq!(parse(text, 0), expected, "{text}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
            "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}",
            "{'descr': [[[[[[, 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': no, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        ] {
            assert_eq!(parse(text, 0), None, "{text}");
        }
    }
}
