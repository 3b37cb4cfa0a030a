//! Byte sizes: their display.
use std::fmt;
/// A number of bytes, displayed in binary units.
pub(crate) struct ByteSize(pub(crate) u64);
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.0)
    }
}
