//! Tests of the emulator's guarantees, through cudarc's functions. Some tests execute parts of
//! kernels, in which threads act as other blocks.

mod capture;
mod cublas_lt;
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
