//! Products, and operations on pairs of elements.

use cachescope::{Array, ErrorKind, Numeric, Result};

use super::{Expected, Failures, MAX, MISMATCH, SHAPES, on_small_device, stepping, wide};
use Expected::Shape;

/// Returns the shape of a product, by NumPy's rules.
fn product(left: &[usize], right: &[usize]) -> Expected {
    let (Some(&inner), Some(&last)) = (left.last(), right.last()) else {
        return MISMATCH;
    };
    let depth = if right.len() > 1 {
        right[right.len() - 2]
    } else {
        last
    };
    if inner != depth {
        return MISMATCH;
    }
    let before = |shape: &[usize]| wide(&shape[..shape.len().saturating_sub(2)]);
    let Some(mut shape) = broadcast(&before(left), &before(right)) else {
        return MISMATCH;
    };
    if left.len() > 1 {
        shape.push(left[left.len() - 2] as u128);
    }
    if right.len() > 1 {
        shape.push(last as u128);
    }
    Shape(shape)
}

fn broadcast(left: &[u128], right: &[u128]) -> Option<Vec<u128>> {
    let rank = left.len().max(right.len());
    let length = |shape: &[u128], axis: usize| {
        let lead = rank - shape.len();
        if axis < lead { 1 } else { shape[axis - lead] }
    };
    let lengths = (0..rank).map(|axis| match (length(left, axis), length(right, axis)) {
        (left, right) if left == right => Some(left),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    });
    lengths.collect()
}

fn check<T: Numeric>() -> Result<()> {
    let mut failures = Failures::default();
    on_small_device(|| {
        let arrays = SHAPES.iter().map(|&shape| Array::<T>::ones(shape));
        let arrays: Vec<Array<T>> = arrays.collect::<Result<_>>()?;
        for (left, right) in arrays
            .iter()
            .flat_map(|left| arrays.iter().map(move |right| (left, right)))
        {
            let shapes = (left.shape(), right.shape());
            let expected = product(left.shape(), right.shape());
            failures.expect(("matmul", shapes), expected, || left.matmul(right));
            let turned = right.transpose()?;
            let expected = product(left.shape(), turned.shape());
            let call = ("matmul", shapes, "transposed");
            failures.expect(call, expected, || left.matmul(&turned));
            let expected = match shapes {
                ([rows], [columns]) => Shape(wide(&[*rows, *columns])),
                _ => MISMATCH,
            };
            failures.expect(("outer", shapes), expected, || left.outer(right));
            let expected = match shapes {
                ([one], [other]) if one == other => Shape(vec![]),
                _ => MISMATCH,
            };
            failures.expect(("dot", shapes), expected, || left.dot(right));
            let sum = broadcast(&wide(left.shape()), &wide(right.shape()));
            let expected = sum.map_or(MISMATCH, Shape);
            failures.expect(("add", shapes), expected, || (left + right).eval());
        }
        Ok(())
    })?;
    failures.none();
    Ok(())
}

#[test]
fn pairs_of_arrays() -> Result<()> {
    check::<f32>()?;
    check::<u8>()?;
    check::<i64>()
}

/// The calls are from a bug report.
#[test]
fn a_long_step_and_a_large_product() -> Result<()> {
    on_small_device(|| {
        let wide = Array::<f32>::zeros([0, MAX])?;
        let sliced = stepping(&wide, 1, 1 << 40)?;
        assert_eq!((&sliced + 1.0).eval()?.shape(), [0, 1 << 23]);
        let (left, right) = (
            Array::<f32>::zeros([1 << 40, 0])?,
            Array::zeros([0, 1 << 40])?,
        );
        crate::arrays::fails(left.matmul(&right), ErrorKind::InvalidShape, "matmul");
        let (left, right) = (left.unsqueeze(0)?, right.unsqueeze(0)?);
        crate::arrays::fails(left.matmul(&right), ErrorKind::InvalidShape, "matmul");
        Ok(())
    })
}
