//! What the emulator promises to the tests that run on it, by cudarc's own functions; and pieces of
//! kernels, where threads of the test stand for other blocks.

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
