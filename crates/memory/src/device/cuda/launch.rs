//! Kernel launches as plain data.

use std::any::TypeId;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// The key of a kernel: the type that generates its source, and a variant of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    of: TypeId,
    /// The fingerprint of the fused expression, if any.
    over: Option<u128>,
    form: u32,
}

impl KernelKey {
    /// Returns the key of the variant `form` of the source that the type `S` generates.
    pub fn of<S: 'static>(form: u32) -> Self {
        Self {
            of: TypeId::of::<S>(),
            over: None,
            form,
        }
    }

    /// Returns the key of this kernel, fused with the expression whose fingerprint is `over`.
    pub fn over(self, over: u128) -> Self {
        Self {
            over: Some(over),
            ..self
        }
    }
}

/// CUDA C++ source with one `extern "C" __global__` function named `kernel`.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// The name for error messages and profilers.
    pub name: String,
    pub text: String,
}

impl KernelSource {
    /// Returns the name of the compiled function, which profilers show.
    pub fn function_name(&self) -> String {
        let letters = self.name.chars().take(MOST_LETTERS);
        let letter = |own: char| {
            if own.is_ascii_alphanumeric() {
                own
            } else {
                '_'
            }
        };
        "cs_".chars().chain(letters.map(letter)).collect()
    }

    /// Returns the source, with `kernel` renamed to the [function's name](Self::function_name).
    pub fn named_text(&self) -> String {
        let name = self.function_name() + "(";
        self.text.replace("kernel(", &name)
    }
}

/// The maximum number of characters that a function's name copies from the kernel's name.
const MOST_LETTERS: usize = 100;

/// The launch dimensions of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x and y; none is 0.
    pub blocks: [u32; 2],
    /// Threads per block: a multiple of 32, at most 1024.
    pub threads: u32,
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
}

/// The arguments of a launch by value, in parameter order.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    // Each argument begins at a multiple of 16 bytes.
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Arguments {
    /// Adds a parameter whose value is `bytes`.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a 64-bit parameter: a number or an address.
    pub fn push(&mut self, value: u64) {
        self.push_bytes(&value.to_ne_bytes());
    }

    /// Adds a `struct` of 64-bit numbers.
    pub fn push_all(&mut self, values: impl IntoIterator<Item = u64>) {
        let bytes: Vec<u8> = values.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.push_bytes(&bytes);
    }

    /// Returns pointers to the arguments.
    pub fn pointers(&self) -> Vec<*const u8> {
        let pointer = |&offset: &usize| self.bytes[offset..].as_ptr();
        self.offsets.iter().map(pointer).collect()
    }
}

/// The operations that read indices or rows of weights from memory. A kernel that finds a bad index
/// or row reports the number of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Indexing {
    Take = 1,
    Gather,
    ScatterAdd,
    OneHot,
    CrossEntropy,
    Scatter,
    Bincount,
    Categorical,
    Multinomial,
}

#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "no kernel reports an index")
)]
impl Indexing {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Take, "take"),
        (Self::Gather, "gather"),
        (Self::ScatterAdd, "scatter_add"),
        (Self::OneHot, "one_hot"),
        (Self::CrossEntropy, "cross_entropy"),
        (Self::Scatter, "scatter"),
        (Self::Bincount, "bincount"),
        (Self::Categorical, "categorical"),
        (Self::Multinomial, "multinomial"),
    ];

    /// Returns whether a negative index counts from the end of the axis. Class labels and bins are
    /// never negative.
    pub fn counts_backwards(self) -> bool {
        let counts_forwards = matches!(
            self,
            Self::OneHot
                | Self::CrossEntropy
                | Self::Bincount
                | Self::Categorical
                | Self::Multinomial
        );
        !counts_forwards
    }

    /// Returns the number of the operation in reports of kernels.
    pub fn number(self) -> u64 {
        self as u64
    }

    /// Returns the error for the bad `index`. A kernel of the operation `number` reported this
    /// index on an axis of `length`. If the operation draws, `index` packs a row and its
    /// [`RowFault`].
    pub(super) fn error(number: u64, index: i64, length: u64) -> Error {
        let known = Self::ALL
            .iter()
            .find(|(operation, _)| operation.number() == number);
        let name = known.map_or("an operation", |(_, name)| name);
        if let Some((Self::Categorical | Self::Multinomial, _)) = known {
            let (row, fault) = RowFault::unpacked(index);
            let text = format!("{name}: row {row} {fault}");
            return Error::new(ErrorKind::InvalidArgument, text);
        }
        let text =
            format!("{name}: the index {index} is out of range for an axis of length {length}");
        Error::new(ErrorKind::InvalidArgument, text)
    }
}

/// The reason why a row of weights is not a probability distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum RowFault {
    Weight = 1,
    NoWeight,
    NoNumber,
    SeveralInfinite,
    NoLogit,
}

impl RowFault {
    const ALL: [Self; 5] = [
        Self::Weight,
        Self::NoWeight,
        Self::NoNumber,
        Self::SeveralInfinite,
        Self::NoLogit,
    ];

    /// Returns the number of the fault in the status of a row. A valid row has the status 0.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Returns the fault with this number.
    pub fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.number() == number)
    }

    /// Unpacks the row and the fault, which `drawn.cuh` packs into one number.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "no kernel reports a row")
    )]
    fn unpacked(reported: i64) -> (i64, Self) {
        let fault = Self::of(reported & 7).unwrap_or(Self::Weight);
        (reported >> 3, fault)
    }
}

/// Writes the fault and the expectation, for a message that begins with the row's index.
impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Weight => {
                "has a weight that is negative, infinite or NaN, expected finite weights of at \
                 least 0"
            }
            Self::NoWeight => "has no weight above 0, expected at least one",
            Self::NoNumber => "has a logit that is NaN, expected numbers",
            Self::SeveralInfinite => "has several infinite logits, expected at most one",
            Self::NoLogit => "has no logit above -inf, expected at least one",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_rows_name_the_row_and_its_fault() {
        for fault in RowFault::ALL {
            assert_eq!(RowFault::of(fault.number()), Some(fault));
            assert!((1..8).contains(&fault.number()), "three bits");
            let reported = 12 << 3 | fault.number();
            let error = Indexing::error(Indexing::Multinomial.number(), reported, 5).to_string();
            let expected = format!("multinomial: row 12 {fault}");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(RowFault::of(0), None, "which stands for a distribution");
    }

    #[test]
    fn what_a_kernel_noted_names_its_operation() {
        for (operation, name) in Indexing::ALL {
            let error = Indexing::error(operation.number(), -3, 2);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            let text = error.to_string();
            let draws = matches!(operation, Indexing::Categorical | Indexing::Multinomial);
            assert!(text.starts_with(name), "{text}");
            assert!(draws || text.contains("-3"), "{text}");
            assert_ne!(operation.number(), 0, "which stands for none");
        }
    }
}
