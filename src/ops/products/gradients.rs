//! Steps of matrix products.

use smallvec::smallvec;

use crate::array::{Array, Layout, Number, Shape};
use crate::error::{Error, ErrorCode, Result};
use crate::ops::derivatives::{
    AnyArray, BackwardStep, Gradients, Operand, Pause, SavedArray, Source, Tracked, Upstream,
    bytes_of, is_differentiable, is_live, record, store, work_of,
};
use crate::ops::products::matmul_into;

/// A matrix product of two arrays. While it runs, nothing is tracked; then the step that passes
/// gradients back is recorded.
#[must_use]
pub(in crate::ops) struct Multiplication(Option<RunningProduct>);

struct RunningProduct {
    to: [Option<Tracked>; 2],
    /// The operands, each kept if the other one needs it for its gradient.
    kept: [Option<SavedArray>; 2],
    ranks: [usize; 2],
    source: Option<Source>,
    _pause: Pause,
}

impl Multiplication {
    /// Begins a product.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for integers.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn begin<T: Number>(left: &Array<T>, right: &Array<T>) -> Result<Self> {
        if !is_live() {
            return Ok(Self(None));
        }
        RunningProduct::begin(left, right).map(Self)
    }

    /// Ends the operation, with the product.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn finish<T: Number>(self, product: Array<T>) -> Array<T> {
        match self.0 {
            None => product,
            Some(running) => running.finish(product),
        }
    }
}

impl RunningProduct {
    #[cold]
    #[track_caller]
    fn begin<T: Number>(left: &Array<T>, right: &Array<T>) -> Result<Option<Self>> {
        let to = [
            Tracked::of(left.buffer(), left.layout())?,
            Tracked::of(right.buffer(), right.layout())?,
        ];
        if to == [None, None] {
            return Ok(None);
        }
        if !is_differentiable(T::DTYPE) {
            let text = format!("matmul: no derivative is known for elements of {}", T::NAME);
            return Err(Error::new(ErrorCode::Gradient, text));
        }
        let save = |array: &Array<T>| SavedArray::new(array.buffer(), array.layout(), T::DTYPE);
        let source = store(left.device()).map(|store| {
            let operand =
                |array: &Array<T>| Operand::new(&store, array.buffer(), (array.layout(), T::DTYPE));
            let columns = right.shape().last().copied().unwrap_or(1).max(1);
            let columns = if right.ndim() > 1 { columns } else { 1 };
            let flops = work_of(&[2, left.len(), columns]);
            let run = |operands: &[AnyArray]| {
                let [left, right] = [0, 1].map(|at: usize| operands[at].share().into_array::<T>());
                Ok(smallvec![left.matmul(&right)?.into_erased()])
            };
            let operands = smallvec![operand(left), operand(right)];
            Source::new(operands, flops, Box::new(run))
        });
        Ok(Some(Self {
            to,
            kept: [
                to[1].is_some().then(|| save(left)),
                to[0].is_some().then(|| save(right)),
            ],
            ranks: [left.ndim(), right.ndim()],
            source,
            _pause: Pause::begin(),
        }))
    }

    #[cold]
    #[track_caller]
    fn finish<T: Number>(self, product: Array<T>) -> Array<T> {
        let Self {
            to: [to_left, to_right],
            kept,
            ranks,
            source,
            _pause,
        } = self;
        let saved_bytes = bytes_of(kept.iter());
        let [kept_left, kept_right] = kept;
        let backward = Box::new(move |mut upstream: Upstream, gradients: &mut Gradients| {
            let Some(upstream) = upstream[0].take() else {
                return Ok(());
            };
            let g = as_matrices::<T>(upstream.into_array(), ranks)?;
            // The gradient that reads the left operand is computed first: if the left operand is an
            // activation, it is freed before its own gradient is computed.
            if let (Some(to), Some(left)) = (to_right, kept_left) {
                let left = as_row(left.fetch()?.into_array::<T>(), ranks[0])?;
                let gradient = of_right((&left, &g), &to, gradients)?;
                let gradient = without_axis(gradient, ranks[1], -1)?;
                drop(left);
                gradients.add(to, gradient.into_erased())?;
            }
            if let (Some(to), Some(right)) = (to_left, kept_right) {
                let right = as_column(right.fetch()?.into_array::<T>(), ranks[1])?;
                let gradient = placed_product((&g, &adjoint(&right)?), &to, gradients)?;
                let gradient = without_axis(gradient, ranks[0], -2)?;
                gradients.add(to, gradient.into_erased())?;
            }
            Ok(())
        });
        let layout = *product.layout();
        let back = BackwardStep {
            backward,
            saved_bytes,
            runs_again: false,
            takes_unrounded: false,
            only_once: None,
        };
        let buffer = record((product.into_buffer(), &layout, T::DTYPE), source, |_| back);
        Array::from_parts(buffer, layout)
    }
}

