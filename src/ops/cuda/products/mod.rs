//! Products of matrices in the memory of a CUDA device.
//!
//! Floats are multiplied by cuBLAS, which sums `f16` and `bf16` in `f32`; integers and products
//! with a vector by kernels of our own, the latter summing as the host does in chunks.

mod matrix;
mod vectors;

use self::matrix::{Matrix, Pairs};
use self::vectors::Vectors;
use super::copy::{Words, copied};
use super::launch::launch;
use super::memory::{Output, computed};
use super::prelude;
use super::walk::{Numbering, blocks_of};
use crate::array::{Array, Layout, Number, Shape};
use crate::device::cuda::{Arguments, GemmType, KernelKey, KernelSource};
use crate::device::{Backend, DevicePtr};
use crate::error::Result;
use crate::ops::index::Copying;
use crate::ops::order::CudaOrder;
use crate::ops::products::as_matrices;

/// The product of two arrays of one or two axes as an array of `shape`, which has as many elements.
/// A vector is a row on the left and a column on the right.
#[track_caller]
pub(in crate::ops) fn multiply<T: Number>(
    order: CudaOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    shape: &Shape,
) -> Result<Array<T>> {
    let left_layout = as_matrices(left.layout(), 0)?;
    let right_layout = as_matrices(right.layout(), 1)?;
    multiply_stacks(order, (left, &left_layout), (right, &right_layout), shape)
}

/// The products of matrices, those of equal numbers, as an array of `shape`, which has as many
/// elements. The last two axes of a layout are those of a matrix.
#[track_caller]
pub(in crate::ops) fn multiply_stacks<T: Number>(
    order: CudaOrder<'_>,
    (left, left_layout): (&Array<T>, &Layout),
    (right, right_layout): (&Array<T>, &Layout),
    shape: &Shape,
) -> Result<Array<T>> {
    let pairs = Pairs::new(left_layout, right_layout);
    let [rows, inner, columns] = pairs.lengths();
    let count = pairs.places.count() * rows * columns;
    assert_eq!(
        count,
        shape.checked_len()?,
        "{shape} does not hold the products"
    );
    // Of these a layout may reach beyond its array, having no elements.
    if count == 0 || inner == 0 {
        return zeros(order, shape);
    }
    let (left, right) = (left.viewed(*left_layout), right.viewed(*right_layout));
    if columns == 1 {
        return with_vectors(order, &left, &right, &pairs, shape);
    }
    if rows == 1 {
        // A row is as good as a column.
        return with_vectors(order, &right, &left, &pairs.transposed(), shape);
    }
    match GemmType::of(T::DTYPE.in_cuda()) {
        Some(element) => by_cublas(order, &left, &right, element, shape),
        None => by_blocks(order, &left, &right, &pairs, shape),
    }
}

/// Writes the product of two matrices of floats to `place`, whose elements are the product's and
/// nobody's else, where cuBLAS reads both where they stand. Answers whether it did.
#[track_caller]
pub(in crate::ops) fn multiply_into<T: Number>(
    order: CudaOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    place: &Array<T>,
) -> Result<bool> {
    let pairs = Pairs::new(left.layout(), right.layout());
    let [rows, inner, columns] = pairs.lengths();
    let Some(element) = GemmType::of(T::DTYPE.in_cuda()) else {
        return Ok(false);
    };
    let stands = |array: &Array<T>| Matrix::of(array.layout()).standing().is_some();
    if rows < 2 || columns < 2 || inner == 0 || !stands(left) || !stands(right) {
        return Ok(false);
    }
    let operands = [left, right].map(|array| Words::of(array).address);
    let gemms = pairs.gemms(element, operands, DevicePtr(place.address()));
    for gemm in gemms.expect("both stand in rows or columns") {
        // SAFETY: the operands hold what their layouts reach, the place has as many elements as the
        // product, as the caller checked, and they are nobody's else; the stream is ordered after
        // who uses the memory.
        order.queue(|stream| unsafe { order.gpu.gemm(stream, &gemm) })?;
    }
    Ok(true)
}

/// Sums of nothing.
#[track_caller]
fn zeros<T: Number>(order: CudaOrder<'_>, shape: &Shape) -> Result<Array<T>> {
    let order = order.touching(&());
    computed(order.device, shape, |output: Output| {
        let bytes = (output.count * size_of::<T>()) as u64;
        // SAFETY: these are the bytes of a new array, which nobody else has.
        order.queue(|stream| unsafe { order.gpu.fill(stream, output.address, bytes, &[0]) })
    })
}

/// Products of which the right matrix has one column.
#[track_caller]
fn with_vectors<T: Number>(
    order: CudaOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    pairs: &Pairs,
    shape: &Shape,
) -> Result<Array<T>> {
    let (matrices, vectors) = (Words::of(left), Words::of(right));
    let products = Vectors::new(Kind::of::<T>(), pairs, [matrices, vectors]);
    let room = products.room(order.device)?;
    let operands = [matrices.address, vectors.address];
    computed(order.device, shape, |output: Output| {
        products.write(order, operands, room.as_ref(), output.address)
    })
}

