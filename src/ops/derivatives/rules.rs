//! The partial derivatives of the elementwise functions, one row each.
//!
//! A row is `Function(arguments; result) => [gradients of the arguments]`, where `g` is the
//! gradient of the result. If a function has no derivative at a point, a row gives the limit from
//! one side, or follows other libraries. |x| has the derivative 0 at 0, as in PyTorch. A maximum of
//! two equal values gives each operand half of the gradient, as in PyTorch and JAX.
//!
//! The gradient of a complex number x + i y is ∂/∂x + i ∂/∂y, as in PyTorch. A step of gradient
//! descent subtracts a multiple of this gradient. If a function has a complex derivative, the
//! gradient is multiplied by the conjugate of the derivative (Hjørungnes and Gesbert 2007,
//! "Complex-valued matrix differentiation").
//!
//! If the derivative is a normal number, a row is accurate to a few units in the last place:
//!
//! - A row squares or multiplies operands only if the function itself does, or if the product
//!   cannot overflow or underflow. A row multiplies a gradient by one factor at a time.
//! - A row computes the derivative from the result only if no digits are lost. If a function is
//!   flat in a range, its row reads the argument. For example, two sigmoids compute 1 − tanh² x.
//! - For `f16` and `bf16`, a row computes the result again in `f32`, unless it needs only the sign
//!   of the result. The gradient is rounded once.

use std::cell::RefCell;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LOG2_E, LOG10_E, PI};

use smallvec::{SmallVec, smallvec};

use super::joint_graph::is_differentiable;
use super::values::JointValue;
use crate::array::DType;
use crate::error::{Error, ErrorCode, Result};
use crate::ops::expression::elementwise::arithmetic::{Over, Times};
use crate::ops::expression::elementwise::functions;
use crate::ops::expression::template::GraphTemplate;
use cachescope_kernels::elementwise::call::{Call, Calls};
use cachescope_kernels::elementwise::operation::Operation;

/// The nodes of the gradients of a function's operands. If an operand's derivative does not exist
/// or is zero everywhere, its node is `None`.
pub(super) type Partials = SmallVec<[Option<u32>; 4]>;