/// Returns the gradient of the right operand: the adjoint of the left one times `g`. If a single
/// matrix on the right had many products, they are computed as one product.
#[track_caller]
fn of_right<T: Number>(
    (left, g): (&Array<T>, &Array<T>),
    to: &Tracked,
    gradients: &Gradients,
) -> Result<Array<T>> {
    if to.layout.ndim() <= 2 && left.ndim() > 2 {
        let (left, g) = (one_matrix(left)?, one_matrix(g)?);
        return placed_product((&adjoint(&left)?, &g), to, gradients);
    }
    placed_product((&adjoint(left)?, g), to, gradients)
}

/// Returns a product that is a gradient: in the memory provided for the gradient, if there is some
/// and the product can be written there. Otherwise in the operand's order in memory, so that the
/// gradient of a matrix whose transpose is the operand is contiguous.
#[track_caller]
fn placed_product<T: Number>(
    (left, right): (&Array<T>, &Array<T>),
    to: &Tracked,
    gradients: &Gradients,
) -> Result<Array<T>> {
    if let Some(place) = gradients.place_of(to)? {
        let place = place.into_array::<T>();
        if matmul_into(left, right, &place)? {
            return Ok(place);
        }
    }
    // Stacks on the left and one matrix on the right are one product, but not in the other order.
    let is_merged = left.ndim() > 2 && right.ndim() <= 2;
    if is_column_major(&to.layout) && !is_merged {
        let product = (right.swap_axes(-1, -2)?).matmul(&left.swap_axes(-1, -2)?)?;
        return product.swap_axes(-1, -2);
    }
    left.matmul(right)
}

/// Returns whether the elements of the columns of matrices are consecutive in memory, and the
/// elements of their rows are not.
fn is_column_major(layout: &Layout) -> bool {
    let (dims, strides) = (layout.dims(), layout.strides());
    matches!((dims, strides), ([.., rows, columns], [.., 1, step]) if *rows > 1 && *columns > 1 && *step != 1)
}

/// Returns the conjugate of transposed matrices; for real ones, a view.
#[track_caller]
fn adjoint<T: Number>(matrices: &Array<T>) -> Result<Array<T>> {
    let transposed = matrices.swap_axes(-1, -2)?;
    match T::DTYPE.is_complex() {
        true => transposed.conj().eval_unfused(),
        false => Ok(transposed),
    }
}

#[track_caller]
fn one_matrix<T: Number>(array: &Array<T>) -> Result<Array<T>> {
    let columns = array.shape()[array.ndim() - 1];
    let rows: usize = array.shape()[..array.ndim() - 1].iter().product();
    array.reshape([rows, columns])
}

/// Returns a matrix: a vector on the left is a row.
#[track_caller]
fn as_row<T: Number>(array: Array<T>, rank: usize) -> Result<Array<T>> {
    if rank == 1 {
        array.unsqueeze(0)
    } else {
        Ok(array)
    }
}

/// Returns a matrix: a vector on the right is a column.
#[track_caller]
fn as_column<T: Number>(array: Array<T>, rank: usize) -> Result<Array<T>> {
    if rank == 1 {
        array.unsqueeze(1)
    } else {
        Ok(array)
    }
}

/// Returns the gradient of a product, with the axes that vectors do not have.
#[track_caller]
fn as_matrices<T: Number>(g: Array<T>, [left, right]: [usize; 2]) -> Result<Array<T>> {
    if left > 1 && right > 1 {
        return Ok(g);
    }
    let mut dims: Vec<usize> = g.shape().to_vec();
    if left == 1 {
        let place = dims.len() - usize::from(right > 1);
        dims.insert(place, 1);
    }
    if right == 1 {
        dims.push(1);
    }
    g.reshape(Shape::from(dims.as_slice()))
}

/// Returns the gradient of an operand of that rank, without `axis` if the operand is a vector.
#[track_caller]
fn without_axis<T: Number>(array: Array<T>, rank: usize, axis: isize) -> Result<Array<T>> {
    if rank == 1 {
        array.squeeze(axis)
    } else {
        Ok(array)
    }
}
