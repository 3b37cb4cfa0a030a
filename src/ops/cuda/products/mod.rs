//! Products of matrices in the memory of a CUDA device.
//!
//! cuBLAS multiplies matrices of floats. It sums `f16` and `bf16` in `f32`. cublasLt adds a bias
//! before it rounds the sums.
//!
//! The kernels of this module multiply matrices of integers, and matrices with vectors. The kernels
//! sum products with a vector in chunks, like the host.

mod matrix;
mod operands;
mod vectors;

use self::matrix::{Matrix, Pairs, ProductTarget};
use self::operands::BlasOperands;
use self::vectors::Vectors;
use super::copy::{Words, copy};
use super::launch::launch;
use super::memory::{Output, address_of, computed, zeros};
use super::prelude;
use super::walk::{Numbering, blocks_of};
use crate::array::{AnyArray, DType, Layout, Shape};
use crate::device::cuda::{Arguments, GemmType, KernelKey, KernelSource};
use crate::error::Result;
use crate::ops::descriptors::{Copying, as_matrices};
use crate::ops::expression::tree::Operand;
use crate::ops::order::{CudaOrder, UpdateTargets};

/// Returns the product of two arrays of one or two axes as an array of `shape`. The shape has as
/// many elements as the product. Both arrays have one element type. A vector is a row on the left
/// and a column on the right.
#[track_caller]
pub(in crate::ops) fn multiply(
    order: CudaOrder<'_>,
    left: Operand<'_>,
    right: Operand<'_>,
    shape: &Shape,
) -> Result<AnyArray> {
    let left_layout = as_matrices(left.layout, 0)?;
    let right_layout = as_matrices(right.layout, 1)?;
    let product = (shape, left.dtype);
    multiply_stacks(order, (left, &left_layout), (right, &right_layout), product)
}

