//! The function `einsum`: sums of products that subscripts describe.

mod contract;
mod path;
mod subscripts;

use smallvec::SmallVec;

use self::contract::{Contraction, Labelled, in_type, is_short, summed};
use self::path::Path;
use self::subscripts::{LabelSet, Labels, Subscripts, set_of};
use crate::array::{AnyArray, AnyElement, Array, DType, Number, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::ops::dispatch::same_device;
use crate::ops::index::check_size;

/// The maximum number of operands of an `einsum`.
const MOST: usize = 8;

/// The operands of an [`einsum`]: a tuple of one to eight `&Array<T>`, or a slice of `&Array<T>`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, einsum};
///
/// let matrices = [Array::<f64>::eye(2)?, Array::<f64>::ones([2, 3])?];
/// let operands: Vec<&Array<f64>> = matrices.iter().collect();
/// assert_eq!(einsum("ij,jk", &operands[..])?, einsum("ij,jk", (&matrices[0], &matrices[1]))?);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the operands of `einsum`",
    label = "expected a tuple of one to eight arrays of numbers of one type",
    note = "write `(&a, &b)`, or `(&a,)` for a single array; to pass an expression, call \
            `.eval()?` first"
)]
pub trait EinsumOperands<'a> {
    /// The type of all elements.
    type Item: Number;

    #[doc(hidden)]
    fn arrays(self) -> SmallVec<[&'a Array<Self::Item>; 4]>;
}

impl<'a, T: Number> EinsumOperands<'a> for &[&'a Array<T>] {
    type Item = T;

    fn arrays(self) -> SmallVec<[&'a Array<T>; 4]> {
        SmallVec::from_slice(self)
    }
}

impl<'a, T: Number, const N: usize> EinsumOperands<'a> for &[&'a Array<T>; N] {
    type Item = T;

    fn arrays(self) -> SmallVec<[&'a Array<T>; 4]> {
        SmallVec::from_slice(self)
    }
}

