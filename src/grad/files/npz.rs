//! NumPy's archives, `.npz`.

use std::path::Path;

use super::{ArraySource, ArrayTarget, FileContext, Member};
use crate::array::{AnyArray, DType, Shape};
use crate::context::Device;
use crate::error::{ErrorKind, Result};
use crate::interop::npy::{NpzReader, NpzWriter};

#[inline]
pub(super) fn create<'s>(
    path: &Path,
    entries: impl IntoIterator<Item = &'s Member>,
    context: &FileContext<'_>,
) -> Result<NpzWriter> {
    refuse_bf16(entries, context)?;
    NpzWriter::create_for(context.operation, path)
}

#[inline]
pub(super) fn open<'s>(
    entries: impl IntoIterator<Item = &'s Member>,
    context: &FileContext<'_>,
) -> Result<NpzReader> {
    refuse_bf16(entries, context)?;
    NpzReader::open_for(context.operation, context.path)
}

impl ArrayTarget for NpzWriter {
    #[inline]
    fn write(&mut self, name: &str, array: &AnyArray) -> Result<()> {
        self.write_for("save", name, array)
    }

    #[inline]
    fn finish(self) -> Result<()> {
        self.finish_for("save")
    }
}

impl ArraySource for NpzReader {
    #[inline]
    fn names(&self) -> Vec<String> {
        Self::names(self)
    }

    #[inline]
    fn read(
        &mut self,
        name: &str,
        dtype: DType,
        device: &Device,
        shape: &Shape,
    ) -> Result<AnyArray> {
        let _current = device.enter();
        self.read_for("load", name, dtype, Some(shape.dims()))
    }
}

/// Returns an error for `bf16`. For each element, [`NpzWriter`] would write two opaque bytes, with
/// which NumPy cannot compute.
fn refuse_bf16<'s>(
    entries: impl IntoIterator<Item = &'s Member>,
    context: &FileContext<'_>,
) -> Result<()> {
    let is_bf16 = |entry: &&Member| entry.dtype == DType::Bf16;
    let Some(entry) = entries.into_iter().find(is_bf16) else {
        return Ok(());
    };
    let problem = "NumPy's files have no bf16: cast the array, or use a .safetensors file";
    Err(context.error(ErrorKind::Unsupported, Some(&entry.name), problem))
}
