//! Operations that select, join and move elements.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result, concat, stack};

use crate::grad::differences::{check, numbers};

#[test]
fn take_and_gather() -> Result<()> {
    let x = numbers(&[4, 3], 1.0);
    let rows = Array::from_slice(&[2_i64, 0, 2, -1, 1, 2], [3, 2])?;
    check(&x, |x| (x.take(&rows, 0)? * numbers(&[3, 2, 3], 1.0)).sum());
    let columns = Array::from_slice(&[2_i64, 0, 2, -1], 4)?;
    check(&x, |x| {
        (x.take(&columns, 1)?.exp() * numbers(&[4, 4], 1.0)).sum()
    });
    let places = Array::from_slice(&[2_i64, 0, 1, -1], [4, 1])?;
    check(&x, |x| {
        (x.gather(&places, 1)? * numbers(&[4, 1], 1.0)).sum()
    });
    check(&x, |x| {
        (x.transpose()?.gather(&places.transpose()?, 0)? * numbers(&[1, 4], 1.0)).sum()
    });
    Ok(())
}

#[test]
fn concat_and_stack() {
    let x = numbers(&[2, 3], 1.0);
    let other = numbers(&[1, 3], 0.5);
    check(&x, |x| {
        let y = x.sin().eval()?;
        (concat(&[&y, &other, x, &y], 0)? * numbers(&[7, 3], 1.0)).sum()
    });
    check(&x, |x| {
        (stack(&[x, x, &numbers(&[2, 3], 2.0)], 1)? * numbers(&[2, 3, 3], 1.0)).sum()
    });
}

#[test]
fn reshapes_that_copy() {
    check(&numbers(&[2, 3, 4], 1.0), |x| {
        let turned = x.permute(&[1, 0, 2])?.reshape([3, 8])?;
        (turned * numbers(&[3, 8], 1.0)).square().sum()
    });
}

#[test]
fn triangles() {
    check(&numbers(&[3, 4], 1.0), |x| {
        (x.tril(1)? * numbers(&[3, 4], 1.0)).sum()
    });
    check(&numbers(&[2, 3, 4], 1.0), |x| {
        (x.triu(-1)?.exp() * numbers(&[2, 3, 4], 1.0)).sum()
    });
}

#[test]
fn cross_entropy() -> Result<()> {
    let classes = Array::from_slice(&[2_i64, 0, 1, 2], 4)?;
    check(&numbers(&[4, 3], 2.0), |x| x.cross_entropy(&classes));
    check(&numbers(&[4, 3], 2.0), |x| {
        (x * x).eval()?.cross_entropy(&classes)
    });
    // A prediction that is certain and right has no gradient, for narrow floats and for many rows.
    let rows = 5000;
    let logits: Vec<f32> = (0..2 * rows)
        .map(|at| if at % 2 == 0 { 30.0 } else { -30.0 })
        .collect();
    let logits = Array::from_vec(logits, [rows, 2])?
        .cast::<half::f16>()
        .eval()?;
    let classes = Array::<i64>::zeros(rows)?;
    let (_, gradient) = value_and_grad(&logits, |logits| logits.cross_entropy(&classes))?;
    assert!(
        !gradient
            .slice(ndarray::s![.., 0])?
            .ne(half::f16::ZERO)
            .any()?
            .item()?
    );
    Ok(())
}

#[test]
fn an_attention_by_hand() {
    check(&numbers(&[2, 4, 6], 1.0), |x| {
        let heads = |x: &Array<f64>| x.reshape([2, 4, 2, 3])?.permute(&[0, 2, 1, 3]);
        let (q, k, v) = (
            heads(x)?,
            heads(&(x * 0.7).eval()?)?,
            heads(&x.sin().eval()?)?,
        );
        let scores = (q.matmul(&k.swap_axes(-1, -2)?)? * 0.5).softmax(-1)?;
        let out = scores
            .matmul(&v)?
            .permute(&[0, 2, 1, 3])?
            .reshape([2, 4, 6])?;
        (out * numbers(&[2, 4, 6], 1.0)).sum()
    });
}

#[test]
fn edges_of_rules() -> Result<()> {
    use cachescope::grad::value_and_grad;
    // `scatter_add` writes no elements to the view `y`.
    check(&numbers(&[3, 2], 1.0), |x| {
        let mut y = x.transpose()?;
        let none = Array::<i64>::zeros([2, 0])?;
        y.scatter_add(&none, &Array::zeros([2, 0])?, 1)?;
        (y * numbers(&[2, 3], 1.0)).sum()
    });
    // The rows have no elements.
    let empty = Array::<f64>::zeros([3, 0])?;
    let bias = Array::<f64>::zeros(0)?;
    let (_, gradient) = value_and_grad(&empty, |x| x.layer_norm(&bias, &bias, 1e-5)?.sum())?;
    assert_eq!(gradient.shape(), [3, 0]);
    // The products of some factors are beyond the range of half precision.
    let values = [1e4, 1e4, 1e-4, 1e-4].map(half::f16::from_f32);
    let x = Array::from_slice(&values, 4)?;
    let (_, gradient) = value_and_grad(&x, |x| x.prod())?;
    let last = gradient.to_vec()?[3].to_f32();
    assert!((last / 1e4 - 1.0).abs() < 0.01, "{last}");
    Ok(())
}