macro_rules! rules {
    ($($function:ident($($x:ident),+; $y:ident) $g:ident => [$($partial:expr),+];)+) => {
        /// Returns the gradients of the operands, if operands and result have one type. Returns
        /// `None` if the function has no row.
        fn of_one_type(
            operation: Operation,
            operands: &[JointValue<'_>],
            own: [JointValue<'_>; 2],
        ) -> Option<Partials> {
            Some(match (operation, operands, own) {
                $((Operation::$function, &[$($x),+], [$y, $g]) => {
                    let _ = ($($x,)+ $y, $g);
                    smallvec![$(Some($partial.node)),+]
                })+
                _ => return None,
            })
        }
    };
}

rules! {
    Added(x, y; r) g => [g, g];
    Subtracted(x, y; r) g => [g, -g];
    Times(x, y; r) g => [g * y.conj(), g * x.conj()];
    Over(x, y; r) g => [g / y.conj(), -(g / y.conj() * r.conj())];
    Negated(x; r) g => [-g];
    Conj(x; r) g => [g.conj()];
    Square(x; r) g => [g * x.conj() * 2.0];
    MulAdd(x, y, z; r) g => [g * y.conj(), g * x.conj(), g];
    Modulo(x, y; r) g => [g, -(g * ((x - r) / y).round())];
    Abs(x; r) g => [g * x.sign()];
    Re(x; r) g => [g];
    Relu(x; r) g => [g.only_where(r.gt(r.constant(0.0)))];
    Maximum(x, y; r) g => [larger(g, x, y), larger(g, y, x)];
    Minimum(x, y; r) g => [larger(g, y, x), larger(g, x, y)];
    Clamp(x, low, high; r) g => [
        g.only_where(x.ge(low)).only_where(x.le(high)),
        g.only_where(x.lt(low)).only_where(low.le(high)),
        g.only_where(x.gt(high)) + g.only_where(x.le(high)).only_where(low.gt(high))
    ];
    Recip(x; r) g => [-(g * r * r)];
    Sqrt(x; r) g => [g / (r * 2.0)];
    Rsqrt(x; r) g => [g * -0.5 * r * r * r];
    Cbrt(x; r) g => [g / (r.square() * 3.0)];
    Exp(x; r) g => [g * r];
    Exp2(x; r) g => [g * (r * LN_2)];
    ExpM1(x; r) g => [g * x.exp()];
    Ln(x; r) g => [g / x];
    Log1p(x; r) g => [g / (x + 1.0)];
    Log2(x; r) g => [g / x * LOG2_E];
    Log10(x; r) g => [g * LOG10_E / x];
    Powf(x, n; r) g => [
        g * n * power_of_one_less(x, n),
        of_exponent(g * r * x.ln(), x, n)
    ];
    Sin(x; r) g => [g * x.cos()];
    Cos(x; r) g => [-(g * x.sin())];
    Tan(x; r) g => [g * (r.square() + 1.0)];
    Asin(x; r) g => [g * ((1.0 - x) * (1.0 + x)).rsqrt()];
    Acos(x; r) g => [-(g * ((1.0 - x) * (1.0 + x)).rsqrt())];
    Atan(x; r) g => [(g / (x.square() + 1.0)).or_where(x.abs().gt(x.constant(HUGE)), g / x / x)];
    Atan2(y, x; r) g => [of_angle(g * x_of_angle(x, y), y, x), of_angle(-g * x_of_angle(y, x), y, x)];
    Sinh(x; r) g => [g * x.cosh()];
    Cosh(x; r) g => [g * x.sinh()];
    Tanh(x; r) g => [g * (x * 2.0).sigmoid() * (x * -2.0).sigmoid() * 4.0];
    Asinh(x; r) g => [
        g * (x.square() + 1.0).rsqrt().or_where(x.abs().gt(x.constant(HUGE)), 1.0 / x.abs())
    ];
    Acosh(x; r) g => [g / ((x - 1.0).sqrt() * (x + 1.0).sqrt())];
    Atanh(x; r) g => [g / ((1.0 - x) * (1.0 + x))];
    Erf(x; r) g => [g * (bell(x, 1.0) * FRAC_2_SQRT_PI)];
    Sigmoid(x; r) g => [g * x.sigmoid() * (-x).sigmoid()];
    Gelu(x; r) g => [g * gelu_slope(x, r)];
    Silu(x; r) g => [g * (x.sigmoid() + r.minimum(r.constant(NO_BELL)) * (-x).sigmoid())];
}

/// Returns the gradients for functions from real parts to complex numbers, or from complex numbers
/// to real numbers. Returns `None` for other functions.
fn of_parts(
    operation: Operation,
    operands: &[JointValue<'_>],
    [r, g]: [JointValue<'_>; 2],
) -> Option<Partials> {
    let (re, im) = match (operation, operands) {
        (Operation::OfParts, _) => return Some(smallvec![Some(g.re().node), Some(g.im().node)]),
        (Operation::Abs, &[z]) => {
            let [re, im] = [z.re(), z.im()].map(|part| g * (part / r));
            let mask = r.not_equal(0.0);
            (re.only_where(mask), im.only_where(mask))
        }
        (Operation::Re, _) => (g, g.constant(0.0)),
        (Operation::Im, _) => (g.constant(0.0), g),
        _ => return None,
    };
    Some(smallvec![Some(re.with_imaginary(im).node)])
}

/// Returns `g` if `x` exceeds `y`, half of `g` if both are equal, and 0 if `x` is less.
fn larger<'g>(g: JointValue<'g>, x: JointValue<'g>, y: JointValue<'g>) -> JointValue<'g> {
    g.only_where(x.gt(y)) + (g * 0.5).only_where(x.eq(y))
}

/// Returns x to the power of n − 1. For 0⁰, the exponent stays 0, because 0 times an infinite power
/// is NaN.
fn power_of_one_less<'g>(x: JointValue<'g>, n: JointValue<'g>) -> JointValue<'g> {
    let (less, zero) = (n - 1.0, n.constant(0.0));
    let exponent = less.only_where(n.not_equal(0.0))
        + less.only_where(n.eq(zero)).only_where(x.not_equal(0.0));
    let power = x.powf(exponent);
    if n.is_exact_less_one() {
        return power;
    }
    // A small power of a huge number amplifies the rounding error of the exponent. Knuth's two-sum
    // computes this error.
    let part = less - n;
    let lost = (n - (less - part)) - (part + 1.0);
    let missing = lost * x.abs().ln();
    let missing = missing.only_where(missing.abs().lt(missing.constant(1.0)));
    power + (power * missing).only_where(missing.not_equal(0.0))
}

/// Returns `d`, the gradient of the exponent `n` of `x`. If `x` is 0 and the power is finite,
/// returns 0.
fn of_exponent<'g>(d: JointValue<'g>, x: JointValue<'g>, n: JointValue<'g>) -> JointValue<'g> {
    let zero = x.constant(0.0);
    d.only_where(x.not_equal(0.0)) + d.only_where(x.eq(zero)).only_where(n.lt(zero))
}

