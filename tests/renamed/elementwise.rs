//! `elementwise!` in a module where common names have other meanings.

// The module has no prelude and no imports, so the expansion must find everything by the path of
// the crate.
mod bare {
    #![no_implicit_prelude]
    #![allow(non_snake_case, reason = "the names are what might clash")]

    ::scoped::elementwise! {
        /// Uses names that the expansion also uses.
        pub(super) fn lane(a: f32, b: f32) -> f32 {
            let L = a;
            let lane = b.exp();
            if L < lane { L - b.max(0.0) } else { (L * lane) as i8 as f32 }
        }

        pub(super) fn Clone(x: f32) -> f32 {
            -lane(x, 0.0)
        }
    }
}

use bare::{Clone as negated, lane};

#[test]
fn a_function_needs_no_name_of_the_crate() {
    let x = scoped::Array::from_slice(&[-1.5_f32, 2.0], 2).unwrap();
    let y = lane(&x, 0.0).eval().unwrap();
    assert_eq!(y.to_vec().unwrap(), [-1.5, 2.0]);
    let y = (negated(&x) + 1.0).eval().unwrap();
    assert_eq!(y.to_vec().unwrap(), [2.5, -1.0]);
}
