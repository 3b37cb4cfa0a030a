//! What the emulator promises to the tests that run on it, by cudarc's own functions; and pieces of kernels, where
//! threads of the test stand for other blocks.

mod capture;
mod device;
mod digit_tiles;
mod faults;
mod kernels;
mod look_back;
mod memory;
mod nccl;
mod scan_tiles;
mod streams;
mod transforms;

/// Before `main`: the emulator and nothing else, with a small device for each test.
// SAFETY: the loader calls each entry of this section once, as a C function, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = {
    extern "C" fn start() {
        // SAFETY: there is one thread yet.
        unsafe {
            std::env::set_var("CACHESCOPE_CUDA_EMULATOR", "1");
            std::env::set_var("CACHESCOPE_EMULATOR_DEVICES", "256");
            std::env::set_var("CACHESCOPE_EMULATOR_MEMORY", (16 << 20).to_string());
        }
        cuda_emulator::start(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
    }
    start
};
