//! The emulator's guarantees to the tests that run on it, through cudarc's functions. Also parts of
//! kernels, in which threads of a test act as other blocks.

mod capture;
mod device;
mod digit_tiles;
mod faults;
mod headers;
mod kernels;
mod look_back;
mod memory;
mod nccl;
mod scan_tiles;
mod streams;
mod transforms;
