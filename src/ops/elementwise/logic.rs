//! Comparisons, and what combines their results.
//!
//! `and`, `or` and `not` of integers work on their bits, as NumPy's `bitwise_and`, `bitwise_or` and
//! `invert`; of `bool` that is the logical operation. The operators `&`, `|` and `!` are the same.

use crate::ops::declare::{binary, unary};

binary! {
    /// Whether the elements of each pair are equal; `==` between arrays gives one `bool` instead.
    eq Equal compare |_, a, b| a == b, "a == b", f32 [1.0, 5.0], [4.0, 5.0] => [false, true];

    /// Whether the elements of each pair differ.
    ne NotEqual compare |_, a, b| a != b, "a != b", f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less.
    lt Less compare |_, a, b| a < b, "a < b", f32 [1.0, 5.0], [4.0, 5.0] => [true, false];

    /// Whether the left element of each pair is less, or both are equal.
    le LessEqual compare |_, a, b| a <= b, "a <= b", f32 [1.0, 5.0], [4.0, 5.0] => [true, true];

    /// Whether the left element of each pair is greater.
    gt Greater compare |_, a, b| a > b, "a > b", f32 [1.0, 5.0], [4.0, 5.0] => [false, false];

    /// Whether the left element of each pair is greater, or both are equal.
    ge GreaterEqual compare |_, a, b| a >= b, "a >= b", f32 [1.0, 5.0], [4.0, 5.0] => [false, true];
}

binary! {
    /// Whether both elements of each pair hold; of integers, the bits that both have.
    and And bits |_, a, b| a & b, "a & b", bool [true, true], [true, false] => [true, false];

    /// Whether any element of each pair holds; of integers, the bits that any has.
    or Or bits |_, a, b| a | b, "a | b", bool [true, false], [true, false] => [true, false];
}

unary! {
    /// Whether each element does not hold; of integers, the bits that it lacks: −1 − x where they are
    /// signed.
    not Not bits |_, x| !x, "cs_not(a)", bool [true, false] => [false, true];

    /// Whether each element is NaN.
    is_nan IsNan test |_, x| num_traits::Float::is_nan(x), "a != a", f32 [f32::NAN, 1.0] => [true, false];
}
