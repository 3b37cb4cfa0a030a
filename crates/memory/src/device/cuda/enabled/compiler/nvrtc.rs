//! NVRTC, NVIDIA's run-time compiler, loaded for the first kernel.

use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;

use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;

use super::KernelSource;
use crate::error::{Error, ErrorCode, ErrorKind, Result};

/// The library functions that this module or cudarc calls.
const SYMBOLS: [&[u8]; 12] = [
    b"nvrtcVersion\0",
    b"nvrtcGetNumSupportedArchs\0",
    b"nvrtcGetSupportedArchs\0",
    b"nvrtcCreateProgram\0",
    b"nvrtcCompileProgram\0",
    b"nvrtcDestroyProgram\0",
    b"nvrtcGetProgramLogSize\0",
    b"nvrtcGetProgramLog\0",
    b"nvrtcGetCUBINSize\0",
    b"nvrtcGetCUBIN\0",
    b"nvrtcGetPTXSize\0",
    b"nvrtcGetPTX\0",
];

/// The loaded library.
///
/// Invariant: the library has all of [`SYMBOLS`].
#[derive(Debug)]
pub(super) struct Nvrtc {
    version: (i32, i32),
    /// The supported architectures (80 for 8.0), in ascending order.
    architectures: Vec<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompileTarget {
    /// The machine code of an architecture.
    Code(i32),
    /// The PTX of a virtual architecture. The driver compiles PTX for any later architecture.
    Virtual(i32),
}

impl CompileTarget {
    /// Returns all compiler options. The key of the disk cache contains the options, so options
    /// must be set only here.
    pub(super) fn options(self) -> [String; 4] {
        [
            self.architecture(),
            "--std=c++17".into(),
            // Products and sums are rounded separately, as on the host.
            "--fmad=false".into(),
            // Functions without an annotation, such as nested functions, run on the device.
            "--device-as-default-execution-space".into(),
        ]
    }

    fn architecture(self) -> String {
        match self {
            Self::Code(number) => format!("--gpu-architecture=sm_{number}"),
            Self::Virtual(number) => format!("--gpu-architecture=compute_{number}"),
        }
    }
}

/// Returns `Code` for a compute capability that `architectures` contains. For any other capability,
/// returns `Virtual` for the latest earlier architecture.
fn target(architectures: &[i32], (major, minor): (u32, u32)) -> CompileTarget {
    let own = (major * 10 + minor) as i32;
    if architectures.contains(&own) {
        return CompileTarget::Code(own);
    }
    let before = architectures.iter().rev().find(|&&number| number < own);
    // The compiler reports an unknown architecture itself.
    before.map_or(CompileTarget::Code(own), |&number| {
        CompileTarget::Virtual(number)
    })
}

impl Nvrtc {
    pub(super) fn load() -> Result<Self> {
        // SAFETY: loading the library runs its initialisers, which NVIDIA supports at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err(missing("it was not found"));
        }
        for symbol in SYMBOLS {
            // SAFETY: the library is present, as checked above. Only the address of the symbol is
            // used.
            if unsafe { sys::culib().get::<*const ()>(symbol) }.is_err() {
                let symbol = String::from_utf8_lossy(&symbol[..symbol.len() - 1]);
                return Err(missing(&format!(
                    "the one found is too old: it has no {symbol}"
                )));
            }
        }
        let (mut major, mut minor) = (0, 0);
        // SAFETY: `major` and `minor` are writable, and the loop above found all symbols.
        unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }
            .result()
            .map_err(|error| failed("the version", error))?;
        Ok(Self {
            version: (major, minor),
            architectures: architectures()?,
        })
    }

    pub(super) fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Returns whether this compiler has a later major version than `driver`, the driver's CUDA
    /// version (12040 for 12.4).
    pub(super) fn is_beyond(&self, driver: i32) -> bool {
        self.version.0 > driver / 1000
    }

    pub(super) fn target(&self, capability: (u32, u32)) -> CompileTarget {
        target(&self.architectures, capability)
    }

    pub(super) fn makes_code_for(&self, (major, minor): (u32, u32)) -> bool {
        let number = (major * 10 + minor) as i32;
        self.architectures.contains(&number)
    }

    pub(super) fn compile(
        &self,
        source: &KernelSource,
        target: CompileTarget,
        options: &[String],
    ) -> Result<Vec<u8>> {
        let failed = |error| failed(&source.name, error);
        let text = CString::new(source.named_text()).map_err(|_| {
            let text = format!("the kernel {} has a zero byte in its text", source.name);
            Error::new(ErrorKind::Driver, text)
        })?;
        let program =
            NvrtcProgram(result::create_program(&text, Some(c"kernel.cu")).map_err(failed)?);
        // SAFETY: the program was just created, and is destroyed when this function returns.
        if let Err(error) = unsafe { result::compile_program(program.0, options) } {
            let text = format!(
                "the kernel {} did not compile ({}, NVRTC {}): {error}\n{}",
                source.name,
                target.architecture(),
                self.version(),
                program.log()
            );
            return Err(Error::new(ErrorKind::Driver, text).caused_by(error));
        }
        program.image(target).map_err(failed)
    }
}

