//! The steps of matrix products on the tape.

use smallvec::smallvec;

use crate::array::{AnyArray, DType, Layout, Shape};
use crate::error::{Error, ErrorCode, Result};
use crate::ops::derivatives::{
    BackwardStep, Gradients, Operand, Pause, SavedArray, Source, Tracked, Upstream, bytes_of,
    is_differentiable, is_live, record, store, work_of,
};
use crate::ops::linear::products::matmul_into;

/// The state of a matrix product that is being computed, with or without an addend. The tape is
/// paused until [`finish`](Self::finish), which records the step for the gradients.
#[must_use]
pub(in crate::ops) struct Multiplication(Option<RunningProduct>);

struct RunningProduct {
    to: [Option<Tracked>; 2],
    to_addend: Option<Tracked>,
    /// The saved operands. If the gradient of one operand needs the other operand, the other
    /// operand is saved.
    kept: [Option<SavedArray>; 2],
    ranks: [usize; 2],
    dtype: DType,
    source: Option<Source>,
    _pause: Pause,
}

impl Multiplication {
    /// Begins a product.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if an operand of integers is tracked.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin(
        left: &AnyArray,
        right: &AnyArray,
        addend: Option<&AnyArray>,
    ) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        RunningProduct::begin(left, right, addend).map(Self)
    }

    /// Ends the operation, and returns the product with the recorded step.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish(self, product: AnyArray) -> AnyArray {
        match self.0 {
            None => product,
            Some(running) => running.finish(product),
        }
    }
}

impl RunningProduct {
    #[cold]
    #[track_caller]
    fn begin(left: &AnyArray, right: &AnyArray, addend: Option<&AnyArray>) -> Result<Option<Self>> {
        let to = [
            Tracked::of(&left.buffer, &left.layout)?,
            Tracked::of(&right.buffer, &right.layout)?,
        ];
        let to_addend = match addend {
            Some(addend) => Tracked::of(&addend.buffer, &addend.layout)?,
            None => None,
        };
        if to == [None, None] && to_addend.is_none() {
            return Ok(None);
        }
        if !is_differentiable(left.dtype) {
            let name = left.dtype.name();
            let text = format!("matmul: no derivative is known for elements of {name}");
            return Err(Error::new(ErrorCode::Gradient, text));
        }
        let save = |array: &AnyArray| SavedArray::new(&array.buffer, &array.layout, array.dtype);
        let source = store(left.device()).map(|store| {
            let operand =
                |own: &AnyArray| Operand::new(&store, &own.buffer, (&own.layout, own.dtype));
            let columns = match *right.dims() {
                [.., _, columns] => columns.max(1),
                _ => 1,
            };
            let flops = work_of(&[2, left.len(), columns]);
            let run = |operands: &[AnyArray]| {
                Ok(smallvec![match operands {
                    [left, right, addend] => left.matmul_plus(right, addend)?,
                    operands => operands[0].matmul(&operands[1])?,
                }])
            };
            let operands = [left, right].into_iter().chain(addend);
            Source::new(operands.map(operand).collect(), flops, Box::new(run))
        });
        Ok(Some(Self {
            to,
            to_addend,
            kept: [
                to[1].is_some().then(|| save(left)),
                to[0].is_some().then(|| save(right)),
            ],
            ranks: [left.layout.ndim(), right.layout.ndim()],
            dtype: left.dtype,
            source,
            _pause: Pause::begin(),
        }))
    }

    #[cold]
    #[track_caller]
    fn finish(self, product: AnyArray) -> AnyArray {
        let Self {
            to: [to_left, to_right],
            to_addend,
            kept,
            ranks,
            dtype,
            source,
            _pause,
        } = self;
        let saved_bytes = bytes_of(kept.iter());
        let [kept_left, kept_right] = kept;
        let backward = Box::new(move |mut upstream: Upstream, gradients: &mut Gradients| {
            let Some(upstream) = upstream[0].take() else {
                return Ok(());
            };
            if let Some(to) = to_addend {
                gradients.add(to, upstream.share())?;
            }
            if (to_left, to_right) == (None, None) {
                return Ok(());
            }
            let g = as_matrices(upstream.converted(dtype)?, ranks)?;
            // The gradient that reads the left operand is computed first. If the left operand is an
            // activation, it is freed before its own gradient is computed.
            if let (Some(to), Some(left)) = (to_right, kept_left) {
                let left = as_row(left.fetch()?, ranks[0])?;
                let gradient = of_right((&left, &g), &to, gradients)?;
                let gradient = without_axis(gradient, ranks[1], -1)?;
                drop(left);
                gradients.add(to, gradient)?;
            }
            if let (Some(to), Some(right)) = (to_left, kept_right) {
                let right = as_column(right.fetch()?, ranks[1])?;
                let gradient = placed_product((&g, &adjoint(&right)?), &to, gradients)?;
                let gradient = without_axis(gradient, ranks[0], -2)?;
                gradients.add(to, gradient)?;
            }
            Ok(())
        });
        let AnyArray {
            buffer,
            layout,
            dtype,
        } = product;
        let back = BackwardStep {
            backward,
            saved_bytes,
            runs_again: false,
            takes_unrounded: false,
            only_once: None,
        };
        let buffer = record((buffer, &layout, dtype), source, |_| back);
        AnyArray {
            buffer,
            layout,
            dtype,
        }
    }
}

