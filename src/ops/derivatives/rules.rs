//! The partial derivatives of the elementwise functions, one row each.
//!
//! A row is `Function(arguments; result) => [gradients of the arguments]`, where `g` is the
//! gradient of the result. If a function has no derivative at a point, a row gives the limit from
//! one side, or follows other libraries: |x| has 0 at 0, as in PyTorch, and a maximum of two equal
//! values gives each one half, as in PyTorch and JAX.
//!
//! The gradient of a complex number x + i y is ∂/∂x + i ∂/∂y, as in PyTorch: the direction that a
//! step of gradient descent subtracts. Through a function with a complex derivative, it is
//! multiplied by the conjugate of the derivative (Hjørungnes and Gesbert 2007, "Complex-valued
//! matrix differentiation").

use std::any::TypeId;
use std::cell::RefCell;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10, PI};

use num_complex::Complex;
use smallvec::{SmallVec, smallvec};

use super::joint_graph::{by_differentiable, by_float, computed_in, is_complex, is_differentiable};
use super::values::JointValue;
use crate::array::{DType, Float, Number, bits_of};
use crate::error::{Error, ErrorCode, Result};
use crate::ops::expression::elementwise::arithmetic::{Added, Modulo, Over, Subtracted, Times};
use crate::ops::expression::elementwise::cast::Cast;
use crate::ops::expression::elementwise::complex::OfParts;
use crate::ops::expression::elementwise::functions::{
    Abs, Acos, Acosh, Asin, Asinh, Atan, Atan2, Atanh, Cbrt, Ceil, Clamp, Conj, Cos, Cosh, Erf,
    Exp, Exp2, ExpM1, Floor, Gelu, Im, Ln, Log1p, Log2, Log10, Maximum, Minimum, MulAdd, Negated,
    NotEqual, Powf, Powi, Re, Recip, Relu, Round, Rsqrt, Sigmoid, Sign, Silu, Sin, Sinh, Sqrt,
    Square, Tan, Tanh, Trunc,
};
use crate::ops::expression::elementwise::select::Select;
use crate::ops::expression::graph::NodeKind;
use crate::ops::expression::node::call_of;
use crate::ops::expression::template::GraphTemplate;
use crate::ops::expression::tree::Call;

/// The gradients of a function's operands as nodes; `None` for an operand whose derivative does not
/// exist, or is zero everywhere.
pub(super) type Partials = SmallVec<[Option<u32>; 4]>;

macro_rules! rules {
    ($name:ident of $Bound:ident: $($function:ident($($x:ident),+; $y:ident) $g:ident => [$($partial:expr),+];)+) => {
        /// Returns the gradients of the operands of a function whose operands and result are of
        /// `T`; `None` if the function has no row.
        fn $name<T: $Bound>(
            id: TypeId,
            joint: &RefCell<GraphTemplate>,
            operands: &[u32],
            [result, gradient]: [u32; 2],
        ) -> Option<Partials> {
            let value = |node| JointValue::<T>::new(joint, node);
            $(
                if id == TypeId::of::<$function>() {
                    let mut operands = operands.iter().copied().map(value);
                    $(let $x = operands.next()?;)+
                    let ($y, $g) = (value(result), value(gradient));
                    let _ = ($($x,)+ $y, $g);
                    return Some(smallvec![$(Some($partial.node)),+]);
                }
            )+
            None
        }
    };
}

rules! { of_numbers of Number:
    Added(x, y; r) g => [g, g];
    Subtracted(x, y; r) g => [g, -g];
    Times(x, y; r) g => [g * y.conj(), g * x.conj()];
    Over(x, y; r) g => [g / y.conj(), -(g * r.conj()) / y.conj()];
    Negated(x; r) g => [-g];
    Conj(x; r) g => [g.conj()];
    Square(x; r) g => [g * (x.conj() * 2.0)];
    MulAdd(x, y, z; r) g => [g * y.conj(), g * x.conj(), g];
}

