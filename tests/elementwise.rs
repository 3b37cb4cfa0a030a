//! Elementwise operations.

use cachescope::{Array, select};
#[test]
fn literals() {
    let a = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let d = Array::from_slice(&[1.0_f64, 2.0], 2).unwrap();
    let i = Array::from_slice(&[1_i32, 2], 2).unwrap();
    let y = (2.0 * (1.0 - (&a * 2.0)) / 3.0).eval().unwrap();
    assert_eq!(y.to_vec().unwrap(), [-2.0 / 3.0, -2.0]);
    let _ = (2.0 * &d + 1.0).eval().unwrap();
    let _ = (2.0 * (&d + 1.0)).eval().unwrap();
    let _ = (2 * &i + 1).eval().unwrap();
    let _ = a.maximum(0.0).eval().unwrap();
    let _ = (&a + 1.0).maximum(0.0).eval().unwrap();
    let _ = select(a.gt(0.0), 0.0, &a).eval().unwrap();
    let _ = select(d.gt(0.0), &d, 0.0).eval().unwrap();
    let _ = select(d.gt(0.0), 1.0, 0.0).eval().unwrap();
    assert_eq!((&a * 2.0).sum().unwrap().item().unwrap(), 6.0);
    let mut w = a.clone();
    w.assign(&w - 0.1 * &a).unwrap();
    w.update(|w| w - 0.1 * &a).unwrap();
}