macro_rules! tuples {
    ($(($($name:ident $of:ident)+))+) => {
        $(
            impl<'a, T: Number> EinsumOperands<'a> for ($(&'a $of<T>,)+) {
                type Item = T;

                fn arrays(self) -> SmallVec<[&'a Array<T>; 4]> {
                    let ($($name,)+) = self;
                    SmallVec::from_slice(&[$($name),+])
                }
            }
        )+
    };
}

tuples! {
    (a Array)
    (a Array b Array)
    (a Array b Array c Array)
    (a Array b Array c Array d Array)
    (a Array b Array c Array d Array e Array)
    (a Array b Array c Array d Array e Array f Array)
    (a Array b Array c Array d Array e Array f Array g Array)
    (a Array b Array c Array d Array e Array f Array g Array h Array)
}

/// Returns the sum of products that `subscripts` describe, like NumPy's `einsum`. The subscripts
/// have a letter for each axis of each operand. After `->`, they have the letters of the result's
/// axes, in order. Axes with equal letters are indexed together. The elements of the operands are
/// multiplied, and summed over the letters that the result lacks.
///
/// Without `->`, the result has the letters that occur once, sorted, capitals first. If an operand
/// has a letter twice, its diagonal is used. `...` matches the axes of an operand that have no
/// letter. These axes broadcast, and are the first axes of an implicit result. As in NumPy, an axis
/// of length 1 broadcasts to the other axes of its letter. Spaces are ignored. The number of
/// operands is one to eight. If there is a single operand and no sum, the result is a view.
///
/// Operands are contracted two at a time, in the order with the fewest multiplications. A product
/// with a sum is a [`matmul`](Array::matmul). Elementwise products are computed in one pass,
/// together with a sum after them. Integers wrap, and the products of `f16` and `bf16` are summed
/// in `f32`.
///
/// # Examples
///
/// ```
/// use cachescope::{Array, einsum};
///
/// let a = Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2])?;
/// let v = Array::from_slice(&[1.0, 10.0], 2)?;
/// assert_eq!(einsum("ij,j->i", (&a, &v))?.to_vec()?, [21.0, 43.0]);
/// assert_eq!(einsum("ii", (&a,))?.item()?, 5.0);
/// assert_eq!(einsum("i,ij,j", (&v, &a, &v))?.item()?, 451.0);
///
/// // The scores of each head of an attention.
/// let q = Array::<f32>::ones([2, 5, 4, 8])?;
/// let k = Array::<f32>::ones([2, 7, 4, 8])?;
/// assert_eq!(einsum("bihd, bjhd -> bhij", (&q, &k))?.shape(), [2, 4, 5, 7]);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Errors
///
/// [`ShapeMismatch`](ErrorKind::ShapeMismatch) if a letter has two lengths, or an operand's number
/// of axes differs from its number of letters. [`InvalidArgument`](ErrorKind::InvalidArgument) if
/// the subscripts name another number of operands, or have other characters.
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the result has a letter twice, has a letter
/// that no operand has, or leaves out `...`. [`InvalidShape`](ErrorKind::InvalidShape) if the
/// result, or an intermediate result, has a rank above 8 or a size that overflows.
/// [`DeviceMismatch`](ErrorKind::DeviceMismatch) and [`OutOfMemory`](ErrorKind::OutOfMemory).
#[track_caller]
pub fn einsum<'a, O: EinsumOperands<'a>>(subscripts: &str, operands: O) -> Result<Array<O::Item>> {
    let operands = operands.arrays();
    let erased: SmallVec<[&AnyArray; 4]> = operands.iter().map(|own| own.erased()).collect();
    sum_products(subscripts, &erased, O::Item::DTYPE).map(Array::from_erased)
}

#[track_caller]
fn sum_products(text: &str, operands: &[&AnyArray], dtype: DType) -> Result<AnyArray> {
    if operands.len() > MOST {
        let text = format!(
            "einsum: {} operands, expected at most {MOST}",
            operands.len()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    let shapes: SmallVec<[&Shape; 4]> = operands.iter().map(|own| own.shape()).collect();
    let subscripts = Subscripts::new(text, &shapes)?;
    for (number, operand) in operands.iter().enumerate() {
        if operand.device() != operands[0].device() {
            let name = format!("operand {number}");
            same_device("einsum", ("operand 0", operands[0]), (&name, operand))?;
        }
    }
    let lengths = subscripts.output.iter().map(|&l| subscripts.length(l));
    let shape: Shape = lengths.collect();
    check_size("einsum", &shape, dtype)?;
    let result = match is_short(dtype) && takes_passes(&subscripts) {
        true => contracted_wide(&subscripts, operands, &shape),
        false => contracted(&subscripts, operands, &shape),
    };
    match result {
        Ok(result) => Ok(result),
        Err(error) => Err(error.of("einsum")),
    }
}

/// Returns whether a contraction has intermediate results. Intermediate results require more than
/// two operands, or a sum over a label of only one of two operands.
fn takes_passes(subscripts: &Subscripts) -> bool {
    let is_long = |&label: &u8| subscripts.length(label) != 1;
    let set_of =
        |labels: &Labels| set_of(&labels.iter().copied().filter(is_long).collect::<Labels>());
    match &subscripts.operands[..] {
        [_] => false,
        [first, second] => {
            let (first, second) = (set_of(first), set_of(second));
            let kept = set_of(&subscripts.output);
            first & !(second | kept) != 0 || second & !(first | kept) != 0
        }
        _ => true,
    }
}

/// Returns a contraction that is computed in `f32`, and rounded once.
#[track_caller]
fn contracted_wide(
    subscripts: &Subscripts,
    operands: &[&AnyArray],
    shape: &Shape,
) -> Result<AnyArray> {
    let wide = operands
        .iter()
        .map(|own| own.lazy().cast(DType::F32).eval());
    let wide: SmallVec<[AnyArray; 4]> = wide.collect::<Result<_>>()?;
    let wide: SmallVec<[&AnyArray; 4]> = wide.iter().collect();
    in_type(operands[0].dtype, contracted(subscripts, &wide, shape)?)
}

#[track_caller]
fn contracted(subscripts: &Subscripts, operands: &[&AnyArray], shape: &Shape) -> Result<AnyArray> {
    let is_long = |&label: &u8| subscripts.length(label) != 1;
    let output: Labels = (subscripts.output.iter().copied())
        .filter(is_long)
        .collect();
    let mut labelled: SmallVec<[Labelled; 4]> = SmallVec::new();
    for (operand, labels) in operands.iter().zip(&subscripts.operands) {
        labelled.push(distinct(operand, labels, subscripts)?);
    }
    let sets: SmallVec<[LabelSet; 4]> = labelled.iter().map(|l| set_of(&l.labels)).collect();
    let mut leaves: SmallVec<[LabelSet; 4]> = SmallVec::new();
    let mut ready: SmallVec<[Option<Labelled>; 4]> = SmallVec::new();
    for (number, operand) in labelled.into_iter().enumerate() {
        let others = sets
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        let kept = others.fold(set_of(&output), |all, (_, labels)| all | labels);
        leaves.push(sets[number] & kept);
        ready.push(Some(summed(operand, kept)?));
    }
    let path = Path::new(subscripts, &leaves, set_of(&output));
    let mut contraction = Contraction {
        subscripts,
        path: &path,
        operands: ready,
        output: &output,
    };
    let all = ((1u16 << operands.len()) - 1) as u8;
    let mut result = contraction.of(all)?.evaluate(&output)?;
    if operands.len() > 1 && !result.layout.is_contiguous() {
        result = result.lazy().eval()?;
    }
    result.reshape(shape)
}

/// Returns a view of an operand without axes of length 1, in which each label occurs once.
#[track_caller]
fn distinct(operand: &AnyArray, labels: &Labels, subscripts: &Subscripts) -> Result<Labelled> {
    let (mut layout, mut labels) = (operand.layout, labels.clone());
    let mut axis = 0;
    while axis < labels.len() {
        let first = labels[..axis].iter().position(|&own| own == labels[axis]);
        if let Some(first) = first {
            layout = layout.diagonal(first, axis);
        } else if layout.dims()[axis] == 1 {
            layout = layout.squeeze(axis as isize)?;
        } else {
            axis += 1;
            continue;
        }
        labels.remove(axis);
    }
    debug_assert!(labels.iter().all(|&label| subscripts.length(label) != 1));
    Ok(Labelled {
        array: operand.viewed(layout),
        labels,
    })
}