rules! { of_floats of Float:
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
    Recip(x; r) g => [-(g * r.square())];
    Sqrt(x; r) g => [g / (r * 2.0)];
    Rsqrt(x; r) g => [-(g * r * r.square()) * 0.5];
    Cbrt(x; r) g => [g / (r.square() * 3.0)];
    Exp(x; r) g => [g * r];
    Exp2(x; r) g => [g * r * LN_2];
    ExpM1(x; r) g => [g * (r + 1.0)];
    Ln(x; r) g => [g / x];
    Log1p(x; r) g => [g / (x + 1.0)];
    Log2(x; r) g => [g / (x * LN_2)];
    Log10(x; r) g => [g / (x * LN_10)];
    Powf(x, n; r) g => [
        g * n * x.powf(one_less(x, n)),
        of_exponent(g * r * x.ln(), x, n)
    ];
    Sin(x; r) g => [g * x.cos()];
    Cos(x; r) g => [-(g * x.sin())];
    Tan(x; r) g => [g * (r.square() + 1.0)];
    Asin(x; r) g => [g * (1.0 - x.square()).rsqrt()];
    Acos(x; r) g => [-(g * (1.0 - x.square()).rsqrt())];
    Atan(x; r) g => [g / (x.square() + 1.0)];
    Atan2(y, x; r) g => [g * x / (x.square() + y.square()), -(g * y) / (x.square() + y.square())];
    Sinh(x; r) g => [g * x.cosh()];
    Cosh(x; r) g => [g * x.sinh()];
    Tanh(x; r) g => [g * (1.0 - r.square())];
    Asinh(x; r) g => [g * (x.square() + 1.0).rsqrt()];
    Acosh(x; r) g => [g * (x.square() - 1.0).rsqrt()];
    Atanh(x; r) g => [g / (1.0 - x.square())];
    Erf(x; r) g => [g * (-x.square()).exp() * FRAC_2_SQRT_PI];
    Sigmoid(x; r) g => [g * r * (1.0 - r)];
    Gelu(x; r) g => [g * (normal_below(x) + x * normal_at(x))];
    Silu(x; r) g => [g * (x.sigmoid() + r * (1.0 - x.sigmoid()))];
}

/// Returns whether a function is piecewise constant.
fn is_flat(id: TypeId) -> bool {
    let flat = [
        TypeId::of::<Sign>(),
        TypeId::of::<Floor>(),
        TypeId::of::<Ceil>(),
        TypeId::of::<Round>(),
        TypeId::of::<Trunc>(),
    ];
    flat.contains(&id)
}

/// Returns the gradients of the parts that a complex number is made of, or of a complex number from
/// which a real one is computed; `None` for other functions.
fn of_parts<T: Float>(
    id: TypeId,
    joint: &RefCell<GraphTemplate>,
    operands: &[u32],
    [result, gradient]: [u32; 2],
) -> Option<Partials>
where
    Complex<T>: Number<Part = T>,
{
    if id == TypeId::of::<OfParts>() {
        let g = JointValue::<Complex<T>>::new(joint, gradient);
        return Some(smallvec![Some(g.re().node), Some(g.im().node)]);
    }
    let (z, g) = (
        JointValue::<Complex<T>>::new(joint, operands[0]),
        JointValue::<T>::new(joint, gradient),
    );
    let (re, im) = if id == TypeId::of::<Abs>() {
        let r = JointValue::<T>::new(joint, result);
        let [re, im] = [z.re(), z.im()].map(|part| g * (part / r));
        (
            re.only_where(not_equal(r, 0.0)),
            im.only_where(not_equal(r, 0.0)),
        )
    } else if id == TypeId::of::<Re>() {
        (g, g.constant(0.0))
    } else if id == TypeId::of::<Im>() {
        (g.constant(0.0), g)
    } else {
        return None;
    };
    Some(smallvec![Some(JointValue::of_parts(re, im).node)])
}

/// Returns the gradient of `x`, if the result is the larger of `x` and `y`; half of `g` if they are
/// equal.
fn larger<'g, T: Float>(
    g: JointValue<'g, T>,
    x: JointValue<'g, T>,
    y: JointValue<'g, T>,
) -> JointValue<'g, T> {
    g.only_where(x.gt(y)) + (g * 0.5).only_where(x.eq(y))
}

/// Returns an exponent less one; for 0⁰ it stays 0, because 0 times an infinite power is NaN.
fn one_less<'g, T: Float>(x: JointValue<'g, T>, n: JointValue<'g, T>) -> JointValue<'g, T> {
    let (less, zero) = (n - 1.0, n.constant(0.0));
    less.only_where(not_equal(n, 0.0)) + less.only_where(n.eq(zero)).only_where(not_equal(x, 0.0))
}

/// Returns the gradient of an exponent `n` of `x`, which is 0 for powers of 0 that are finite.
fn of_exponent<'g, T: Float>(
    d: JointValue<'g, T>,
    x: JointValue<'g, T>,
    n: JointValue<'g, T>,
) -> JointValue<'g, T> {
    let zero = x.constant(0.0);
    d.only_where(not_equal(x, 0.0)) + d.only_where(x.eq(zero)).only_where(n.lt(zero))
}

