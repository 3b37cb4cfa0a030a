//! Gradients of products' operands that were converted from a wider type. These gradients are not
//! rounded to the narrow type.

use cachescope::grad::value_and_grad;
use cachescope::{Array, Float, Result};
use half::{bf16, f16};

/// The number of rows. A narrow float does not represent this number.
const ROWS: usize = 4097;

/// Checks the gradient of a converted operand of a product. `left` is the shape of the other
/// operand. Its elements are 1, so each element of the gradient is a number of rows.
fn check<T: Float>(left: &[usize], right: &[usize], is_transposed: bool) -> Result<()> {
    let x = Array::<T>::ones(left)?;
    let weight = Array::<f32>::ones(right)?;
    let (_, gradient) = value_and_grad(&weight, |weight| {
        let weight = weight.cast::<T>().eval()?;
        let weight = if is_transposed {
            weight.transpose()?
        } else {
            weight
        };
        x.matmul(&weight)?.cast::<f32>().eval()?.sum()
    })?;
    let expected = (left.iter().product::<usize>() / left[left.len() - 1]) as f32;
    let case = format!("{} of {left:?} and {right:?}", T::DTYPE.name());
    for value in gradient.to_vec()? {
        assert_eq!(value, expected, "{case}");
    }
    Ok(())
}

fn check_all<T: Float>() -> Result<()> {
    check::<T>(&[ROWS, 3], &[3, 5], false)?;
    check::<T>(&[ROWS, 3], &[5, 3], true)?;
    check::<T>(&[ROWS, 1], &[1, 5], false)?;
    check::<T>(&[ROWS, 3], &[3, 1], false)?;
    check::<T>(&[ROWS, 3], &[3], false)?;
    check::<T>(&[3, 1367, 4], &[4, 5], false)?;
    check::<T>(&[3, 1367, 4], &[5, 4], true)
}

#[test]
fn gradients_of_converted_operands_are_not_rounded() -> Result<()> {
    check_all::<bf16>()?;
    check_all::<f16>()
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