/// Products of floats.
#[track_caller]
fn by_cublas<T: Number>(
    order: CudaOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    element: GemmType,
    shape: &Shape,
) -> Result<Array<T>> {
    let left = multipliable(order, left)?;
    let right = multipliable(order, right)?;
    let mut pairs = Pairs::new(left.layout(), right.layout());
    let (mut left, mut right) = (left, right);
    let is_broadcast = |array: &Array<T>| Matrices::of(array) == Matrices::Broadcast;
    let most = if is_broadcast(&left) || is_broadcast(&right) {
        MANY_CALLS
    } else {
        FEW_CALLS
    };
    if pairs.calls().is_none_or(|calls| calls > most) {
        // Without gaps, they count along one axis.
        left = uniform(order, left)?;
        right = uniform(order, right)?;
        pairs = Pairs::new(left.layout(), right.layout());
    }
    let both = [left.buffer(), right.buffer()];
    let order = order.touching(&both);
    let operands = [Words::of(&left).address, Words::of(&right).address];
    computed(order.device, shape, |output: Output| {
        let gemms = pairs.gemms(element, operands, output.address);
        for gemm in gemms.expect("both stand in rows or columns, or were copied") {
            // SAFETY: the operands hold what their layouts reach, the output is new and has all
            // products; the stream is ordered after who writes to the operands.
            order.queue(|stream| unsafe { order.gpu.gemm(stream, &gemm) })?;
        }
        Ok(())
    })
}

/// So many calls are worth more than a copy of an operand.
const FEW_CALLS: usize = 4;

/// The same where the copy would repeat what is broadcast.
const MANY_CALLS: usize = 64;

/// The array, or a copy where its matrices stand neither in rows nor in columns.
#[track_caller]
fn multipliable<T: Number>(order: CudaOrder<'_>, array: &Array<T>) -> Result<Array<T>> {
    match Matrix::of(array.layout()).standing() {
        Some(_) => Ok(array.clone()),
        None => copied(
            order.touching(array.buffer()),
            array,
            Copying::All,
            array.layout().shape(),
        ),
    }
}

/// How the matrices of an array follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matrices {
    /// In equal steps.
    Uniform,
    /// Some of them are repeated.
    Broadcast,
    Otherwise,
}

impl Matrices {
    fn of<T: Number>(array: &Array<T>) -> Self {
        let layout = array.layout();
        let places = layout.split_at(layout.ndim() - 2).0.coalesced();
        match *places.strides() {
            [] => Self::Uniform,
            [step] if step >= 0 => Self::Uniform,
            ref steps if steps.contains(&0) => Self::Broadcast,
            _ => Self::Otherwise,
        }
    }
}

/// The array, or a copy where its matrices do not follow one another in equal steps.
#[track_caller]
fn uniform<T: Number>(order: CudaOrder<'_>, array: Array<T>) -> Result<Array<T>> {
    match Matrices::of(&array) {
        Matrices::Uniform => Ok(array),
        _ => copied(
            order.touching(array.buffer()),
            &array,
            Copying::All,
            array.layout().shape(),
        ),
    }
}

/// Products of integers.
#[track_caller]
fn by_blocks<T: Number>(
    order: CudaOrder<'_>,
    left: &Array<T>,
    right: &Array<T>,
    pairs: &Pairs,
    shape: &Shape,
) -> Result<Array<T>> {
    /// Rows and columns of a tile of the result.
    const SIDE: usize = 32;
    let kind = Kind::of::<T>();
    let operands = [Words::of(left), Words::of(right)];
    let limit = operands[0].limit.max(operands[1].limit);
    computed(order.device, shape, |output: Output| {
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
        let key = KernelKey::of::<Blocks>(numbering.form() | kind.form());
        launch(order, key, &source, blocks_of(order.gpu, tiles), &arguments)
    })
}

/// The kernels of [`by_blocks`].
struct Blocks;

fn blocks_source(kind: Kind, numbering: Numbering) -> KernelSource {
    let (item, sum) = (kind.item(), kind.sum());
    let types = format!("typedef {item} item_t;\ntypedef {sum} sum_t;\n");
    let text = [&numbering.text(), &types, include_str!("blocks.cuh")].concat();
    prelude::source(format!("products of {item}"), &text)
}

/// The elements of products: floats by their types, integers by their sizes, because they wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

impl Kind {
    fn of<T: Number>() -> Self {
        match (GemmType::of(T::DTYPE.in_cuda()), size_of::<T>()) {
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

    /// What elements are called in a kernel.
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

    /// What they are summed in.
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

    /// The bits of a form's number that tell it, above those of the numbering.
    fn form(self) -> u32 {
        (self as u32) << 4
    }
}

#[cfg(test)]
mod tests;
