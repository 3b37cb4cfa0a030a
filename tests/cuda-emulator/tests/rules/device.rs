//! A separate device for each test, through cudarc. So kernel errors of one test do not affect
//! other tests.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard};

use cuda_emulator::Control;
use cudarc::driver::sys;
use cudarc::nvrtc::sys as nvrtc;

pub(crate) use sys::CUresult as Code;

/// The lock that serialises the tests, because the emulator's counters are per process.
static TURN: Mutex<()> = Mutex::new(());
static NEXT: AtomicI32 = AtomicI32::new(0);

#[track_caller]
pub(crate) fn ok(code: Code) {
    assert_eq!(code, Code::CUDA_SUCCESS);
}

/// Makes the context of an unused device current. Returns the ordinal of the device.
pub(crate) fn enter_another() -> i32 {
    let ordinal = NEXT.fetch_add(1, Ordering::Relaxed);
    enter(ordinal);
    ordinal
}

/// Makes the context of a device current on this thread.
pub(crate) fn enter(ordinal: i32) {
    let mut context = null_mut();
    // SAFETY: the emulator's functions check their arguments, and `context` is writable.
    unsafe {
        ok(sys::cuInit(0));
        ok(sys::cuDevicePrimaryCtxRetain(&raw mut context, ordinal));
        ok(sys::cuCtxSetCurrent(context));
    }
}

pub(crate) struct Device {
    pub(crate) control: Control,
    pub(crate) ordinal: i32,
    _turn: MutexGuard<'static, ()>,
}

impl Device {
    pub(crate) fn new() -> Self {
        let turn = TURN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let control = Control::of_process().expect("the emulator is loaded");
        let ordinal = enter_another();
        Self {
            control,
            ordinal,
            _turn: turn,
        }
    }

    /// Returns the used bytes of this device's memory.
    pub(crate) fn used(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        // SAFETY: `free` and `total` are writable.
        ok(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) });
        total - free
    }

    pub(crate) fn stream(&self) -> sys::CUstream {
        let mut stream = null_mut();
        // SAFETY: `stream` is writable. The flag 1 is CU_STREAM_NON_BLOCKING.
        ok(unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, 1, 0) });
        stream
    }

    pub(crate) fn event(&self) -> sys::CUevent {
        let mut event = null_mut();
        // SAFETY: `event` is writable. The flag 2 is CU_EVENT_DISABLE_TIMING.
        ok(unsafe { sys::cuEventCreate(&raw mut event, 2) });
        event
    }

    pub(crate) fn memory(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: `address` is writable.
        ok(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) });
        address
    }

    /// Enqueues a fill of `words` 32-bit words with `value`.
    pub(crate) fn fill(&self, address: u64, value: u32, words: usize, stream: sys::CUstream) {
        // SAFETY: the emulator checks the address range.
        ok(unsafe { sys::cuMemsetD32Async(address, value, words, stream) });
    }

    pub(crate) fn copy(&self, target: u64, source: u64, words: usize, stream: sys::CUstream) {
        // SAFETY: the emulator checks the address ranges.
        ok(unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, 4 * words, stream) });
    }

    /// Copies 32-bit words on the stream to pageable memory, and returns them.
    pub(crate) fn words(&self, address: u64, words: usize, stream: sys::CUstream) -> Vec<u32> {
        let mut read = vec![0; words];
        ok(self.read(address, &mut read, stream));
        read
    }

    pub(crate) fn read(&self, address: u64, target: &mut [u32], stream: sys::CUstream) -> Code {
        let bytes = size_of_val(target);
        // SAFETY: `target` has `bytes` bytes.
        unsafe { sys::cuMemcpyDtoHAsync_v2(target.as_mut_ptr().cast(), address, bytes, stream) }
    }

    pub(crate) fn synchronize(&self, stream: sys::CUstream) -> Code {
        // SAFETY: the emulator checks the handle.
        unsafe { sys::cuStreamSynchronize(stream) }
    }

    /// Compiles a source, and loads its function `kernel`.
    pub(crate) fn kernel(&self, text: &str) -> sys::CUfunction {
        let image = compile(text).unwrap_or_else(|log| panic!("{log}"));
        self.load(&image).expect("the image loads")
    }

    pub(crate) fn load(&self, image: &[u8]) -> Result<sys::CUfunction, Code> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: `image` is complete, and the emulator checks the other arguments.
        unsafe {
            match sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) {
                Code::CUDA_SUCCESS => (),
                code => return Err(code),
            }
            ok(sys::cuModuleGetFunction(
                &raw mut function,
                module,
                c"kernel".as_ptr(),
            ));
        }
        Ok(function)
    }

    pub(crate) fn launch(
        &self,
        kernel: sys::CUfunction,
        [blocks, threads, shared]: [u32; 3],
        arguments: &[u64],
        stream: sys::CUstream,
    ) -> Code {
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|a| (&raw const *a).cast_mut().cast())
            .collect();
        // SAFETY: the kernels of the tests have `arguments.len()` parameters of 64 bits each.
        unsafe {
            sys::cuLaunchKernel(
                kernel,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                stream,
                pointers.as_mut_ptr(),
                null_mut(),
            )
        }
    }
}

/// Compiles a source. Returns the "cubin", or the compiler's log on failure.
pub(crate) fn compile(text: &str) -> Result<Vec<u8>, String> {
    let text = CString::new(text).expect("no zero byte");
    let mut program = null_mut();
    // SAFETY: each buffer has the length that the emulator returned.
    unsafe {
        let success = nvrtc::nvrtcResult::NVRTC_SUCCESS;
        let made = nvrtc::nvrtcCreateProgram(
            &raw mut program,
            text.as_ptr(),
            c"test.cu".as_ptr(),
            0,
            null(),
            null(),
        );
        assert_eq!(made, success);
        let options = [
            c"--gpu-architecture=sm_80".as_ptr(),
            c"--std=c++17".as_ptr(),
        ];
        let mut bytes = 0;
        let outcome = match nvrtc::nvrtcCompileProgram(program, 2, options.as_ptr()) {
            nvrtc::nvrtcResult::NVRTC_SUCCESS => {
                assert_eq!(nvrtc::nvrtcGetCUBINSize(program, &raw mut bytes), success);
                let mut image = vec![0; bytes];
                assert_eq!(
                    nvrtc::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()),
                    success
                );
                Ok(image)
            }
            _ => {
                assert_eq!(
                    nvrtc::nvrtcGetProgramLogSize(program, &raw mut bytes),
                    success
                );
                let mut log = vec![0u8; bytes];
                assert_eq!(
                    nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()),
                    success
                );
                let log = CStr::from_bytes_until_nul(&log).expect("ends with a zero byte");
                Err(log.to_string_lossy().into_owned())
            }
        };
        assert_eq!(nvrtc::nvrtcDestroyProgram(&raw mut program), success);
        outcome
    }
}
