//! The resources that a compiled kernel needs, read from its image. The image is an ELF file whose
//! section `.nv.info` lists attributes of functions.

/// The resources of a kernel, for each thread or block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelResources {
    /// The number of 32-bit registers of a thread.
    pub registers: u32,
    /// The local memory of a thread in bytes: spilled registers and indexed arrays.
    pub local_bytes: u32,
    /// The static shared memory of a block in bytes.
    pub shared_bytes: u64,
}

/// The size of an ELF section header in bytes.
const HEADER_BYTES: usize = 64;

/// The format of attributes whose value has an explicit size.
const SIZED: u8 = 4;
/// The attribute of a function's registers, and of its stack frame. The value is a symbol and a
/// number.
const REGISTERS: u8 = 0x2f;
const FRAME_BYTES: u8 = 0x11;

/// A section of an ELF file.
struct Section<'a> {
    name: &'a [u8],
    size: u64,
    /// The contents, which are empty if the file does not contain them.
    contents: &'a [u8],
}

impl KernelResources {
    /// Reads the resources of the kernel in `image`. Returns `None` if `image` is not an ELF file
    /// of 64 bits with a kernel.
    pub(super) fn of(image: &[u8]) -> Option<Self> {
        let mut resources = Self::default();
        let mut has_registers = false;
        for section in sections(image)? {
            if section.name.starts_with(b".nv.shared.") {
                // The compiler reserves the first 1 KiB on some architectures.
                resources.shared_bytes += section.size;
            }
            if section.name != b".nv.info" {
                continue;
            }
            let mut rest = section.contents;
            while let [format, attribute, low, high, after @ ..] = rest {
                let size = usize::from(u16::from_le_bytes([*low, *high]));
                let size = if *format == SIZED { size } else { 0 };
                let value = after.get(..size)?;
                rest = after.get(size..)?;
                match *attribute {
                    REGISTERS => {
                        resources.registers = resources.registers.max(number(value, 4, 4)? as u32);
                        has_registers = true;
                    }
                    FRAME_BYTES => {
                        let bytes = number(value, 4, 4)? as u32;
                        resources.local_bytes = resources.local_bytes.max(bytes);
                    }
                    _ => {}
                }
            }
        }
        has_registers.then_some(resources)
    }
}

/// Returns the sections of an ELF file of 64 bits, or `None` if the file is damaged.
fn sections(image: &[u8]) -> Option<Vec<Section<'_>>> {
    if !image.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let first = number(image, 0x28, 8)? as usize;
    let count = number(image, 0x3c, 2)? as usize;
    let names = number(image, 0x3e, 2)? as usize;
    let header = |index: usize| {
        let begin = first.checked_add(index * HEADER_BYTES)?;
        image.get(begin..begin.checked_add(HEADER_BYTES)?)
    };
    let contents = |header: &[u8]| {
        let begin = number(header, 24, 8)? as usize;
        let size = number(header, 32, 8)? as usize;
        image.get(begin..begin.checked_add(size)?)
    };
    let names = contents(header(names)?)?;
    let section = |index: usize| {
        let header = header(index)?;
        let name = names.get(number(header, 0, 4)? as usize..)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        Some(Section {
            name: &name[..end],
            size: number(header, 32, 8)?,
            // Sections such as shared memory have a size, and no contents in the file.
            contents: contents(header).unwrap_or_default(),
        })
    };
    (0..count).map(section).collect()
}

/// Returns the little-endian number of `size` bytes at `at`.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    let mut wide = [0; 8];
    wide[..size].copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}
