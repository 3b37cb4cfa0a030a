//! Products of all elements except one.

use crate::array::{AnyArray, AxisSet, bits_of_number};
use crate::error::Result;

/// Returns, for each element, the product of all other elements along `axes`. The computation has
/// no division, so that zeros need no special case. It is in double precision, because the product
/// of some elements may exceed the range of shorter floats.
#[track_caller]
pub(super) fn products_of_others(x: AnyArray, axes: AxisSet) -> Result<AnyArray> {
    let dtype = x.dtype;
    let x = x.converted(dtype.wide())?;
    if x.len() == 0 {
        return x.converted(dtype);
    }
    let (reduced, mut order): (Vec<usize>, Vec<usize>) =
        (0..x.layout.ndim()).partition(|&axis| axes.contains(axis));
    let length: usize = reduced.iter().map(|&axis| x.dims()[axis]).product();
    order.extend(reduced);
    let turned = x.permute(&order)?;
    let rows = turned.reshape(&[x.len() / length, length].into())?;
    let before = products_before(&rows)?;
    let after = products_before(&rows.flip(1)?)?.flip(1)?;
    let products = (before.lazy() * after.lazy()).cast(dtype).eval()?;
    let mut back = vec![0; order.len()];
    for (place, axis) in order.into_iter().enumerate() {
        back[axis] = place;
    }
    products.reshape(turned.shape())?.permute(&back)
}

/// Returns, for each element, the product of the elements before it in its row.
#[track_caller]
fn products_before(rows: &AnyArray) -> Result<AnyArray> {
    let width = rows.dims()[1];
    let first = rows.viewed(rows.layout.part(1, 0..width - 1, 1)?);
    let one = bits_of_number(rows.dtype, 1.0);
    first.framed("prod", &[(0, 0), (1, 0)], one)?.cumprod(1)
}
