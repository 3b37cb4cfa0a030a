//! What a launch of a kernel is made of, as plain data.

use std::any::TypeId;

use crate::error::{Error, ErrorKind};

/// Which kernel of a program: what makes its source, and which of the forms that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelKey {
    of: TypeId,
    /// The fingerprint of the expression whose elements it takes, where there is one.
    over: Option<u128>,
    form: u32,
}

impl KernelKey {
    /// The form number `form` of the source that the type `S` stands for.
    pub(crate) fn of<S: 'static>(form: u32) -> Self {
        Self {
            of: TypeId::of::<S>(),
            over: None,
            form,
        }
    }

    /// The same over the elements of the expression with the fingerprint `over`.
    pub(crate) fn over(self, over: u128) -> Self {
        Self {
            over: Some(over),
            ..self
        }
    }
}

/// CUDA C++ with one `extern "C" __global__` function, which is called `kernel`.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "nothing is compiled")
)]
pub(crate) struct KernelSource {
    /// What error messages call it.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks along x and y; none is 0.
    pub(crate) blocks: [u32; 2],
    /// Threads of a block, a multiple of 32, at most 1024.
    pub(crate) threads: u32,
    /// Bytes of `extern __shared__` memory of a block.
    pub(crate) shared_bytes: u32,
}

/// The arguments of a launch by value, in the order of the kernel's parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    // Each begins at a multiple of 16 bytes from the first.
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Arguments {
    /// Adds a parameter of these bytes, as the type stands in memory.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a parameter of 64 bits: a number or an address.
    pub(crate) fn push(&mut self, value: u64) {
        self.push_bytes(&value.to_ne_bytes());
    }

    /// Adds a parameter that is a `struct` of 64-bit numbers.
    pub(crate) fn push_all(&mut self, values: impl IntoIterator<Item = u64>) {
        let bytes: Vec<u8> = values.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.push_bytes(&bytes);
    }

    /// Where each begins.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "nothing is launched")
    )]
    pub(crate) fn pointers(&self) -> Vec<*const u8> {
        let pointer = |&offset: &usize| self.bytes[offset..].as_ptr();
        self.offsets.iter().map(pointer).collect()
    }
}

/// The operations that take indices from memory, by the number that their kernels note with a bad one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Indexing {
    Take = 1,
    Gather,
    ScatterAdd,
    OneHot,
}

impl Indexing {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Take, "take"),
        (Self::Gather, "gather"),
        (Self::ScatterAdd, "scatter_add"),
        (Self::OneHot, "one_hot"),
    ];

    /// What kernels note.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }

    /// The error of what a kernel noted: the operation of that number met `index` for an axis of `length`.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "nothing is launched")
    )]
    pub(super) fn error(number: u64, index: i64, length: u64) -> Error {
        let known = Self::ALL
            .iter()
            .find(|(operation, _)| operation.number() == number);
        let name = known.map_or("an operation", |(_, name)| name);
        let text =
            format!("{name}: the index {index} is out of range for an axis of length {length}");
        Error::new(ErrorKind::InvalidArgument, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_noted_names_its_operation() {
        for (operation, name) in Indexing::ALL {
            let error = Indexing::error(operation.number(), -3, 2);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            assert!(text.starts_with(name) && text.contains("-3"), "{text}");
            assert_ne!(operation.number(), 0, "which stands for none");
        }
    }
}
