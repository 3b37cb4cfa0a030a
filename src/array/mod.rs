//! Arrays.
mod storage;
pub use storage::Buffer;