/// Returns the products of pairs of matrices as an array of `shape` and `dtype`. The shape has as
/// many elements as the products. Both arrays have one element type, which is `dtype`. For operands
/// of `f16` or `bf16`, `dtype` may also be `f32`. The last two axes of a layout are a matrix.
#[track_caller]
pub(in crate::ops) fn multiply_stacks(
    order: CudaOrder<'_>,
    (left, left_layout): (Operand<'_>, &Layout),
    (right, right_layout): (Operand<'_>, &Layout),
    (shape, dtype): (&Shape, DType),
) -> Result<AnyArray> {
    assert_eq!(left.dtype, right.dtype, "the operands differ in type");
    let pairs = Pairs::new(left_layout, right_layout);
    let [rows, inner, columns] = pairs.lengths();
    let count = pairs.places.count() * rows * columns;
    assert_eq!(
        count,
        shape.checked_len()?,
        "{shape} does not hold the products"
    );
    // A layout without elements may reach beyond its array.
    if count == 0 || inner == 0 {
        // The products are sums without terms.
        return zeros(order, dtype, shape);
    }
    if dtype != left.dtype && (rows == 1 || columns == 1) {
        let sums = zeros(order, dtype, shape)?;
        add_stacks(
            order,
            (left, left_layout),
            (right, right_layout),
            sums.operand(),
        )?;
        return Ok(sums);
    }
    let (left, right) = (left.viewed(left_layout), right.viewed(right_layout));
    if columns == 1 {
        return with_vectors(order, left, right, &pairs, shape);
    }
    if rows == 1 {
        // A product with one row is the transpose of a product with one column.
        return with_vectors(order, right, left, &pairs.transposed(), shape);
    }
    let types = [left.dtype, dtype].map(|dtype| GemmType::of(dtype.in_cuda()));
    let [Some(element), Some(product)] = types else {
        return by_blocks(order, left, right, &pairs, shape);
    };
    let operands = BlasOperands::new(order, left, right)?;
    let both = operands.buffers();
    computed(order.device, dtype, shape, |output: Output| {
        let target = ProductTarget {
            address: output.address,
            element: product,
            is_begun: false,
        };
        operands.multiply(order.touching(&both), element, target)
    })
}

/// Adds the products of floats to the elements of `place`, like [`multiply_stacks`]. `place` has
/// one element for each element of the products. The elements have the operands' type. For operands
/// of `f16` or `bf16`, they may also be `f32`. Nothing else may read or write `place`.
#[track_caller]
pub(in crate::ops) fn add_stacks(
    order: CudaOrder<'_>,
    (left, left_layout): (Operand<'_>, &Layout),
    (right, right_layout): (Operand<'_>, &Layout),
    place: Operand<'_>,
) -> Result<()> {
    let element = GemmType::of(left.dtype.in_cuda()).expect("the elements are floats");
    assert_eq!(left.dtype, right.dtype, "the operands differ in type");
    let pairs = Pairs::new(left_layout, right_layout);
    let [rows, inner, columns] = pairs.lengths();
    let count = pairs.places.count() * rows * columns;
    assert!(
        place.layout.is_contiguous() && place.layout.len() == count && inner > 0,
        "{:?} does not hold the products",
        place.layout
    );
    let (left, right) = (left.viewed(left_layout), right.viewed(right_layout));
    let target = ProductTarget {
        address: address_of(place),
        element: GemmType::of(place.dtype.in_cuda()).expect("the elements are floats"),
        is_begun: true,
    };
    if rows > 1 && columns > 1 {
        let operands = BlasOperands::new(order, left, right)?;
        let touched = UpdateTargets {
            targets: &[place.buffer],
            reading: operands.buffers(),
        };
        return operands.multiply(order.touching(&touched), element, target);
    }
    let (left, right, pairs) = match columns {
        1 => (left, right, pairs),
        // A product with one row is the transpose of a product with one column.
        _ => (right, left, pairs.transposed()),
    };
    let operands = [Words::of(left), Words::of(right)];
    let products = Vectors::new(ProductKind::of(left.dtype), &pairs, operands);
    let products = products.added_to(target.element != element);
    let scratch = products.scratch(order.device)?;
    let operands = operands.map(|words| words.address);
    products.write(order, operands, scratch.as_ref(), target.address)
}

/// Returns the product of two matrices of floats plus `bias`, as an array of `shape` and of the
/// bias's type. The type is the operands' type. For operands of `f16` or `bf16`, it may also be
/// `f32`. The product has several rows and columns. `bias` has one element for each column, without
/// gaps, and broadcasts to `shape`.
#[track_caller]
pub(in crate::ops) fn multiply_with_bias(
    order: CudaOrder<'_>,
    (left, left_layout): (Operand<'_>, &Layout),
    (right, right_layout): (Operand<'_>, &Layout),
    bias: Operand<'_>,
    shape: &Shape,
) -> Result<AnyArray> {
    let [element, sum] = [left.dtype, bias.dtype]
        .map(|dtype| GemmType::of(dtype.in_cuda()).expect("the elements are floats"));
    assert_eq!(left.dtype, right.dtype, "the operands differ in type");
    let (left, right) = (left.viewed(left_layout), right.viewed(right_layout));
    let operands = BlasOperands::new(order, left, right)?;
    let [rows, inner, columns] = operands.pairs.lengths();
    assert!(
        inner > 0 && operands.pairs.places.count() == 1,
        "there is one product"
    );
    assert!(
        rows * columns == shape.checked_len()? && columns == bias.layout.len(),
        "{shape} does not hold the product, or {:?} has no element for each column",
        bias.layout
    );
    let repeated = bias.layout.broadcast_to(shape)?;
    let [left, right] = operands.buffers();
    let touched = [left, right, bias.buffer];
    let order = order.touching(&touched);
    computed(order.device, bias.dtype, shape, |output: Output| {
        let target = ProductTarget {
            address: output.address,
            element: sum,
            is_begun: false,
        };
        if operands.multiply_with_bias(order, element, target, address_of(bias))? {
            return Ok(());
        }
        let copies = Words::new(output, bias.dtype);
        let walk = Copying::All.walk(&repeated);
        // SAFETY: the walk visits the elements of the bias and all elements of the output, which
        // have equal shapes. The output is new.
        unsafe { copy(order, Words::of(bias.viewed(&repeated)), copies, &walk) }?;
        let is_begun = true;
        operands.multiply(order, element, ProductTarget { is_begun, ..target })
    })
}

/// Writes the product of two matrices of floats to `place`, if cuBLAS can read both operands in
/// place. Returns whether the product was written. All three arrays have one type. `place` must
/// have exactly the elements of the product. Nothing else may read or write `place`.
#[track_caller]
pub(in crate::ops) fn multiply_into(
    order: CudaOrder<'_>,
    left: Operand<'_>,
    right: Operand<'_>,
    place: Operand<'_>,
) -> Result<bool> {
    let dtype = place.dtype;
    assert_eq!(
        [left.dtype, right.dtype],
        [dtype; 2],
        "the operands differ in type"
    );
    let pairs = Pairs::new(left.layout, right.layout);
    let [rows, inner, columns] = pairs.lengths();
    let Some(element) = GemmType::of(dtype.in_cuda()) else {
        return Ok(false);
    };
    let fits_blas = |array: Operand<'_>| Matrix::of(array.layout).blas_layout().is_some();
    if rows < 2 || columns < 2 || inner == 0 || !fits_blas(left) || !fits_blas(right) {
        return Ok(false);
    }
    let operands = [left, right].map(|array| Words::of(array).address);
    let target = ProductTarget {
        address: address_of(place),
        element,
        is_begun: false,
    };
    let gemms = pairs.gemms(element, operands, target);
    for gemm in gemms.expect("the rows or the columns of both operands are contiguous") {
        // SAFETY: the operands have all elements that their layouts reach. The caller ensures that
        // `place` has the elements of the product, and that nothing else uses `place`. The stream
        // is ordered after all earlier uses of the memory.
        order.queue(|stream| unsafe { order.gpu.gemm(stream, &gemm) })?;
    }
    Ok(true)
}

/// Returns products of matrices with vectors. Each right matrix has one column.
#[track_caller]
fn with_vectors(
    order: CudaOrder<'_>,
    left: Operand<'_>,
    right: Operand<'_>,
    pairs: &Pairs,
    shape: &Shape,
) -> Result<AnyArray> {
    let (matrices, vectors) = (Words::of(left), Words::of(right));
    let products = Vectors::new(ProductKind::of(left.dtype), pairs, [matrices, vectors]);
    let scratch = products.scratch(order.device)?;
    let operands = [matrices.address, vectors.address];
    computed(order.device, left.dtype, shape, |output: Output| {
        products.write(order, operands, scratch.as_ref(), output.address)
    })
}

/// Returns products of matrices of integers.
#[track_caller]
fn by_blocks(
    order: CudaOrder<'_>,
    left: Operand<'_>,
    right: Operand<'_>,
    pairs: &Pairs,
    shape: &Shape,
) -> Result<AnyArray> {
    /// The number of rows, and of columns, of a tile of the result.
    const SIDE: usize = 32;
    let kind = ProductKind::of(left.dtype);
    let operands = [Words::of(left), Words::of(right)];
    let limit = operands[0].limit.max(operands[1].limit);
    computed(order.device, left.dtype, shape, |output: Output| {
        let [rows, inner, columns] = pairs.lengths();
        let tiles = pairs.places.count() * rows.div_ceil(SIDE) * columns.div_ceil(SIDE);
        let numbering = Numbering::of(&pairs.places, limit.max(output.count).max(tiles));
        let mut arguments = Arguments::default();
        for address in [operands[0].address, operands[1].address, output.address] {
            arguments.push(address.0);
        }
        numbering.push(&mut arguments, &pairs.places);
        let lengths = [rows, inner, columns].map(|length| length as u64);
        let steps = [pairs.left, pairs.right].map(|matrix| [matrix.row_step, matrix.column_step]);
        let steps = steps.as_flattened().iter().map(|&step| step as u64);
        let numbers: Vec<u64> = lengths.into_iter().chain(steps).collect();
        numbering.push_numbers(&mut arguments, &numbers);
        arguments.push(tiles as u64);
        let source = || blocks_source(kind, numbering);
        let key = KernelKey::of::<BlockKernels>(numbering.form() | kind.form());
        launch(order, key, &source, blocks_of(tiles), &arguments)
    })
}

struct BlockKernels;

fn blocks_source(kind: ProductKind, numbering: Numbering) -> KernelSource {
    let (item, sum) = (kind.item(), kind.sum());
    let types = format!("typedef {item} item_t;\ntypedef {sum} sum_t;\n");
    let text = [&numbering.text(), &types, include_str!("blocks.cuh")].concat();
    prelude::source(format!("products of {item}"), &text)
}

/// The element type of products. Integers of one size have one kind, because signed and unsigned
/// wrapping products have equal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProductKind {
    F16,
    Bf16,
    F32,
    F64,
    C32,
    C64,
    Of8,
    Of16,
    Of32,
    Of64,
}

impl ProductKind {
    fn of(dtype: DType) -> Self {
        match (GemmType::of(dtype.in_cuda()), dtype.size_bytes()) {
            (Some(GemmType::F16), _) => Self::F16,
            (Some(GemmType::Bf16), _) => Self::Bf16,
            (Some(GemmType::F32), _) => Self::F32,
            (Some(GemmType::F64), _) => Self::F64,
            (Some(GemmType::C32), _) => Self::C32,
            (Some(GemmType::C64), _) => Self::C64,
            (None, 1) => Self::Of8,
            (None, 2) => Self::Of16,
            (None, 4) => Self::Of32,
            (None, _) => Self::Of64,
        }
    }

    /// Returns the CUDA C++ type of the elements.
    fn item(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C32 => "c32",
            Self::C64 => "c64",
            Self::Of8 => "u8",
            Self::Of16 => "u16",
            Self::Of32 => "u32",
            Self::Of64 => "u64",
        }
    }

    /// Returns the CUDA C++ type of the sums.
    fn sum(self) -> &'static str {
        match self {
            Self::F16 | Self::Bf16 | Self::F32 => "f32",
            Self::F64 => "f64",
            Self::C32 => "c32",
            Self::C64 => "c64",
            Self::Of8 | Self::Of16 | Self::Of32 => "u32",
            Self::Of64 => "u64",
        }
    }

    fn sum_bytes(self) -> usize {
        match self {
            Self::F64 | Self::Of64 | Self::C32 => 8,
            Self::C64 => 16,
            _ => 4,
        }
    }

    /// Returns the bits of a kernel's form that identify the kind. These bits are above the bits of
    /// the numbering.
    fn form(self) -> u32 {
        (self as u32) << 4
    }
}

#[cfg(test)]
mod tests;
