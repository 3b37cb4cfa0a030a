//! Matrix products as plain data: the arguments of cuBLAS.

use crate::device::DevicePtr;
use crate::error::{Error, ErrorKind, Result};

/// The element types that cuBLAS multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmType {
    F16,
    Bf16,
    F32,
    F64,
    C32,
    C64,
}

impl GemmType {
    /// Returns the type whose name in kernels is `name`.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "f16" => Some(Self::F16),
            "bf16" => Some(Self::Bf16),
            "f32" => Some(Self::F32),
            "f64" => Some(Self::F64),
            "c32" => Some(Self::C32),
            "c64" => Some(Self::C64),
            _ => None,
        }
    }

    /// Returns the size of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 | Self::C32 => 8,
            Self::C64 => 16,
        }
    }
}

/// One operand of a batched product. All lengths are counted in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmOperand {
    pub address: DevicePtr,
    /// Set if the matrix is stored column-major.
    pub transposed: bool,
    /// The leading dimension: the distance between rows, or between columns if `transposed`.
    pub leading: usize,
    /// The distance between matrices of the batch; may be 0.
    pub step: usize,
}

/// A batch of matrix products with row-major, contiguous results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// The type of the operands.
    pub element: GemmType,
    /// The type of the products: the operands' type. Products of `F16` or `Bf16` may also be `F32`.
    pub product: GemmType,
    /// The rows of each product. `rows`, `inner` and `columns` are above 0.
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
    pub left: GemmOperand,
    pub right: GemmOperand,
    pub target: DevicePtr,
    /// Set if the products are added to the values of the target.
    pub is_begun: bool,
    /// The distance between products.
    pub target_step: usize,
    /// The batch size.
    pub count: usize,
}

/// The arguments of one call of cuBLAS, which is column-major. The operands of a [`Gemm`] are
/// swapped, because (AB)ᵀ = BᵀAᵀ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmCall {
    /// Set for each operand that is transposed.
    pub transposed: [bool; 2],
    /// cuBLAS's m, n and k: the rows and columns of the column-major product, and the inner length.
    pub lengths: [i32; 3],
    /// The operands and the product.
    pub addresses: [DevicePtr; 3],
    pub leading: [i32; 3],
    pub steps: [i64; 3],
    pub count: i32,
}

/// The maximum batch of one call, because older versions of cuBLAS count batches in 16 bits. A
/// larger batch needs several calls.
const MAX_BATCH: usize = 1 << 15;

impl Gemm {
    /// Returns the calls that compute the batch.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if a length exceeds 31 bits.
    #[cfg_attr(
        all(not(feature = "cuda"), not(test)),
        allow(dead_code, reason = "only the CUDA backend calls the function")
    )]
    pub fn calls(&self) -> Result<impl Iterator<Item = GemmCall> + use<>> {
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
        let (all, element) = (self.count, self.element.bytes());
        let bytes = [element, element, self.product.bytes()];
        Ok((0..all).step_by(MAX_BATCH).map(move |start| {
            let mut call = first;
            let steps = call.steps.into_iter().zip(bytes);
            for (address, (step, bytes)) in call.addresses.iter_mut().zip(steps) {
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
        "matmul: {number} {what}, expected at most {}, cuBLAS's limit",
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
            product: GemmType::F32,
            rows: 2,
            inner: 3,
            columns: 5,
            left: factor(0, 3),
            right: factor(1 << 40, 5),
            target: DevicePtr(1 << 50),
            is_begun: false,
            target_step: 10,
            count: 1,
        }
    }

    #[test]
    fn many_products_take_several_calls() {
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
    fn a_size_beyond_cublas_is_an_error() {
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
