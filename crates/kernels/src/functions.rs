//! The elementwise functions of arrays, one in each row. All code and documentation of a function
//! is generated from its row.
//!
//! `functions!(callback …)` calls the macro `callback` with `…`, the name of the pass, and all
//! rows. Callbacks declare the mathematics (`Real`), the operations and their methods
//! (`cachescope`), and the functions that `elementwise!` accepts. The callbacks of tests check the
//! accuracy, the host's two evaluators, the CUDA source and the agreement with NumPy.
//!
//! A row is `/// sentence name Type(arguments) kind as [aliases] { … }`. If an argument names no
//! type, it has the array's element type. `elementwise!` accepts the name of a function and its
//! aliases. The kind determines the element types, the type of the computation and the type of the
//! result:
//!
//! | kind | elements | computed in | result |
//! |---|---|---|---|
//! | `number` | `Number` | their own type | the same type |
//! | `part` | `Number` | their own type | `Number::Part` |
//! | `real` | `Numeric` | their own type | the same type |
//! | `float` | `Float` | `f32` for `f16` and `bf16`, else their own type | the same type |
//! | `test` | `Float` | as `float` | `bool` |
//! | `ordered` | `Element` | their own type | the same type |
//! | `power` | `Numeric` | as `float`; integers in 64 bits | the same type |
//! | `bits` | `Bitwise` | their own type | the same type |
//! | `integer` | `Integer` | their own type | the same type |
//! | `compare` | `Element` | their own type | `bool` |
//! | `equality` | `AnyElement` | their own type | `bool` |
//!
//! The body of a row contains, in this order:
//!
//! - `host`: the host form. The row of a `float` or a `power` has one form for `f32` and one for
//!   `f64`. The forms call functions of [`math`](crate::element::scalar::math) and of the standard
//!   library;
//! - `rare`, of a `float` or a `power`: the magnitude from which on an argument is rare, see
//!   [`Pass`](crate::element::scalar::pass::Pass);
//! - `cuda`: the CUDA form, an expression of `a`, `b` and `c`. It may call CUDA's own functions,
//!   and functions defined in `src/ops/cuda/prelude/functions.cuh`;
//! - `example`: the operands and the result of the documentation's example; an operand in
//!   parentheses is a scalar;
//! - `exact`, of a `float` or a `power`: the function in `f64`, as the reference for the errors of
//!   `f32`;
//! - `ulps`, of a `float` or a `power`: the largest errors in units in the last place. `f32` is the
//!   error on the host. `f64` is the error on the host for arguments up to a given magnitude. If
//!   the standard library computes the function, `f64` is omitted. `cuda` is the error of `f32` on
//!   CUDA, relative to the exact result. The error is half a unit more than in the CUDA programming
//!   guide ("Mathematical Functions", CUDA 12). The guide's errors are relative to the number
//!   nearest to the exact result.
//!
//! Operators, `cast` and `select` are declared in `src/ops/expression/elementwise/` and in
//! `elementwise/` of this crate. Rows cannot declare the signatures of `cast` and `select`.