fn architectures() -> Result<Vec<i32>> {
    let failed = |error| failed("the architectures", error);
    let mut count: c_int = 0;
    // SAFETY: `count` is writable, and `load` has found all symbols.
    unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }
        .result()
        .map_err(failed)?;
    let mut numbers = vec![0; count.max(0) as usize];
    // SAFETY: the buffer has the length just returned.
    unsafe { sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()) }
        .result()
        .map_err(failed)?;
    numbers.sort_unstable();
    Ok(numbers)
}

/// A program of the compiler, destroyed on drop.
struct NvrtcProgram(sys::nvrtcProgram);

impl NvrtcProgram {
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).collect();
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .into()
    }

    fn image(&self, target: CompileTarget) -> std::result::Result<Vec<u8>, NvrtcError> {
        let (size_of, copy): (SizeOf, Copy) = match target {
            CompileTarget::Code(_) => (sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN),
            CompileTarget::Virtual(_) => (sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
        };
        let mut size = 0;
        // SAFETY: the program is alive and compiled.
        unsafe { size_of(self.0, &raw mut size) }.result()?;
        let mut image = vec![0u8; size];
        // SAFETY: the program is alive and compiled, and the buffer has the length just returned.
        unsafe { copy(self.0, image.as_mut_ptr().cast()) }.result()?;
        Ok(image)
    }
}

type SizeOf = unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult;
type Copy = unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult;

impl Drop for NvrtcProgram {
    fn drop(&mut self) {
        let program = std::mem::replace(&mut self.0, null_mut());
        // SAFETY: the program is alive, and unused. Errors cannot be reported.
        let _ = unsafe { result::destroy_program(program) };
    }
}

#[cold]
fn missing(why: &str) -> Error {
    let text = format!(
        "kernels on CUDA need NVIDIA's run-time compiler NVRTC of CUDA 12 or 13 (libnvrtc.so.12 or .13), and {why}: \
         install the CUDA toolkit, or the Python package nvidia-cuda-nvrtc-cu12 with its folder in \
         LD_LIBRARY_PATH"
    );
    Error::new(ErrorCode::Library, text)
}

#[cold]
fn failed(what: &str, error: NvrtcError) -> Error {
    Error::new(ErrorKind::Driver, format!("NVRTC failed ({what}): {error}")).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_its_own_code_or_the_latest_before_it() {
        let known = [50, 70, 80, 86, 90];
        assert_eq!(target(&known, (8, 6)), CompileTarget::Code(86));
        assert_eq!(target(&known, (8, 9)), CompileTarget::Virtual(86));
        assert_eq!(target(&known, (10, 0)), CompileTarget::Virtual(90));
        assert_eq!(target(&known, (3, 5)), CompileTarget::Code(35));
    }
}
