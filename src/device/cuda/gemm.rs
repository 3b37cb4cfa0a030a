//! Products of matrices as plain data: what cuBLAS is asked for.

use crate::device::DevicePtr;
use crate::error::{Error, ErrorKind, Result};

/// The elements that cuBLAS multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GemmType {
    F16,
    Bf16,
    F32,
    F64,
}

impl GemmType {
    /// That of the element type `name`.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "f16" => Some(Self::F16),
            "bf16" => Some(Self::Bf16),
            "f32" => Some(Self::F32),
            "f64" => Some(Self::F64),
            _ => None,
        }
    }

    /// Of one element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Matrices that are multiplied, each with one of the other side. All lengths are counted in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmOperand {
    pub(crate) address: DevicePtr,
    /// Whether its columns stand one after another, not its rows.
    pub(crate) transposed: bool,
    /// From one row, or column, to the next.
    pub(crate) leading: usize,
    /// From one matrix to the next, which may be the same.
    pub(crate) step: usize,
}

/// Products of matrices whose rows stand one after another without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemm {
    pub(crate) element: GemmType,
    /// Of each; none is 0.
    pub(crate) rows: usize,
    pub(crate) inner: usize,
    pub(crate) columns: usize,
    pub(crate) left: GemmOperand,
    pub(crate) right: GemmOperand,
    pub(crate) target: DevicePtr,
    /// From one product to the next.
    pub(crate) target_step: usize,
    /// How many there are.
    pub(crate) count: usize,
}

/// The arguments of one call of cuBLAS, for which columns stand one after another: the factors have changed
/// sides, because the transpose of a product is that of the transposes in the other order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmCall {
    /// Whether the factors are to be transposed.
    pub(crate) transposed: [bool; 2],
    /// Rows and columns of a product, and the inner length, as cuBLAS sees them.
    pub(crate) lengths: [i32; 3],
    /// Of both factors and the product.
    pub(crate) addresses: [DevicePtr; 3],
    pub(crate) leading: [i32; 3],
    pub(crate) steps: [i64; 3],
    pub(crate) count: i32,
}

/// More products than this go in several calls: older versions of cuBLAS count them in 16 bits.
const MAX_BATCH: usize = 1 << 15;

impl Gemm {
    /// The calls that compute it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) where a length is more than cuBLAS counts to.
    #[cfg_attr(
        all(not(feature = "cuda"), not(test)),
        expect(dead_code, reason = "nothing is multiplied")
    )]
    pub(crate) fn calls(&self) -> Result<impl Iterator<Item = GemmCall> + use<>> {
        let number =
            |what: &str, number: usize| i32::try_from(number).map_err(|_| too_long(what, number));
        let (left, right) = (self.left, self.right);
        let first = GemmCall {
            transposed: [right.transposed, left.transposed],
            lengths: [
                number("columns", self.columns)?,
                number("rows", self.rows)?,
                number("elements to sum", self.inner)?,
            ],
            addresses: [right.address, left.address, self.target],
            leading: [
                number("elements from row to row", right.leading)?,
                number("elements from row to row", left.leading)?,
                number("columns", self.columns)?,
            ],
            steps: [right.step, left.step, self.target_step].map(|step| step as i64),
            count: 0,
        };
        let (all, bytes) = (self.count, self.element.bytes());
        Ok((0..all).step_by(MAX_BATCH).map(move |start| {
            let mut call = first;
            for (address, step) in call.addresses.iter_mut().zip(call.steps) {
                *address = address.offset(start as u64 * step as u64 * bytes as u64);
            }
            call.count = MAX_BATCH.min(all - start) as i32;
            call
        }))
    }
}

#[cold]
fn too_long(what: &str, number: usize) -> Error {
    let text = format!(
        "matmul: {number} {what}: cuBLAS counts to {} only",
        i32::MAX
    );
    Error::new(ErrorKind::Unsupported, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm() -> Gemm {
        let factor = |address: u64, leading| GemmOperand {
            address: DevicePtr(address),
            transposed: false,
            leading,
            step: 6,
        };
        Gemm {
            element: GemmType::F32,
            rows: 2,
            inner: 3,
            columns: 5,
            left: factor(0, 3),
            right: factor(1 << 40, 5),
            target: DevicePtr(1 << 50),
            target_step: 10,
            count: 1,
        }
    }

    #[test]
    fn many_products_go_in_several_calls() {
        let many = Gemm {
            count: 70_000,
            ..gemm()
        };
        let calls: Vec<GemmCall> = many.calls().unwrap().collect();
        let counts = calls.iter().map(|call| call.count);
        assert!(counts.eq([32_768, 32_768, 70_000 - 65_536]));
        let last = calls[2].addresses.map(|address| address.0);
        let begin = 65_536 * 4;
        assert_eq!(
            last,
            [(1 << 40) + 6 * begin, 6 * begin, (1 << 50) + 10 * begin]
        );
        assert_eq!(gemm().calls().unwrap().count(), 1);
    }

    #[test]
    fn what_cublas_cannot_count_is_an_error_that_says_so() {
        let long = 1 << 31;
        let cases = [
            Gemm {
                rows: long,
                ..gemm()
            },
            Gemm {
                inner: long,
                ..gemm()
            },
            Gemm {
                columns: long,
                ..gemm()
            },
            Gemm {
                left: GemmOperand {
                    leading: long,
                    ..gemm().left
                },
                ..gemm()
            },
        ];
        for case in cases {
            let Err(error) = case.calls() else {
                panic!("{case:?} has calls");
            };
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(
                text.contains("2147483648") && text.contains("2147483647"),
                "{text}"
            );
        }
    }
}