#[doc(hidden)]
#[macro_export]
macro_rules! functions {
    ($callback:ident $($given:tt)*) => { $callback! { $($given)* pass

        /// Returns the negative of each element. Integers wrap.
        neg Negated(x) number {
            host: x.negated(); cuda: "cs_neg(a)";
            example: i32 [1, -2] => [-1, 2];
        }

        /// Returns the absolute value of each element, a real number. The lowest integer is
        /// unchanged, and −0 becomes 0. For a complex number, only the result may overflow, no
        /// intermediate value. At 0, the gradient is 0, and so is the second derivative.
        abs Abs(x) part {
            host: x.magnitude(); cuda: "cs_abs(a)";
            example: i32 [3, -2] => [3, 2];
        }

        /// Returns the real part of each element. A real number is unchanged.
        re Re(x) part {
            host: x.re(); cuda: "cs_re(a)";
            example: f32 [1.5, -2.0] => [1.5, -2.0];
        }

        /// Returns the imaginary part of each element. For a real number, the result is 0.
        im Im(x) part {
            host: x.im(); cuda: "cs_im(a)";
            example: f32 [1.5, -2.0] => [0.0, 0.0];
        }

        /// Returns the complex conjugate of each element: negates the imaginary part. A real number
        /// is unchanged.
        conj Conj(x) number {
            host: x.conjugate(); cuda: "cs_conj(a)";
            example: f32 [1.5, -2.0] => [1.5, -2.0];
        }

        /// Returns 1 for each element above 0, −1 for each element below 0, and 0 for 0 and −0. For
        /// NaN, the result is NaN.
        sign Sign(x) real {
            host: x.sign(); cuda: "cs_sign(a)";
            example: f32 [-2.5, 3.0] => [-1.0, 1.0];
        }

        /// Returns the square of each element.
        square Square(x) number {
            host: x.times(x); cuda: "cs_mul(a, a)";
            example: i32 [3, -2] => [9, 4];
        }

        /// Multiplies each element by the second operand and adds the third operand. The result is
        /// rounded once on every processor. `f16` and `bf16` are computed in `f32`. Integers wrap.
        mul_add MulAdd(x, factor, addend) number {
            host: x.times_plus(factor, addend); cuda: "cs_mul_add(a, b, c)";
            example: f32 [2.0, 3.0], [4.0, 5.0], [0.5, 1.0] => [8.5, 16.0];
        }

        /// Returns each element that is above 0, and 0 for the other elements. NaN stays NaN.
        relu Relu(x) real {
            host: if x < T::zero() { T::zero() } else { x }; cuda: "a < 0 ? 0 : a";
            example: f32 [-1.5, 2.0] => [0.0, 2.0];
        }

        /// Returns the larger of each pair of elements, or NaN if either is NaN, like NumPy's
        /// `maximum`. If the elements are equal, each gets half of the gradient.
        maximum Maximum(x, y) ordered as [max] {
            host: math::maximum(x, y); cuda: "(a >= b || a != a) ? a : b";
            example: f32 [1.0, 5.0], [4.0, 2.0] => [4.0, 5.0];
        }

        /// Returns the smaller of each pair of elements, or NaN if either is NaN, like NumPy's
        /// `minimum`. If the elements are equal, each gets half of the gradient.
        minimum Minimum(x, y) ordered as [min] {
            host: math::minimum(x, y); cuda: "(a <= b || a != a) ? a : b";
            example: f32 [1.0, 5.0], [4.0, 2.0] => [1.0, 2.0];
        }

        /// Limits each element to the range between a low and a high bound. If the low bound is
        /// above the high bound, the result is the high bound. If the element or a bound is NaN,
        /// the result is NaN, like NumPy's `clip`. If an element equals a bound, the element gets
        /// the gradient.
        clamp Clamp(x, low, high) real {
            host: math::minimum(math::maximum(x, low), high); cuda: "cs_min(cs_max(a, b), c)";
            example: f32 [-3.0, 0.5], (-1.0), (1.0) => [-1.0, 0.5];
        }

        /// Returns whether the elements of each pair are equal. In contrast, `==` between arrays
        /// returns one `bool`.
        eq Equal(x, y) equality {
            host: x == y; cuda: "a == b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [false, true];
        }

        /// Returns whether the elements of each pair differ.
        ne NotEqual(x, y) equality {
            host: x != y; cuda: "a != b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [true, false];
        }

        /// Returns whether the left element of each pair is less than the right element.
        lt Less(x, y) compare {
            host: x < y; cuda: "a < b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [true, false];
        }

        /// Returns whether the left element of each pair is less than or equal to the right one.
        le LessEqual(x, y) compare {
            host: x <= y; cuda: "a <= b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [true, true];
        }

        /// Returns whether the left element of each pair is greater than the right element.
        gt Greater(x, y) compare {
            host: x > y; cuda: "a > b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [false, false];
        }

        /// Returns whether the left element of each pair is greater than or equal to the right one.
        ge GreaterEqual(x, y) compare {
            host: x >= y; cuda: "a >= b";
            example: f32 [1.0, 5.0], [4.0, 5.0] => [false, true];
        }

        /// Returns the logical AND of each pair of `bool`s, or the bitwise AND of each pair of
        /// integers. The operator `&` is equivalent, like NumPy's `bitwise_and`.
        and And(x, y) bits {
            host: x & y; cuda: "a & b";
            example: bool [true, true], [true, false] => [true, false];
        }

        /// Returns the logical OR of each pair of `bool`s, or the bitwise OR of each pair of
        /// integers. The operator `|` is equivalent, like NumPy's `bitwise_or`.
        or Or(x, y) bits {
            host: x | y; cuda: "a | b";
            example: bool [true, false], [true, false] => [true, false];
        }

        /// Returns the logical XOR of each pair of `bool`s, or the bitwise XOR of each pair of
        /// integers. The operator `^` is equivalent, like NumPy's `bitwise_xor`.
        xor Xor(x, y) bits {
            host: x ^ y; cuda: "a ^ b";
            example: bool [true, true], [true, false] => [false, true];
        }

        /// Returns the logical NOT of each `bool`, or the bitwise NOT of each integer, like NumPy's
        /// `invert`. For a signed integer x, the result is −1 − x. The operator `!` is equivalent.
        not Not(x) bits {
            host: !x; cuda: "cs_not(a)";
            example: bool [true, false] => [false, true];
        }

        /// Shifts the bits of each element left by `places`, as the operator `<<` does. If `places`
        /// is negative, or at least the number of bits, the result is 0, like NumPy's `left_shift`.
        shl Shl(x, places) integer {
            host: x.left_shift(places); cuda: "cs_left_shift(a, b)";
            example: i32 [1, 3], [4, 40] => [16, 0];
        }

        /// Shifts the bits of each element right by `places` and keeps the sign, like NumPy's
        /// `right_shift`. If `places` is negative, or at least the number of bits, negative
        /// elements become −1, and other elements become 0. The operator `>>` is equivalent.
        shr Shr(x, places) integer {
            host: x.right_shift(places); cuda: "cs_right_shift(a, b)";
            example: i32 [-16, 3], [2, 40] => [-4, 0];
        }

        /// Raises each integer to the power of an integer. The result wraps. NumPy rejects negative
        /// exponents, but this function returns the integer part of the power. The integer part is
        /// 0, except for the bases 1 and −1, whose powers are 1 and −1. [`powi`](Self::powi) is for
        /// `i32` exponents, and [`powf`](Self::powf) is for floats.
        pow Pow(x, exponent) integer {
            host: x.power(exponent); cuda: "cs_pow(a, b)";
            example: i32 [2, -3], [10, 3] => [1024, -27];
        }

        /// Returns whether each element is NaN.
        is_nan IsNan(x) test {
            host: num_traits::Float::is_nan(x); cuda: "a != a";
            example: f32 [f32::NAN, 1.0] => [true, false];
        }

        /// Returns the reciprocal of each element.
        recip Recip(x) float {
            host: x.recip(), x.recip(); cuda: "1 / a";
            example: f32 [2.0, -4.0] => [0.5, -0.25];
            exact: 1.0 / x; ulps: f32 0.5, cuda 0.5;
        }

        /// Returns the square root of each element. Below 0: NaN. At 0, the derivative is infinite.
        sqrt Sqrt(x) float {
            host: x.sqrt(), x.sqrt(); cuda: "sqrt(a)";
            example: f32 [4.0, 2.25] => [2.0, 1.5];
            exact: x.sqrt(); ulps: f32 0.5, cuda 0.5;
        }

        /// Returns the reciprocal of the square root of each element. Below 0: NaN.
        rsqrt Rsqrt(x) float {
            host: 1.0 / x.sqrt(), 1.0 / x.sqrt(); cuda: "rsqrt(a)";
            example: f32 [4.0, 0.25] => [0.5, 2.0];
            exact: 1.0 / x.sqrt(); ulps: f32 1.5, cuda 2.5;
        }

        /// Returns the cube root of each element. The cube root has the element's sign.
        cbrt Cbrt(x) float {
            host: power::cbrt_f32(pass, x), power::cbrt_f64(pass, x); cuda: "cbrt(a)";
            example: f32 [27.0, -0.125] => [3.0, -0.5];
            exact: x.cbrt(); ulps: f32 0.51, f64 1.5 up to 1e300, cuda 1.5;
        }

        /// Returns *e* to the power of each element.
        exp Exp(x) float {
            host: exp::exp_f32(pass, x), exp::exp_f64(pass, x); cuda: "exp(a)";
            example: f32 [0.0, f32::NEG_INFINITY] => [1.0, 0.0];
            exact: x.exp(); ulps: f32 1.1, f64 1.5 up to 750.0, cuda 2.5;
        }

        /// Returns 2 to the power of each element.
        exp2 Exp2(x) float {
            host: exp::exp2_f32(pass, x), exp::exp2_f64(pass, x); cuda: "exp2(a)";
            example: f32 [3.0, -0.5] => [8.0, std::f32::consts::FRAC_1_SQRT_2];
            exact: x.exp2(); ulps: f32 1.0, f64 1.5 up to 1100.0, cuda 2.5;
        }

        /// Returns *e* to the power of each element, minus 1. The result is also accurate near 0.
        exp_m1 ExpM1(x) float {
            host: exp::exp_m1_f32(pass, x), exp::exp_m1_f64(pass, x); cuda: "expm1(a)";
            example: f32 [1e-10, f32::NEG_INFINITY] => [1e-10, -1.0];
            exact: x.exp_m1(); ulps: f32 0.51, f64 2.0 up to 750.0, cuda 1.5;
        }

        /// Returns the natural logarithm of each element. Below 0: NaN.
        ln Ln(x) float {
            host: log::ln_f32(pass, x), log::ln_f64(pass, x); cuda: "log(a)";
            example: f32 [1.0, 0.0] => [0.0, f32::NEG_INFINITY];
            exact: x.ln(); ulps: f32 1.0, f64 1.5 up to 1e300, cuda 1.5;
        }

        /// Returns the natural logarithm of 1 + x, also accurate for x near 0. Below −1: NaN.
        log1p Log1p(x) float as [ln_1p] {
            host: log::log1p_f32(pass, x), log::log1p_f64(pass, x); cuda: "log1p(a)";
            example: f32 [1e-10, -1.0] => [1e-10, f32::NEG_INFINITY];
            exact: x.ln_1p(); ulps: f32 0.51, f64 2.0 up to 100.0, cuda 1.5;
        }

        /// Returns the logarithm of each element to base 2. Below 0: NaN.
        log2 Log2(x) float {
            host: log::log2_f32(pass, x), x.log2(); cuda: "log2(a)";
            example: f32 [8.0, 0.5] => [3.0, -1.0];
            exact: x.log2(); ulps: f32 0.51, cuda 1.5;
        }

        /// Returns the logarithm of each element to base 10. Below 0: NaN.
        log10 Log10(x) float {
            host: log::log10_f32(pass, x), x.log10(); cuda: "log10(a)";
            example: f32 [1000.0, 0.1] => [3.0, -1.0];
            exact: x.log10(); ulps: f32 0.51, cuda 2.5;
        }

        /// Raises each element to the power of an `i32`, or of the matching element of an array of
        /// `i32`. Powers of integers wrap. NumPy rejects negative exponents of integers, but this
        /// function returns the integer part of the power. The integer part is 0, except for the
        /// bases 1 and −1, whose powers are 1 and −1.
        powi Powi(x, exponent: i32) power {
            host: power::powi_f32(pass, x, exponent), power::powi_f64(x, exponent); rare: 64.0; cuda: "cs_powi(a, b)";
            example: f32 [2.0, -10.0], (3) => [8.0, -1000.0];
            exact: x.powf(f64::from(exponent)); ulps: f32 0.52, cuda 4.5;
        }

        /// Raises each element to the power of the exponent, like C's `pow`. If a negative number
        /// has an exponent that is not whole, the result is NaN. If the exponent is 0, the result
        /// is 1.
        powf Powf(x, exponent) float {
            host: power::powf_f32(pass, x, exponent), x.powf(exponent); cuda: "pow(a, b)";
            example: f32 [2.0, 9.0], [10.0, 0.5] => [1024.0, 3.0];
            exact: x.powf(exponent); ulps: f32 0.52, cuda 4.5;
        }

        /// Returns the sine of each element, in radians.
        sin Sin(x) float {
            host: trig::sin_f32(pass, x), trig::sin_f64(pass, x); rare: 1e5; cuda: "sin(a)";
            example: f32 [0.0, std::f32::consts::FRAC_PI_2] => [0.0, 1.0];
            exact: x.sin(); ulps: f32 1.6, f64 1.5 up to 1e6, cuda 2.5;
        }

        /// Returns the cosine of each element, in radians.
        cos Cos(x) float {
            host: trig::cos_f32(pass, x), trig::cos_f64(pass, x); rare: 1e5; cuda: "cos(a)";
            example: f32 [0.0, std::f32::consts::PI] => [1.0, -1.0];
            exact: x.cos(); ulps: f32 1.6, f64 1.5 up to 1e6, cuda 2.5;
        }

        /// Returns the tangent of each element, in radians.
        tan Tan(x) float {
            host: trig::tan_f32(pass, x), trig::tan_f64(pass, x); rare: 1e5; cuda: "tan(a)";
            example: f32 [0.0, -1.0] => [0.0, -1.5574077];
            exact: x.tan(); ulps: f32 3.9, f64 3.0 up to 1e6, cuda 4.5;
        }

        /// Returns the angle in radians whose sine is each element, from −π/2 to π/2. Beyond ±1:
        /// NaN.
        asin Asin(x) float {
            host: inverse::asin_f32(pass, x), x.asin(); cuda: "asin(a)";
            example: f32 [0.0, 1.0] => [0.0, std::f32::consts::FRAC_PI_2];
            exact: x.asin(); ulps: f32 0.51, cuda 2.5;
        }

        /// Returns the angle in radians whose cosine is each element, from 0 to π. Beyond ±1: NaN.
        acos Acos(x) float {
            host: inverse::acos_f32(pass, x), x.acos(); cuda: "acos(a)";
            example: f32 [1.0, -1.0] => [0.0, std::f32::consts::PI];
            exact: x.acos(); ulps: f32 0.51, cuda 2.5;
        }

        /// Returns the angle in radians whose tangent is each element, from −π/2 to π/2.
        atan Atan(x) float {
            host: inverse::atan_f32(pass, x), x.atan(); cuda: "atan(a)";
            example: f32 [0.0, f32::INFINITY] => [0.0, std::f32::consts::FRAC_PI_2];
            exact: x.atan(); ulps: f32 0.51, cuda 2.5;
        }

        /// Returns the angle in radians, from −π to π, of the point (x, y), seen from the origin.
        /// The first operand is y, and the second operand is x.
        atan2 Atan2(y, x) float {
            host: inverse::atan2_f32(pass, y, x), y.atan2(x); cuda: "atan2(a, b)";
            example: f32 [0.0, 1.0], [-1.0, 0.0] => [std::f32::consts::PI, std::f32::consts::FRAC_PI_2];
            exact: y.atan2(x); ulps: f32 0.52, cuda 3.5;
        }

        /// Returns the hyperbolic sine of each element.
        sinh Sinh(x) float {
            host: hyperbolic::sinh_f32(pass, x), hyperbolic::sinh_f64(pass, x); cuda: "sinh(a)";
            example: f32 [0.0, f32::NEG_INFINITY] => [0.0, f32::NEG_INFINITY];
            exact: x.sinh(); ulps: f32 0.51, f64 3.0 up to 712.0, cuda 3.5;
        }

        /// Returns the hyperbolic cosine of each element.
        cosh Cosh(x) float {
            host: hyperbolic::cosh_f32(pass, x), hyperbolic::cosh_f64(pass, x); cuda: "cosh(a)";
            example: f32 [0.0, f32::NEG_INFINITY] => [1.0, f32::INFINITY];
            exact: x.cosh(); ulps: f32 0.51, f64 2.5 up to 712.0, cuda 2.5;
        }

        /// Returns the hyperbolic tangent of each element.
        tanh Tanh(x) float {
            host: hyperbolic::tanh_f32(pass, x), hyperbolic::tanh_f64(pass, x); cuda: "tanh(a)";
            example: f32 [0.0, f32::INFINITY] => [0.0, 1.0];
            exact: x.tanh(); ulps: f32 1.5, f64 3.0 up to 25.0, cuda 2.5;
        }

        /// Returns the number whose hyperbolic sine is each element.
        asinh Asinh(x) float {
            host: hyperbolic::asinh_f32(pass, x), hyperbolic::asinh_f64(pass, x); cuda: "asinh(a)";
            example: f32 [0.0, f32::INFINITY] => [0.0, f32::INFINITY];
            // Near 0, `asinh` of the standard library loses digits.
            exact: if x.abs() < 1e-5 { x * (1.0 - x * x / 6.0) } else { x.asinh() }; ulps: f32 0.51, cuda 3.5;
        }

        /// Returns the inverse hyperbolic cosine of each element, not below 0. Below 1: NaN.
        acosh Acosh(x) float {
            host: hyperbolic::acosh_f32(pass, x), hyperbolic::acosh_f64(pass, x); cuda: "acosh(a)";
            example: f32 [1.0, f32::INFINITY] => [0.0, f32::INFINITY];
            // Near 1, `acosh` of the standard library loses digits.
            exact: if x.abs() < 1.001 { (x - 1.0 + ((x - 1.0) * (x + 1.0)).sqrt()).ln_1p() } else { x.acosh() };
            ulps: f32 0.51, cuda 4.5;
        }

        /// Returns the number whose hyperbolic tangent is each element. Beyond ±1: NaN.
        atanh Atanh(x) float {
            host: hyperbolic::atanh_f32(pass, x), hyperbolic::atanh_f64(pass, x); cuda: "atanh(a)";
            example: f32 [0.0, -1.0] => [0.0, f32::NEG_INFINITY];
            exact: if x.abs() < 1e-5 { x * (1.0 + x * x / 3.0) } else { x.atanh() }; ulps: f32 0.51, cuda 3.5;
        }

        /// Rounds each element down to a whole number of its type. −0 keeps its sign.
        floor Floor(x) float {
            host: rounding::floor_f32(pass, x), rounding::floor_f64(pass, x); cuda: "floor(a)";
            example: f32 [1.5, -1.5] => [1.0, -2.0];
            exact: x.floor(); ulps: f32 0.0, f64 0.0 up to 1e6, cuda 0.0;
        }

        /// Rounds each element up to a whole number of its type. −0 keeps its sign.
        ceil Ceil(x) float {
            host: rounding::ceil_f32(pass, x), rounding::ceil_f64(pass, x); cuda: "ceil(a)";
            example: f32 [1.5, -1.5] => [2.0, -1.0];
            exact: x.ceil(); ulps: f32 0.0, f64 0.0 up to 1e6, cuda 0.0;
        }

        /// Rounds each element to the nearest whole number, and ties to even, like NumPy's `round`.
        /// Rust's `round` rounds ties away from 0. The type is unchanged. −0 keeps its sign.
        round Round(x) float {
            host: rounding::round_f32(pass, x), rounding::round_f64(pass, x); cuda: "rint(a)";
            example: f32 [2.5, -1.5] => [2.0, -2.0];
            exact: x.round_ties_even(); ulps: f32 0.0, f64 0.0 up to 1e6, cuda 0.0;
        }

        /// Rounds each element toward 0 to a whole number of its type. −0 keeps its sign.
        trunc Trunc(x) float {
            host: rounding::trunc_f32(pass, x), rounding::trunc_f64(pass, x); cuda: "trunc(a)";
            example: f32 [1.5, -1.5] => [1.0, -1.0];
            exact: x.trunc(); ulps: f32 0.0, f64 0.0 up to 1e6, cuda 0.0;
        }

        /// Returns the error function of each element.
        erf Erf(x) float {
            host: erf::erf_f32(pass, x), libm::erf(x); cuda: "erf(a)";
            example: f32 [0.0, f32::INFINITY] => [0.0, 1.0];
            exact: libm::erf(x); ulps: f32 0.52, cuda 2.5;
        }

        /// Returns the logistic function 1 / (1 + exp(−x)) of each element, without overflow for
        /// large elements of either sign.
        sigmoid Sigmoid(x) float {
            host: exp::sigmoid_f32(pass, x), exp::sigmoid_f64(pass, x); cuda: "cs_sigmoid(a)";
            example: f32 [0.0, f32::NEG_INFINITY] => [0.5, 0.0];
            exact: (if x < 0.0 { x.exp() } else { 1.0 }) / (1.0 + (-x.abs()).exp());
            // On CUDA, the function is computed with `exp`. A product may double the error of a
            // factor, in units in the last place.
            ulps: f32 2.7, f64 3.0 up to 750.0, cuda 6.0;
        }

        /// Multiplies each element by the standard normal distribution function: x · (1 + erf(x /
        /// √2)) / 2. This is the exact form of Hendrycks and Gimpel (2016), not the approximation
        /// by tanh. Far below 0 the result keeps its relative accuracy, until it becomes −0.
        gelu Gelu(x) float {
            host: erf::gelu_f32(pass, x), erf::gelu_f64(pass, x); cuda: "cs_gelu(a)";
            example: f32 [0.0, 20.0] => [0.0, 20.0];
            exact: if x < -40.0 {
                -0.0
            } else {
                // The derivative of `erfc` corrects the rounding error of the argument.
                let quotient = -x * std::f64::consts::FRAC_1_SQRT_2;
                let lost = (-x).mul_add(std::f64::consts::FRAC_1_SQRT_2, -quotient) + x * 4.833_646_656_726_457e-17;
                let slope = if quotient > 1.0 { -2.0 * quotient } else { 0.0 };
                if x > 40.0 { x } else { 0.5 * x * libm::erfc(quotient) * (1.0 + slope * lost) }
            };
            // On CUDA, the error of `erfc` alone is 4 units.
            ulps: f32 0.52, cuda 11.0;
        }

        /// Multiplies each element by its `sigmoid`. At −∞ the result is the limit, −0.
        silu Silu(x) float {
            host: exp::silu_f32(pass, x), exp::silu_f64(pass, x); cuda: "cs_silu(a)";
            example: f32 [0.0, f32::INFINITY] => [0.0, f32::INFINITY];
            exact: if x < -800.0 { -0.0 } else { x * ((if x < 0.0 { x.exp() } else { 1.0 }) / (1.0 + (-x.abs()).exp())) };
            ulps: f32 3.3, cuda 7.0;
        }
    } };
}