pub(super) fn not_equal<'g, T: Float>(x: JointValue<'g, T>, value: f64) -> JointValue<'g, bool> {
    x.apply::<bool, NotEqual, (T, T)>(&[x.constant(value).node])
}

/// Returns the cumulative distribution function of the standard normal distribution.
fn normal_below<T: Float>(x: JointValue<'_, T>) -> JointValue<'_, T> {
    ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5
}

/// Returns the density of the standard normal distribution.
fn normal_at<T: Float>(x: JointValue<'_, T>) -> JointValue<'_, T> {
    (x.square() * -0.5).exp() * (1.0 / (2.0 * PI).sqrt())
}

/// Returns the gradient of x to the power of an integer.
fn of_power<T: Float>(joint: &RefCell<GraphTemplate>, operands: &[u32], gradient: u32) -> Partials {
    let value = |node| JointValue::<T>::new(joint, node);
    let (x, n, g) = (value(operands[0]), operands[1], value(gradient));
    let (less, as_float) = {
        let mut joint = joint.borrow_mut();
        let zero = joint.push(NodeKind::Scalar(bits_of(0_i32)), DType::I32);
        let is_power = joint.call(call_of::<NotEqual, (i32, i32)>(), &[n, zero]);
        // For the exponent 0, not -1: 0 times an infinite power is NaN.
        let one = joint.call(call_of::<Cast<i32>, (bool,)>(), &[is_power]);
        (
            joint.call(call_of::<Subtracted, (i32, i32)>(), &[n, one]),
            joint.call(call_of::<Cast<T>, (i32,)>(), &[n]),
        )
    };
    let power = x.apply::<T, Powi, (T, i32)>(&[less]);
    smallvec![Some((g * value(as_float) * power).node), None]
}

/// Multiplies the gradient by the partial derivatives that functions compute. Returns `None` if one
/// of these functions does not have the result's type.
fn by_hand(
    joint: &RefCell<GraphTemplate>,
    (partials, output): (&[Option<&'static Call>], DType),
    (operands, gradient): (&[u32], u32),
) -> Option<Partials> {
    let mut joint = joint.borrow_mut();
    let dtype = joint.nodes[gradient as usize].dtype;
    let times = by_float!(dtype, T => call_of::<Times, (T, T)>())?;
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

/// Returns the gradients of the operands of `called`, where `gradient` is the gradient of its
/// `result`: all of them in the types that gradients are computed in.
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
    let id = (called.id)();
    let dtype_of = |node: u32| joint.borrow().nodes[node as usize].dtype;
    let first = computed_in(dtype_of(operands[0]));
    if is_flat(id) || (id == TypeId::of::<Im>() && !is_complex(first)) {
        return Ok(smallvec![None; operands.len()]);
    }
    if let Some(partials) = called.partials {
        return by_hand(joint, (partials, called.output), (operands, gradient))
            .ok_or_else(|| unknown(called));
    }
    if by_differentiable!(called.output, U => TypeId::of::<Cast<U>>()) == Some(id) {
        if !is_differentiable(first) {
            return Ok(smallvec![None]);
        }
        return Ok(smallvec![Some(
            joint.borrow_mut().converted(gradient, first)
        )]);
    }
    if id == TypeId::of::<Select>() {
        // Each counts only if it was chosen: see `GraphTemplate::counts`.
        return Ok(smallvec![None, Some(gradient), Some(gradient)]);
    }
    let dtype = dtype_of(gradient);
    let wide = |&node: &u32| joint.borrow_mut().widened(node);
    let (operands, result): (SmallVec<[u32; 4]>, u32) =
        (operands.iter().map(wide).collect(), wide(&result));
    let operands = operands.as_slice();
    if id == TypeId::of::<Powi>() {
        let partials = by_float!(dtype, T => of_power::<T>(joint, operands, gradient));
        return partials.ok_or_else(|| unknown(called));
    }
    let is_plain = operands.iter().all(|&operand| dtype_of(operand) == dtype);
    let own = [result, gradient];
    let partials = match (is_plain, is_complex(dtype) || is_complex(first)) {
        (true, _) => by_differentiable!(dtype, T => of_numbers::<T>(id, joint, operands, own))
            .flatten()
            .or_else(|| by_float!(dtype, T => of_floats::<T>(id, joint, operands, own))?),
        (false, true) => match dtype {
            DType::F32 | DType::C32 => of_parts::<f32>(id, joint, operands, own),
            _ => of_parts::<f64>(id, joint, operands, own),
        },
        (false, false) => None,
    };
    partials.ok_or_else(|| unknown(called))
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
