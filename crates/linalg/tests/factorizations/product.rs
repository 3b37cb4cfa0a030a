//! Tests of the product of pivots.

use cachescope_linalg::internal::product;

fn of(factors: &[f64]) -> f64 {
    product(0, factors.iter().copied())
}

#[test]
fn a_product_overflows_where_its_result_does() {
    assert_eq!(of(&[1e200, 1e200, 1e-200, 1e-200]), 1.0);
    assert_eq!(of(&[2.0; 1023]), 2.0_f64.powi(1023));
    assert_eq!(of(&[2.0; 1024]), f64::INFINITY);
    assert_eq!(of(&[0.5; 1074]), f64::from_bits(1));
    assert_eq!(of(&[0.5; 1200]), 0.0);
    assert_eq!(
        of(&[f64::from_bits(1), 1e300, 3.0]),
        f64::from_bits(1) * 1e300 * 3.0
    );
    assert_eq!(of(&[]), 1.0);
    assert_eq!(product(3, [2.0, -3.0].into_iter()), 6.0);
}

#[test]
fn what_is_divided_by_zero_does_not_count() {
    assert_eq!(product(0, [3.0, 0.0, f64::NAN].into_iter()), 0.0);
    assert!(product(0, [f64::NAN, 0.0].into_iter()).is_nan());
}

/// Products with powers of two are exact. If a fraction were not in `1/2..1`, these products would
/// overflow or underflow.
#[test]
fn fractions_and_powers_make_the_number_again() {
    let (large, small) = ([2.0; 1100], [0.5; 1100]);
    for value in [1.0, -3.25, 1e308, 1e-308, 5e-324] {
        assert_eq!(of(&[value]), value);
        for [first, last] in [[large, small], [small, large]] {
            assert_eq!(of(&[&[value], &first[..], &last].concat()), value);
            assert_eq!(of(&[&first[..], &[value], &last].concat()), value);
        }
    }
}
