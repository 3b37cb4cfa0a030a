//! Gradients of products' operands that were converted from `f32`. These gradients are not rounded
//! to `bf16`.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Result};
use half::{bf16, f16};

/// The number of rows, which `bf16` does not represent.
const ROWS: usize = 4097;

/// Checks the gradient of a converted operand of a product. `left` is the shape of the other
/// operand. Its elements are 1, so each element of the gradient is a number of rows.
fn check(left: &[usize], right: &[usize], is_transposed: bool) -> Result<()> {
    let x = Array::<bf16>::ones(left)?;
    let weight = Array::<f32>::ones(right)?;
    let (_, gradient) = value_and_grad(&weight, |weight| {
        let weight = weight.cast::<bf16>().eval()?;
        let weight = if is_transposed {
            weight.transpose()?
        } else {
            weight
        };
        x.matmul(&weight)?.cast::<f32>().eval()?.sum()
    })?;
    let expected = (left.iter().product::<usize>() / left[left.len() - 1]) as f32;
    let case = format!("{left:?} and {right:?}");
    for value in gradient.to_vec()? {
        assert_eq!(value, expected, "{case}");
    }
    Ok(())
}

#[test]
fn gradients_of_converted_operands_are_not_rounded() -> Result<()> {
    check(&[ROWS, 3], &[3, 5], false)?;
    check(&[ROWS, 3], &[5, 3], true)?;
    check(&[ROWS, 1], &[1, 5], false)?;
    check(&[ROWS, 3], &[3, 1], false)?;
    check(&[ROWS, 3], &[3], false)?;
    check(&[3, 1367, 4], &[4, 5], false)?;
    check(&[3, 1367, 4], &[5, 4], true)
}

/// A gradient of `f16` is infinite beyond the range of `f16`, so that a step with a scaled loss is
/// skipped.
#[test]
fn gradients_of_f16_keep_its_range() -> Result<()> {
    let x = Array::<f16>::ones([ROWS, 3])?;
    let weight = Array::<f32>::ones([3, 5])?;
    let (_, gradient) = value_and_grad(&weight, |weight| {
        let y = x.matmul(&weight.cast::<f16>().eval()?)?;
        (y.cast::<f32>() * 16.0).sum()
    })?;
    assert_eq!(gradient.to_vec()?, [f32::INFINITY; 15]);
    Ok(())
}

/// The gradient of a narrow parameter has the parameter's type.
#[test]
fn gradients_of_narrow_operands_are_rounded() -> Result<()> {
    let x = Array::<bf16>::ones([ROWS, 3])?;
    let weight = Array::<bf16>::ones([3, 5])?;
    let (_, gradient) = value_and_grad(&weight, |weight| {
        x.matmul(weight)?.cast::<f32>().eval()?.sum()
    })?;
    assert_eq!(gradient.to_vec()?, [bf16::from_f32(4096.0); 15]);
    Ok(())
}
