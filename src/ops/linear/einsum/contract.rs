//! The contraction of two operands: a product of matrices, or an elementwise product as an
//! expression.

use smallvec::SmallVec;

use super::path::{Operands, Path};
use super::subscripts::{Label, LabelSet, Labels, Subscripts, members, set_of};
use crate::array::{AnyArray, DType, MAX_RANK, Shape};
use crate::error::Result;
use crate::ops::expression::any_lazy::AnyLazy;
use crate::sorting::sort_axes_descending;

/// An array with a label for each of its axes.
#[derive(Debug)]
pub(super) struct Labelled {
    pub(super) array: AnyArray,
    pub(super) labels: Labels,
}

impl Labelled {
    /// Returns the array with its axes in the order of `order`. Axes that the array does not have
    /// get length 1.
    #[track_caller]
    fn aligned(&self, order: &[Label]) -> Result<AnyArray> {
        let place = |label: &Label| self.labels.iter().position(|own| own == label);
        let axes: SmallVec<[usize; MAX_RANK]> = order.iter().filter_map(place).collect();
        let mut array = self.array.permute(&axes)?;
        for (at, label) in order.iter().enumerate() {
            if !self.labels.contains(label) {
                array = array.unsqueeze(at as isize)?;
            }
        }
        Ok(array)
    }
}

/// An elementwise product of arrays that has not been computed.
#[derive(Debug)]
pub(super) struct Product {
    factors: SmallVec<[Labelled; 2]>,
}

impl Product {
    fn of(factor: Labelled) -> Self {
        Self {
            factors: SmallVec::from_iter([factor]),
        }
    }

    fn dtype(&self) -> DType {
        self.factors[0].array.dtype
    }

    fn labels(&self) -> LabelSet {
        let labels = self.factors.iter().map(|factor| set_of(&factor.labels));
        labels.fold(0, |all, labels| all | labels)
    }

    /// Returns the elements with the axes in the order of `order`. `order` must name all axes. For
    /// a single factor, returns a view.
    #[track_caller]
    pub(super) fn evaluate(&self, order: &[Label]) -> Result<AnyArray> {
        match &self.factors[..] {
            [factor] => factor.aligned(order),
            _ => self.lazy(order)?.eval(),
        }
    }

    /// Returns the sums over the labels that are not in `order`.
    #[track_caller]
    fn sum(&self, order: &[Label]) -> Result<AnyArray> {
        // The summed axes are placed before or after the other axes, as in memory. The sum then
        // reads memory in order.
        let last = order.last().map(|&label| self.reach(label));
        let summed = members(self.labels() & !set_of(order));
        let (before, after): (Labels, Labels) =
            summed.partition(|&label| last.is_some_and(|last| self.reach(label) > last));
        let all = [&before[..], order, &after].concat();
        let reduced = |axis: &usize| !(before.len()..before.len() + order.len()).contains(axis);
        let axes: Vec<isize> = (0..all.len())
            .filter(reduced)
            .map(|axis| axis as isize)
            .collect();
        let elements = self.lazy(&all)?;
        let dtype = elements.dtype();
        let sums = elements.cast(summed_in(dtype)).sum_axis(axes)?;
        in_type(dtype, sums) // Integers are summed in `i64`: the conversion wraps.
    }

    /// Returns the stride of an axis, summed over all factors.
    fn reach(&self, label: Label) -> usize {
        let strides = self.factors.iter().filter_map(|factor| {
            let axis = factor.labels.iter().position(|&own| own == label)?;
            Some(factor.array.layout.strides()[axis].unsigned_abs())
        });
        strides.sum()
    }

    /// Returns the elements as an expression, with the axes in the order of `order`.
    #[track_caller]
    fn lazy(&self, order: &[Label]) -> Result<AnyLazy> {
        let mut product: Option<AnyLazy> = None;
        for factor in &self.factors {
            let factor = factor.aligned(order)?.lazy();
            product = Some(match product {
                None => factor,
                Some(product) => product * factor,
            });
        }
        Ok(product.expect("a product has at least one factor"))
    }
}

fn summed_in(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::Bf16 => DType::F32,
        DType::F32 | DType::F64 | DType::C32 | DType::C64 => dtype,
        _ => DType::I64,
    }
}

/// Returns `array` converted to `dtype`, or the array itself if it has this type.
#[track_caller]
pub(super) fn in_type(dtype: DType, array: AnyArray) -> Result<AnyArray> {
    match array.dtype == dtype {
        true => Ok(array),
        false => array.lazy().cast(dtype).eval(),
    }
}