/// Returns the gradient of the right operand: the adjoint of the left operand times `g`. If a stack
/// was multiplied by a single matrix, the gradient is computed as one product.
#[track_caller]
fn of_right(
    (left, g): (&AnyArray, &AnyArray),
    to: &Tracked,
    gradients: &Gradients,
) -> Result<AnyArray> {
    if to.layout.ndim() <= 2 && left.layout.ndim() > 2 {
        let (left, g) = (one_matrix(left)?, one_matrix(g)?);
        return placed_product((&adjoint(&left)?, &g), to, gradients);
    }
    placed_product((&adjoint(left)?, g), to, gradients)
}

/// Returns the product of `left` and `right`. This product is the gradient of `to`. If `to` was
/// converted from a wider type, the product is not rounded.
///
/// Memory may be provided for the gradient. If a kernel can write to this memory, the product is
/// stored there. Otherwise, if `to` is column-major, the product is column-major, too. So if `to`
/// is the transpose of a matrix, the gradient of the matrix is contiguous.
#[track_caller]
fn placed_product(
    (left, right): (&AnyArray, &AnyArray),
    to: &Tracked,
    gradients: &Gradients,
) -> Result<AnyArray> {
    let is_unrounded = gradients.takes_unrounded(to);
    let multiply = |left: &AnyArray, right: &AnyArray| match is_unrounded {
        true => left.matmul_unrounded(right),
        false => left.matmul(right),
    };
    if !is_unrounded
        && let Some(place) = gradients.place_of(to)?
        && matmul_into(left, right, &place)?
    {
        return Ok(place);
    }
    // An exception: the product of a stack on the left and one matrix on the right is row-major. It
    // is computed as one product, but the transposed product would not be.
    let is_merged = left.layout.ndim() > 2 && right.layout.ndim() <= 2;
    if is_column_major(&to.layout) && !is_merged {
        let product = multiply(&right.swap_axes(-1, -2)?, &left.swap_axes(-1, -2)?)?;
        return product.swap_axes(-1, -2);
    }
    multiply(left, right)
}

/// Returns whether the elements of columns are consecutive in memory, and the elements of rows are
/// not.
fn is_column_major(layout: &Layout) -> bool {
    let (dims, strides) = (layout.dims(), layout.strides());
    matches!((dims, strides), ([.., rows, columns], [.., 1, step]) if *rows > 1 && *columns > 1 && *step != 1)
}

/// Returns the conjugate transposes of matrices. For real matrices, returns a view.
#[track_caller]
fn adjoint(matrices: &AnyArray) -> Result<AnyArray> {
    let transposed = matrices.swap_axes(-1, -2)?;
    match matrices.dtype.is_complex() {
        true => transposed.lazy().conj().eval(),
        false => Ok(transposed),
    }
}

#[track_caller]
fn one_matrix(array: &AnyArray) -> Result<AnyArray> {
    let (columns, before) = array
        .dims()
        .split_last()
        .expect("a stack has at least one axis");
    array.reshape(&[before.iter().product(), *columns].into())
}

/// Returns the left operand as a matrix. A vector becomes a row.
#[track_caller]
fn as_row(array: AnyArray, rank: usize) -> Result<AnyArray> {
    if rank == 1 {
        array.unsqueeze(0)
    } else {
        Ok(array)
    }
}

/// Returns the right operand as a matrix. A vector becomes a column.
#[track_caller]
fn as_column(array: AnyArray, rank: usize) -> Result<AnyArray> {
    if rank == 1 {
        array.unsqueeze(1)
    } else {
        Ok(array)
    }
}

/// Returns the gradient of a product, with an axis of length 1 for each vector operand.
#[track_caller]
fn as_matrices(g: AnyArray, [left, right]: [usize; 2]) -> Result<AnyArray> {
    if left > 1 && right > 1 {
        return Ok(g);
    }
    let mut dims: Vec<usize> = g.dims().to_vec();
    if left == 1 {
        let place = dims.len() - usize::from(right > 1);
        dims.insert(place, 1);
    }
    if right == 1 {
        dims.push(1);
    }
    g.reshape(&Shape::from(dims.as_slice()))
}

/// Returns the gradient of an operand of rank `rank`. If the operand is a vector, removes `axis`.
#[track_caller]
fn without_axis(array: AnyArray, rank: usize, axis: isize) -> Result<AnyArray> {
    if rank == 1 {
        array.squeeze(axis)
    } else {
        Ok(array)
    }
}
