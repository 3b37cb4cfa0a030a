//! Selection of one element of each row by class labels.

use super::invalid;
use super::moves::picked;
use crate::array::{AnyArray, Array};
use crate::error::Result;
use crate::ops::descriptors::Picking;
use crate::ops::host;
use cachescope_kernels::counts::integer_loops_of;

/// Returns the element of each row of `table` at the row's class, for the operation
/// `cross_entropy`. A negative class is an error.
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a class is not the index of a column.
/// On a CUDA device, the kernel checks the classes. The next call that waits for the device returns
/// the error.
#[track_caller]
pub(in crate::ops) fn of_classes(table: &AnyArray, classes: &Array<i64>) -> Result<AnyArray> {
    check_classes(table, classes)?;
    let indices = classes.unsqueeze(1)?;
    let shape = indices.layout().shape();
    picked(table, &indices, Picking::Classes, 1, shape)?.squeeze(1)
}

/// Waits for the classes, and checks that each class is the index of a column. On a CUDA device,
/// only checks that `table` has columns.
#[track_caller]
fn check_classes(table: &AnyArray, classes: &Array<i64>) -> Result<()> {
    let columns = table.dims()[1];
    let shape = table.shape();
    if table.device().backend().cuda().is_some() {
        return match columns {
            0 if !classes.is_empty() => Err(invalid(format!(
                "cross_entropy: logits {shape} have no classes, expected at least one"
            ))),
            _ => Ok(()),
        };
    }
    match host::first_outside(
        integer_loops_of::<i64>(),
        classes.erased(),
        0..columns as i64,
    )? {
        None => Ok(()),
        Some(class) => Err(invalid(format!(
            "cross_entropy: the class {class} is out of range for logits {shape} of {columns} classes"
        ))),
    }
}