/// The bound above which x² + 1 rounds to x² in every type.
const HUGE: f64 = 1e9;

/// The bound above which exp(−x² / 2) and `sigmoid` of −x are 0 in every type.
const NO_BELL: f64 = 1100.0;

/// Returns x / (x² + y²), times the larger magnitude of x and y. [`of_angle`] divides by the larger
/// magnitude.
fn x_of_angle<'g>(x: JointValue<'g>, y: JointValue<'g>) -> JointValue<'g> {
    let size = x.abs().maximum(y.abs());
    let (x, y) = (x / size, y / size);
    x / (x.square() + y.square())
}

/// Divides `scaled` by the larger magnitude of x and y. Returns 0 at infinity, and at the origin,
/// which has no angle.
fn of_angle<'g>(scaled: JointValue<'g>, y: JointValue<'g>, x: JointValue<'g>) -> JointValue<'g> {
    let size = x.abs().maximum(y.abs());
    let slope = (scaled / size).only_where(size.not_equal(0.0));
    slope.only_where(size.not_equal(f64::INFINITY))
}

/// Returns exp(−x² · `factor`) for a factor of ½ or 1. Compensates the rounding error of x². Far
/// from 0, this error would change the result by many units in the last place.
fn bell(x: JointValue<'_>, factor: f64) -> JointValue<'_> {
    let x = limited(x);
    let square = x.square();
    let lost = x.mul_add(x, -square);
    let bell = (square * -factor).exp();
    bell - bell * (lost * factor)
}

/// Clamps x to the range in which exp(−x² / 2) is above 0.
fn limited(x: JointValue<'_>) -> JointValue<'_> {
    x.minimum(x.constant(40.0)).maximum(x.constant(-40.0))
}

/// Returns Φ(x) + x φ(x), with the distribution function Φ and the density φ of the standard normal
/// distribution. `r` is `gelu` of x. Far below 0, r / x has the digits that 1 + erf loses.
fn gelu_slope<'g>(x: JointValue<'g>, r: JointValue<'g>) -> JointValue<'g> {
    let near = ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
    let below = near.or_where(x.lt(x.constant(-1.0)), r / x);
    below + limited(x) * (bell(x, 0.5) * (1.0 / (2.0 * PI).sqrt()))
}

/// Returns the gradient of x to the power of an integer.
fn of_power(x: JointValue<'_>, n: JointValue<'_>, g: JointValue<'_>) -> Partials {
    // If n is 0, `one` is 0, so that the exponent is not −1. At x = 0, a power of −1 is infinite,
    // and 0 times infinity is NaN.
    let one = n.not_equal(0.0).cast(n.dtype());
    let power = match n.may_be(i32::MIN) {
        false => x.powi(n - one),
        // `i32::MIN` minus 1 would overflow.
        true => {
            let least = n.constant(i32::MIN.into());
            let power = x.powi(n.maximum(least + 1.0) - one);
            power.or_where(n.eq(least), power / x)
        }
    };
    smallvec![Some((g * n.cast(g.dtype()) * power).node), None]
}

/// Multiplies the gradient by partial derivatives that hand-written functions compute. Returns
/// `None` if a hand-written function does not have the type `output`.
fn by_hand(
    joint: &RefCell<GraphTemplate>,
    (partials, output): (&[Option<&'static Call>], DType),
    (operands, gradient): (&[u32], u32),
) -> Option<Partials> {
    let mut joint = joint.borrow_mut();
    let dtype = joint.nodes[gradient as usize].dtype;
    let times = Times::CALLS.get(dtype)?;
    let of_one = |partial: &Option<&'static Call>| match partial {
        None => Some(None),
        Some(partial) if partial.output != output => None,
        Some(partial) => {
            let slope = joint.call(partial, operands);
            let slope = joint.widened(slope);
            Some(Some(joint.call(times, &[gradient, slope])))
        }
    };
    partials.iter().map(of_one).collect()
}

/// Returns the gradients of the operands of `called`. `gradient` is the gradient of the node
/// `result`. All gradients are in the types that gradients are computed in.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported), naming the function, if its derivative is not
/// known.
#[track_caller]
pub(super) fn partials(
    joint: &RefCell<GraphTemplate>,
    called: &Call,
    operands: &[u32],
    [result, gradient]: [u32; 2],
) -> Result<Partials> {
    let dtype_of = |node: u32| joint.borrow().nodes[node as usize].dtype;
    let first = dtype_of(operands[0]).computed_in();
    match called.operation {
        // These functions are piecewise constant.
        Operation::Sign
        | Operation::Floor
        | Operation::Ceil
        | Operation::Round
        | Operation::Trunc => return Ok(smallvec![None; operands.len()]),
        Operation::Im if !first.is_complex() => return Ok(smallvec![None]),
        Operation::Cast if !is_differentiable(first) => return Ok(smallvec![None]),
        Operation::Cast => {
            let converted = joint.borrow_mut().converted(gradient, first);
            return Ok(smallvec![Some(converted)]);
        }
        // A gradient counts only where the branch of its operand was chosen: see
        // `GraphTemplate::counts`.
        Operation::Select => return Ok(smallvec![None, Some(gradient), Some(gradient)]),
        Operation::Written => {
            let partials = called.partials.and_then(|partials| {
                by_hand(joint, (partials, called.output), (operands, gradient))
            });
            return partials.ok_or_else(|| unknown(called));
        }
        _ => {}
    }
    let wide = |node: u32| {
        let node = joint.borrow_mut().widened(node);
        JointValue::new(joint, node)
    };
    let operands: SmallVec<[JointValue<'_>; 4]> = operands.iter().map(|&own| wide(own)).collect();
    let g = JointValue::new(joint, gradient);
    let dtype = g.dtype();
    let r = match again(called, dtype) {
        Some(calls) => operands[0].call(calls.at(dtype), &operands[1..]),
        None => wide(result),
    };
    let partials = match (called.operation, &*operands) {
        (Operation::Powi, &[x, n]) => Some(of_power(x, n, g)),
        (operation, operands) if operands.iter().all(|own| own.dtype() == dtype) => {
            of_one_type(operation, operands, [r, g])
        }
        (operation, operands) if dtype.is_complex() || first.is_complex() => {
            of_parts(operation, operands, [r, g])
        }
        _ => None,
    };
    partials.ok_or_else(|| unknown(called))
}

/// Returns the calls of `operation`, if its rule reads digits that a rounded result lacks.
fn calls_of_rounded(operation: Operation) -> Option<&'static Calls> {
    Some(match operation {
        Operation::Over => Over::CALLS,
        Operation::Recip => functions::Recip::CALLS,
        Operation::Sqrt => functions::Sqrt::CALLS,
        Operation::Rsqrt => functions::Rsqrt::CALLS,
        Operation::Cbrt => functions::Cbrt::CALLS,
        Operation::Exp => functions::Exp::CALLS,
        Operation::Exp2 => functions::Exp2::CALLS,
        Operation::Powf => functions::Powf::CALLS,
        Operation::Tan => functions::Tan::CALLS,
        Operation::Gelu => functions::Gelu::CALLS,
        Operation::Silu => functions::Silu::CALLS,
        _ => return None,
    })
}

/// Returns the function that computes a narrow result again in `wide`, the type of the gradient.
/// The stored result lacks digits and range. Returns `None` if the result is not narrow, or if the
/// stored result is sufficient.
fn again(called: &Call, wide: DType) -> Option<&'static Calls> {
    (called.output != wide).then(|| calls_of_rounded(called.operation))?
}

#[cold]
#[track_caller]
fn unknown(called: &Call) -> Error {
    let text = format!(
        "{}: no derivative is known for elements of {}",
        called.name,
        called.output.name()
    );
    Error::new(ErrorCode::Gradient, text)
}
