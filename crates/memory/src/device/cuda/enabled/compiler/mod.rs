//! Compiles kernel sources to loadable images, by NVRTC or from the disk cache.

mod disk;
mod nvrtc;
mod resources;

use std::sync::OnceLock;

use super::super::KernelSource;
use super::driver::version_text;
use crate::error::Result;
use disk::{CacheKey, DiskCache};
use nvrtc::CompileTarget;
use nvrtc::Nvrtc;
pub use resources::KernelResources;

#[derive(Debug)]
pub(super) struct Compiler {
    capability: (u32, u32),
    disk: DiskCache,
    // The compiler. It is loaded for the first kernel, because a program that only allocates needs
    // no compiler.
    nvrtc: OnceLock<Nvrtc>,
}

impl Compiler {
    pub(super) fn new(capability: (u32, u32)) -> Self {
        Self {
            capability,
            disk: DiskCache::of_environment(),
            nvrtc: OnceLock::new(),
        }
    }

    /// Returns the image of `source`: a cubin, or PTX for a device newer than the compiler.
    pub(super) fn compile(&self, source: &KernelSource) -> Result<Vec<u8>> {
        let nvrtc = self.nvrtc()?;
        let target = nvrtc.target(self.capability);
        let options = target.options();
        let entry = CacheKey::of_kernel(&nvrtc.version(), &options, &source.named_text());
        if let Some(image) = self.disk.read(&entry) {
            return Ok(image);
        }
        let image = nvrtc.compile(source, target, &options)?;
        self.disk.write(&entry, &image);
        Ok(image)
    }

    /// Explains why a driver for CUDA `driver` (12040 for 12.4) may fail to load a compiled image.
    /// A driver does not load code of a compiler with a later major version.
    pub(super) fn mismatch(&self, driver: i32) -> Option<String> {
        let nvrtc = self.nvrtc.get()?;
        nvrtc.is_beyond(driver).then(|| {
            format!(
                "NVRTC {} compiled it, and the driver is for CUDA {}: load the NVRTC of CUDA {}, or update the driver",
                nvrtc.version(),
                version_text(driver),
                driver / 1000
            )
        })
    }

    fn nvrtc(&self) -> Result<&Nvrtc> {
        if let Some(nvrtc) = self.nvrtc.get() {
            return Ok(nvrtc);
        }
        let loaded = Nvrtc::load()?;
        Ok(self.nvrtc.get_or_init(|| loaded))
    }
}

/// Returns whether `CACHESCOPE_NVRTC` declares that the compiler is installed; empty and 0 mean no.
fn has_compiler() -> bool {
    let value_set = std::env::var_os("CACHESCOPE_NVRTC");
    value_set.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Compiles `sources` for the compute capabilities 7.0, 8.0 and 9.0, if the compiler is installed.
/// Needs no GPU. `CACHESCOPE_NVRTC=oldest` compiles only for the oldest supported capability. Only
/// tests call this function.
///
/// # Panics
///
/// If a source does not compile.
pub fn compile_for_all(sources: &[KernelSource]) {
    if !has_compiler() {
        println!("skipped: CACHESCOPE_NVRTC is not set");
        return;
    }
    let nvrtc = Nvrtc::load().unwrap();
    for (capability, target) in [(7, 0), (8, 0), (9, 0)].map(|of| (of, nvrtc.target(of))) {
        // CUDA 13 dropped the architectures before Turing, and supports all later architectures.
        if !nvrtc.makes_code_for(capability) {
            assert!(
                capability < (8, 0),
                "NVRTC {} has no {target:?}",
                nvrtc.version()
            );
            continue;
        }
        for source in sources {
            let image = nvrtc.compile(source, target, &target.options());
            let image = image.unwrap_or_else(|error| panic!("{error}\n{}", source.text));
            assert!(
                image.starts_with(b"\x7fELF"),
                "{} is not a cubin",
                source.name
            );
        }
        if std::env::var_os("CACHESCOPE_NVRTC").is_some_and(|value| value == "oldest") {
            break;
        }
    }
}

/// Returns the PTX of `source` for the virtual architecture with this number, if the compiler is
/// installed. Needs no GPU. Only tests call this function.
///
/// # Panics
///
/// If `source` does not compile.
pub fn ptx_of(source: &KernelSource, architecture: i32) -> Option<String> {
    if !has_compiler() {
        println!("skipped: CACHESCOPE_NVRTC is not set");
        return None;
    }
    let (nvrtc, target) = (Nvrtc::load().unwrap(), CompileTarget::Virtual(architecture));
    let image = nvrtc.compile(source, target, &target.options());
    let image = image.unwrap_or_else(|error| panic!("{error}\n{}", source.text));
    Some(String::from_utf8_lossy(&image).into_owned())
}

/// Returns the resources of `source`, compiled for this compute capability, if the compiler is
/// installed. Needs no GPU. Only tests call this function.
///
/// # Panics
///
/// If `source` does not compile, or if the image cannot be read.
pub fn resources_of(source: &KernelSource, capability: (u32, u32)) -> Option<KernelResources> {
    if !has_compiler() {
        println!("skipped: CACHESCOPE_NVRTC is not set");
        return None;
    }
    let nvrtc = Nvrtc::load().unwrap();
    let target = nvrtc.target(capability);
    let image = nvrtc.compile(source, target, &target.options());
    let image = image.unwrap_or_else(|error| panic!("{error}\n{}", source.text));
    let resources = KernelResources::of(&image);
    Some(resources.unwrap_or_else(|| panic!("{} has an unknown image", source.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_a_kernel_are_read_from_its_image() {
        let text = "extern \"C\" __global__ void kernel(float* at, int index) {
            __shared__ float shared[256];
            volatile float local[100];
            for (int i = 0; i < 100; ++i) local[i] = at[i];
            shared[threadIdx.x] = local[index];
            __syncthreads();
            at[threadIdx.x] = shared[255 - threadIdx.x];
        }";
        let source = KernelSource {
            name: "an array".into(),
            text: text.into(),
        };
        for capability in [(8, 0), (9, 0)] {
            let Some(resources) = resources_of(&source, capability) else {
                return;
            };
            assert_eq!(resources.local_bytes, 400, "{resources:?}");
            assert!((8..64).contains(&resources.registers), "{resources:?}");
            assert!(
                (1024..=2048).contains(&resources.shared_bytes),
                "{resources:?}"
            );
        }
        assert_eq!(KernelResources::of(b"\x7fELF\x02"), None);
        assert_eq!(KernelResources::of(b"ptx"), None);
    }

    #[test]
    fn a_kernel_compiles_for_all_architectures() {
        compile_for_all(&[KernelSource {
            name: "nothing".into(),
            text: "extern \"C\" __global__ void kernel() {}".into(),
        }]);
    }

    #[test]
    fn errors_contain_the_compiler_s_log() {
        if !has_compiler() {
            return;
        }
        let nvrtc = Nvrtc::load().unwrap();
        let source = KernelSource {
            name: "a broken one".into(),
            text: "extern \"C\" __global__ void kernel() { missing(); }".into(),
        };
        let target = nvrtc.target((8, 0));
        let error = nvrtc.compile(&source, target, &target.options());
        let error = error.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("a broken one") && text.contains("missing"),
            "{text}"
        );
    }
}