/// Returns whether `dtype` has too few digits for sums of products.
pub(super) fn is_short(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

/// Sums an operand over the labels that are not `kept`. Without such labels, returns the operand.
#[track_caller]
pub(super) fn summed(operand: Labelled, kept: LabelSet) -> Result<Labelled> {
    let labels = operand.labels.iter().copied();
    let order: Labels = labels.filter(|label| kept >> label & 1 == 1).collect();
    if order.len() == operand.labels.len() {
        return Ok(operand);
    }
    Ok(Labelled {
        array: Product::of(operand).sum(&order)?,
        labels: order,
    })
}

/// A contraction of operands in the order of a path.
#[derive(Debug)]
pub(super) struct Contraction<'a> {
    pub(super) subscripts: &'a Subscripts,
    pub(super) path: &'a Path,
    /// The operands that are not contracted yet.
    pub(super) operands: SmallVec<[Option<Labelled>; 4]>,
    /// The labels of the result, in order.
    pub(super) output: &'a [Label],
}

impl Contraction<'_> {
    /// Returns the contraction of a set of operands.
    #[track_caller]
    pub(super) fn of(&mut self, set: Operands) -> Result<Product> {
        if set.count_ones() == 1 {
            let operand = self.operands[set.trailing_zeros() as usize].take();
            return Ok(Product::of(operand.expect("an operand is contracted once")));
        }
        let (first, second) = self.path.halves(set);
        let (left, right) = (self.of(first)?, self.of(second)?);
        self.pair(left, right, self.path.labels(set))
    }

    #[track_caller]
    fn pair(&self, left: Product, right: Product, kept: LabelSet) -> Result<Product> {
        let (own, others) = (left.labels(), right.labels());
        let summed = own & others & !kept;
        let are_alike = own == others;
        let is_dot = kept == 0 && left.factors.len() == 1 && right.factors.len() == 1;
        let by_elements = are_alike && !is_dot && !is_short(left.dtype());
        if summed != 0 && !by_elements {
            return Ok(Product::of(self.matrices(&left, &right, kept)?));
        }
        let mut both = left;
        both.factors.extend(right.factors);
        if summed == 0 {
            return Ok(both);
        }
        let labels = self.in_order(kept);
        Ok(Product::of(Labelled {
            array: both.sum(&labels)?,
            labels,
        }))
    }

    /// Returns the contraction of two operands as a product of matrices. The product sums over the
    /// labels that both operands have and that are not `kept`.
    #[track_caller]
    fn matrices(&self, left: &Product, right: &Product, kept: LabelSet) -> Result<Labelled> {
        let (own, others) = (left.labels(), right.labels());
        // The operand with the last label of the result has the columns, so that the result need
        // not be transposed.
        let last = self.in_order((own ^ others) & kept).pop();
        if last.is_some_and(|last| own >> last & 1 == 1) {
            return self.ordered_matrices(right, left, kept);
        }
        self.ordered_matrices(left, right, kept)
    }

    #[track_caller]
    fn ordered_matrices(
        &self,
        left: &Product,
        right: &Product,
        kept: LabelSet,
    ) -> Result<Labelled> {
        let (own, others) = (left.labels(), right.labels());
        let batch = self.in_order(own & others & kept);
        let inner = by_reach(left, own & others & !kept);
        let rows = self.in_order(own & !others);
        let columns = self.in_order(others & !own);
        let a = self.stack(left, &batch, &rows, &inner)?;
        let b = self.stack(right, &batch, &inner, &columns)?;
        let labels: Labels = [batch, rows, columns].concat().into();
        let lengths = labels.iter().map(|&label| self.subscripts.length(label));
        let shape: Shape = lengths.collect();
        Ok(Labelled {
            array: a.matmul(&b)?.reshape(&shape)?,
            labels,
        })
    }

    /// Returns the elements as matrices with one axis for `rows` and one axis for `columns`.
    #[track_caller]
    fn stack(
        &self,
        product: &Product,
        batch: &[Label],
        rows: &[Label],
        columns: &[Label],
    ) -> Result<AnyArray> {
        let array = product.evaluate(&[batch, rows, columns].concat())?;
        let length = |label: &Label| self.subscripts.length(*label);
        let count = |labels: &[Label]| labels.iter().map(length).product::<usize>();
        let ends = [count(rows), count(columns)];
        let shape: Shape = if batch.len() + 2 > MAX_RANK {
            [count(batch)].into_iter().chain(ends).collect()
        } else {
            batch.iter().map(length).chain(ends).collect()
        };
        array.reshape(&shape)
    }

    /// Returns the labels of a set. The labels of the result are first, in the order of the result.
    fn in_order(&self, set: LabelSet) -> Labels {
        let known = self.output.iter().copied();
        let known = known.filter(|label| set >> label & 1 == 1);
        known.chain(members(set & !set_of(self.output))).collect()
    }
}

/// Returns the labels of a set in descending order of their strides. In this order, the axes can
/// most often be merged into one axis.
fn by_reach(product: &Product, set: LabelSet) -> Labels {
    let mut labels: Labels = members(set).collect();
    sort_axes_descending(&mut labels, |label| product.reach(label));
    labels
}
