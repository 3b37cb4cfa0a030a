//! Calls that fail because of the elements' values, or because there are no elements.

use cachescope::{Array, ErrorKind, concat, stack};

use super::{ones, places, refused};

#[test]
fn reductions_of_nothing() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 0]);
    refused(a.max(), KIND, &["max", "[2, 0]"]);
    refused(a.min(), KIND, &["min", "[2, 0]"]);
    refused(a.argmax(), KIND, &["argmax", "[2, 0]"]);
    refused(a.argmin(), KIND, &["argmin", "[2, 0]"]);
    refused(a.max_axis(1), KIND, &["max", "[2, 0]"]);
    refused(a.min_axis(-1), KIND, &["min", "[2, 0]"]);
    refused(a.argmax_axis(1), KIND, &["argmax", "[2, 0]"]);
    refused(a.argmin_axis(1), KIND, &["argmin", "[2, 0]"]);
    refused((&a + 1.0).max(), KIND, &["max", "[2, 0]"]);
    // Along axis 0 there are no lanes, so the result is empty.
    assert_eq!(a.max_axis(0).unwrap().shape(), [0]);
    assert_eq!(a.argmin_axis(0).unwrap().shape(), [0]);
    // An operation with an identity element returns this element.
    assert_eq!(a.sum_axis(1).unwrap().to_vec().unwrap(), [0.0, 0.0]);
    assert!(a.mean().unwrap().item().unwrap().is_nan());
}

#[test]
fn integers_divided_by_zero_give_zero() {
    macro_rules! check {
        ($($type:ident)+) => {
            $(
                let values = [0, 1, 7, $type::MAX, $type::MIN, $type::MIN + 1];
                let a = Array::from_slice(&values, 6).unwrap();
                let none = Array::<$type>::zeros(6).unwrap();
                for gone in [
                    (&a / &none).eval(), (&a % &none).eval(), (&a / 0).eval(), (&a % 0).eval(),
                    (1 / &none).eval(), (1 % &none).eval(),
                    a.lazy().eval().and_then(|mut a| a.update(|a| a / &none).map(|()| a)),
                ] {
                    assert_eq!(gone.unwrap().to_vec().unwrap(), [0; 6], stringify!($type));
                }
                assert_eq!((&a / &none).sum().unwrap().item().unwrap(), 0);
            )+
        };
    }
    check!(i8 i16 i32 i64 u8 u16 u32 u64);
    macro_rules! lowest {
        ($($type:ident)+) => {
            $(
                // The second length is above the length of a block.
                for length in [1, 5000] {
                    let a = Array::full(length, $type::MIN).unwrap();
                    let quotients = (&a / -1).eval().unwrap().to_vec().unwrap();
                    assert_eq!(quotients, vec![$type::MIN; length]);
                    #[expect(clippy::modulo_one, reason = "it is what must not panic")]
                    let rests = (&a % -1).eval().unwrap().to_vec().unwrap();
                    assert_eq!(rests, vec![0; length]);
                }
            )+
        };
    }
    lowest!(i8 i16 i32 i64);
}

#[test]
fn counts_that_make_no_sense() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    refused(Array::arange(0, 10, 0), KIND, &["arange", "0", "10"]);
    refused(Array::arange(0.0, f64::NAN, 1.0), KIND, &["arange", "NaN"]);
    refused(concat::<f32>(&[], 0), KIND, &["concat"]);
    refused(stack::<f32>(&[], 0), KIND, &["stack"]);
    let a = ones(&[2, 3]);
    refused(a.split(2, 1), KIND, &["split", "2", "axis 1", "[2, 3]"]);
    refused(a.split(0, 1), KIND, &["split", "0", "axis 1", "[2, 3]"]);
    refused(a.topk(4, 1), KIND, &["topk", "4", "axis 1", "[2, 3]"]);
    refused(a.pad(&[(1, 1)], 0.0), KIND, &["pad", "(1, 1)", "[2, 3]"]);
    refused(ones(&[3]).tril(0), KIND, &["tril", "[3]"]);
    refused(ones(&[]).triu(0), KIND, &["triu", "[]"]);
    refused(ones(&[2, 2, 2]).diag(0), KIND, &["diag", "[2, 2, 2]"]);
    let huge = ErrorKind::InvalidShape;
    refused(
        a.repeat(usize::MAX, 0),
        huge,
        &["18446744073709551615", "overflow"],
    );
    refused(a.pad(&[(0, usize::MAX), (0, 0)], 0.0), huge, &["overflow"]);
    refused(ones(&[3]).diag(isize::MIN), huge, &["overflow"]);
    refused(
        Array::<f64>::zeros([usize::MAX, 2]),
        ErrorKind::InvalidShape,
        &["[18446744073709551615, 2]", "overflow"],
    );
}

#[test]
fn order_statistics_that_there_are_not() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    let a = ones(&[2, 3]);
    for q in [-0.1, 1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let named = q.to_string();
        refused(a.quantile(q, 0), KIND, &["quantile", &named, "from 0 to 1"]);
    }
    let none = ones(&[2, 0]);
    refused(none.median(1), KIND, &["median", "no elements", "[2, 0]"]);
    refused(
        none.quantile(0.5, -1),
        KIND,
        &["quantile", "no elements", "[2, 0]"],
    );
    assert_eq!(none.median(0).unwrap().shape(), [0]);
    refused(a.median(2), KIND, &["median", "axis 2", "[2, 3]"]);
    refused(
        a.quantile(0.5, -3),
        KIND,
        &["quantile", "axis -3", "[2, 3]"],
    );
    refused(a.cumprod(2), KIND, &["cumprod", "axis 2", "[2, 3]"]);
    refused(
        a.searchsorted(&a),
        KIND,
        &["searchsorted", "[2, 3]", "one axis"],
    );
    refused(ones(&[]).searchsorted(&a), KIND, &["searchsorted", "[]"]);
}

#[test]
fn histograms_of_what_has_no_range() {
    const KIND: ErrorKind = ErrorKind::InvalidArgument;
    refused(
        ones(&[2, 3]).histogram(0),
        KIND,
        &["histogram", "0 bins", "[2, 3]"],
    );
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let x = Array::from_slice(&[1.0, odd, 2.0], 3).unwrap();
        let named = odd.to_string();
        refused(x.histogram(4), KIND, &["histogram", "[3]", &named]);
    }
    let near = Array::from_slice(&[1.0, 1.0 + f32::EPSILON], 2).unwrap();
    refused(near.histogram(10), KIND, &["histogram", "10 bins", "f32"]);
    let most = ones(&[1]).histogram(usize::MAX);
    refused(most, ErrorKind::InvalidShape, &["histogram"]);
    let most = places(&[0]).bincount(usize::MAX);
    refused(most, ErrorKind::InvalidShape, &[]);
    refused(places(&[0]).bincount(0), KIND, &["bincount", "[1]"]);
}
