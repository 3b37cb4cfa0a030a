//! Compiled kernels, cached until the process ends.

use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::thread;

use cudarc::driver::sys::{CUfunc_st, CUmod_st};
use smallvec::SmallVec;

use super::Cuda;
use super::compiler::Compiler;
use super::context::RawHandle;
use super::driver::Driver;
use super::error::DriverResult;
use crate::device::cuda::{KernelKey, KernelSource};
use crate::error::Result;
use crate::sync::Arc;
use crate::sync::plain::Mutex;

/// A compiled and loaded kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    pub(super) function: RawHandle<CUfunc_st>,
}

impl Kernel {
    /// The kernel of a device without data. Its launch does nothing.
    const NONE: Self = Self {
        function: RawHandle(ptr::null_mut()),
    };
}

/// A kernel; `None` until it is compiled. The thread that holds the lock compiles the kernel.
type KernelCell = Arc<Mutex<Option<Kernel>>>;

#[derive(Debug)]
pub(super) struct Kernels {
    compiler: Compiler,
    known: Mutex<HashMap<KernelKey, KernelCell>>,
}

/// Keys of kernels, with the functions that generate the sources.
type KernelSources<'a> = [(KernelKey, &'a dyn Fn() -> KernelSource)];

impl Kernels {
    /// Creates an empty cache, for devices of this compute capability.
    pub(super) fn new(capability: (u32, u32)) -> Self {
        Self {
            compiler: Compiler::new(capability),
            known: Mutex::default(),
        }
    }
}

impl Cuda {
    /// Returns the kernel of `key`. If the kernel is not cached, calls `source`, compiles the
    /// source and loads the kernel. If several threads request one kernel, it is compiled once.
    /// Requests for other kernels do not wait for this compilation. If a compilation fails, the
    /// next request compiles again.
    pub fn kernel(&self, key: KernelKey, source: &dyn Fn() -> KernelSource) -> Result<Kernel> {
        let context = &*self.context;
        if context.is_imitated() {
            return Ok(Kernel::NONE);
        }
        let Kernels { compiler, known } = &context.kernels;
        let slot = Arc::clone(known.lock().entry(key).or_default());
        let mut kernel = slot.lock();
        if let Some(known) = *kernel {
            return Ok(known);
        }
        let source = source();
        let mut image = compiler.compile(&source)?;
        // PTX must end with a zero byte. After a cubin, the driver ignores this byte.
        image.push(0);
        // If the compiler is newer than the driver, an error names the versions of compiler and
        // driver.
        let mismatch = compiler.mismatch(context.driver.version());
        let mismatch = mismatch.map_or(String::new(), |why| format!(" ({why})"));
        let what = format!("loading the kernel {}{mismatch}", source.name);
        let name = source.function_name();
        let loaded = context.run(&what, |driver| load(driver, &image, &name))?;
        *kernel = Some(loaded);
        Ok(loaded)
    }

    /// Compiles the kernels of `wanted` that are not cached, concurrently, and waits for them.
    /// Without this call, an operation of several launches would compile its kernels one after
    /// another.
    ///
    /// Never fails. If a kernel does not compile, its launch compiles it again, and returns the
    /// error.
    pub fn prepare(&self, wanted: &KernelSources<'_>) {
        if self.context.is_imitated() {
            return;
        }
        let is_missing = {
            let known = self.context.kernels.known.lock();
            let is_missing = wanted.iter().map(|(key, _)| !known.contains_key(key));
            is_missing.collect::<SmallVec<[bool; 4]>>()
        };
        // The launch of a single kernel compiles the kernel itself.
        if is_missing.iter().filter(|&&is_missing| is_missing).count() < 2 {
            return;
        }
        let missing = wanted.iter().zip(is_missing);
        let missing = missing.filter(|&(_, is_missing)| is_missing);
        let missing: Vec<_> = missing.map(|((key, source), _)| (*key, source())).collect();
        thread::scope(|scope| {
            for (key, source) in &missing {
                let compile = || self.kernel(*key, &|| source.clone());
                // If no thread can be spawned, the launch compiles the kernel.
                let _ = thread::Builder::new().spawn_scoped(scope, compile);
            }
        });
    }
}

/// Loads a compiled image and finds its function `name`.
fn load(driver: &Driver, image: &[u8], name: &str) -> DriverResult<Kernel> {
    let name = CString::new(name).expect("the name of a kernel has no zero byte");
    let mut module: RawHandle<CUmod_st> = RawHandle(ptr::null_mut());
    // SAFETY: `module` is writable. An image contains its length.
    unsafe { driver.module_load_data(&mut module.0, image.as_ptr().cast()) }?;
    let mut function = RawHandle(ptr::null_mut());
    // SAFETY: `function` is writable, the module was just loaded, and the name is zero-terminated.
    let found = unsafe { driver.module_get_function(&mut function.0, module.0, name.as_ptr()) };
    if let Err(failure) = found {
        // SAFETY: nothing else has the handle of the module.
        let _ = unsafe { driver.module_unload(module.0) };
        return Err(failure);
    }
    Ok(Kernel { function })
}
