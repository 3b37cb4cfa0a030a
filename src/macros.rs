//! The public macros. They pass `$crate` to the procedural macros, so that paths are correct even
//! if this crate is renamed.

/// Functions of single elements, written in Rust, that fuse into expressions like the built-in
/// functions.
///
/// Each `fn` becomes a function of the same name. The function accepts arrays, expressions or
/// scalars that broadcast together, and returns a [`Lazy`](crate::Lazy).
///
/// ```
/// use cachescope::{Array, elementwise};
///
/// elementwise! {
///     /// x · tanh(ln(1 + eˣ))
///     pub fn mish(x: f32) -> f32 {
///         x * (1.0 + x.exp()).ln().tanh()
///     }
///
///     /// The loss of Huber (1964).
///     pub fn huber(x: f32, y: f32, delta: f32) -> f32 {
///         let error = (x - y).abs();
///         if error < delta { 0.5 * error * error } else { delta * (error - 0.5 * delta) }
///     }
/// }
///
/// let x = Array::from_slice(&[0.0_f32, 2.0], 2)?;
/// let y = (mish(&x) * 2.0).eval()?; // one pass, one allocation
/// assert_eq!(y.to_vec()?[0], 0.0);
/// assert_eq!(huber(&x, 1.0, 0.5).sum()?.item()?, 0.75);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// # Supported syntax
///
/// A function has one to four parameters and a result, each of any element type. Its body may
/// contain
///
/// - the operators `+ - * / %`, `== != < <= > >=`, `&& || !`, and on integers and `bool` `& | ^ !`,
///   on integers `<< >>`;
/// - `let`, `if` with `else`, blocks, parentheses, literals;
/// - constants of element types, such as `std::f32::consts::PI` or your own `const`: names that
///   begin with a capital letter, and paths;
/// - `as` to any element type;
/// - the mathematical functions of arrays as methods, such as `x.exp()`, `x.powi(2)`, `x.clamp(0.0,
///   1.0)`; `max` and `min` are `maximum` and `minimum`;
/// - calls of other `elementwise!` functions, by path.
///
/// Other syntax is a compile error, because it would not run on every device. Operators and
/// functions behave as on arrays. Integers wrap, and integer division by zero gives 0. `max`
/// propagates NaN, and every operation on `f16` and `bf16` rounds its result to the type. Only
/// shifts differ: the counts of `<<` and `>>` are modulo the number of bits, as in Rust's
/// `wrapping_shl`. `x.shl(places)` shifts like the method of arrays.
///
/// ```
/// use cachescope::{Array, elementwise};
///
/// const SLOPE: f32 = 0.25;
///
/// elementwise! {
///     fn leaky(x: f32) -> f32 { if x < 0.0 { SLOPE * x } else { x } }
///     fn degrees(x: f32) -> f32 { x * 180.0 / std::f32::consts::PI }
/// }
///
/// let x = Array::from_slice(&[-4.0_f32, std::f32::consts::PI], 2)?;
/// assert_eq!(leaky(&x).eval()?.to_vec()?[0], -1.0);
/// assert_eq!(degrees(&x).eval()?.to_vec()?[1], 180.0);
/// # Ok::<(), cachescope::Error>(())
/// ```
///
/// ```compile_fail
/// cachescope::elementwise! {
///     fn sum_to(x: f32) -> f32 {
///         let mut total = 0.0; // error: `mut` cannot be used in an elementwise function
///         for i in 0..3 { total += x; }
///         total
///     }
/// }
/// ```
///
/// # Derivatives
///
/// Gradients pass through: the derivative is derived from the body. The derivative of an `if` is
/// the derivative of the branch that is taken. The shifts `<<` and `>>` have no derivative: the
/// gradient of a function with a shift is the error [`Unsupported`](crate::ErrorKind::Unsupported).
/// To give another derivative, write `#[derivative(…)]`. For each argument, this attribute names a
/// function with equal parameters that computes the derivative. Write `_` for an argument without a
/// derivative:
///
/// ```
/// use cachescope::grad::value_and_grad;
/// use cachescope::{Array, elementwise};
///
/// elementwise! {
///     fn one(_x: f32) -> f32 { 1.0 }
///
///     /// Rounds; gradients pass as if it did not.
///     #[derivative(one)]
///     fn rounded(x: f32) -> f32 { x.round() }
/// }
///
/// let x = Array::from_slice(&[0.4_f32, 1.6], 2)?;
/// let (_, gradient) = value_and_grad(&x, |x| (rounded(x) * 3.0).sum())?;
/// assert_eq!(gradient.to_vec()?, [3.0, 3.0]);
/// # Ok::<(), cachescope::Error>(())
/// ```
#[macro_export]
macro_rules! elementwise {
    ($($tokens:tt)*) => {
        $crate::__elementwise! { $($tokens)* }
    };
}

/// The callback of `functions!`. The procedural macro cannot read the function table, so the
/// callback passes the rows of the table to it. `$dollar` is the token `$`.
macro_rules! door {
    ([$dollar:tt] $pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident ($($x:ident $(: $type:ident)?),+) $kind:ident $(as [$($alias:ident)+])? { $($body:tt)+ }
    )+) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! __elementwise {
            ($dollar ($dollar tokens:tt)*) => {
                $crate::__private::expand_elementwise! {
                    ($crate)
                    [$($name [$($($alias)+)?] ($($x)+))+]
                    $dollar ($dollar tokens)*
                }
            };
        }
    };
}

cachescope_kernels::functions! { door [$] }
