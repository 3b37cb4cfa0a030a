//! The elementwise operations by their names; a new one is a row.

use cachescope::{Bitwise, Float, Numeric, select};
use half::{bf16, f16};

use crate::stored::Stored;
use crate::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    // A mask comes first there, so the second input tells the type.
    let typed = usize::from(trial.op() == "select");
    let element = trial.element(typed).to_owned();
    match trial.op() {
        "and" | "or" | "not" => by_type!(trial, &element[..], bits: i8 i64 u16 bool),
        "cast" => {
            by_type!(trial, &element[..], casts: all);
        }
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "select" | "maximum" | "minimum" => {
            by_type!(trial, &element[..], elements: some);
        }
        "neg" | "abs" | "square" | "relu" | "sign" | "add" | "sub" | "mul" | "div" | "rem"
        | "clamp" | "mul_add" => by_type!(trial, &element[..], numbers: numbers),
        _ => match &element[..] {
            "f16" => halves::<f16>(trial),
            "bf16" => halves::<bf16>(trial),
            _ => by_type!(trial, &element[..], floats: f32 f64),
        },
    }
}

fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    let y = |trial: &Trial<'_>| trial.input::<T>(1);
    match trial.op() {
        "recip" => trial.gives(x.recip().eval()),
        "sqrt" => trial.gives(x.sqrt().eval()),
        "rsqrt" => trial.gives(x.rsqrt().eval()),
        "exp" => trial.gives(x.exp().eval()),
        "exp_m1" => trial.gives(x.exp_m1().eval()),
        "ln" => trial.gives(x.ln().eval()),
        "log1p" => trial.gives(x.log1p().eval()),
        "log2" => trial.gives(x.log2().eval()),
        "log10" => trial.gives(x.log10().eval()),
        "sin" => trial.gives(x.sin().eval()),
        "cos" => trial.gives(x.cos().eval()),
        "tan" => trial.gives(x.tan().eval()),
        "asin" => trial.gives(x.asin().eval()),
        "acos" => trial.gives(x.acos().eval()),
        "atan" => trial.gives(x.atan().eval()),
        "sinh" => trial.gives(x.sinh().eval()),
        "cosh" => trial.gives(x.cosh().eval()),
        "tanh" => trial.gives(x.tanh().eval()),
        "asinh" => trial.gives(x.asinh().eval()),
        "acosh" => trial.gives(x.acosh().eval()),
        "atanh" => trial.gives(x.atanh().eval()),
        "floor" => trial.gives(x.floor().eval()),
        "ceil" => trial.gives(x.ceil().eval()),
        "round" => trial.gives(x.round().eval()),
        "trunc" => trial.gives(x.trunc().eval()),
        "erf" => trial.gives(x.erf().eval()),
        "sigmoid" => trial.gives(x.sigmoid().eval()),
        "gelu" => trial.gives(x.gelu().eval()),
        "silu" => trial.gives(x.silu().eval()),
        "is_nan" => trial.gives(x.is_nan().eval()),
        "atan2" => trial.gives(x.atan2(y(trial)).eval()),
        "powf" => trial.gives(x.powf(y(trial)).eval()),
        "powi" => trial.gives(x.powi(trial.arg::<i32>(0)).eval()),
        _ => {}
    }
}

/// They go through `f32` and back, in one place for all functions.
fn halves<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    match trial.op() {
        "recip" => trial.gives(x.recip().eval()),
        "sqrt" => trial.gives(x.sqrt().eval()),
        "exp" => trial.gives(x.exp().eval()),
        "ln" => trial.gives(x.ln().eval()),
        "sin" => trial.gives(x.sin().eval()),
        "tanh" => trial.gives(x.tanh().eval()),
        "round" => trial.gives(x.round().eval()),
        "erf" => trial.gives(x.erf().eval()),
        "gelu" => trial.gives(x.gelu().eval()),
        "is_nan" => trial.gives(x.is_nan().eval()),
        _ => {}
    }
}

fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    let y = |trial: &Trial<'_>| trial.input::<T>(1);
    match trial.op() {
        "neg" => trial.gives((-&x).eval()),
        "abs" => trial.gives(x.abs().eval()),
        "sign" => trial.gives(x.sign().eval()),
        "square" => trial.gives(x.square().eval()),
        "relu" => trial.gives(x.relu().eval()),
        "add" => trial.gives((x + y(trial)).eval()),
        "sub" => trial.gives((x - y(trial)).eval()),
        "mul" => trial.gives((x * y(trial)).eval()),
        "div" => trial.gives((x / y(trial)).eval()),
        "rem" => trial.gives((x % y(trial)).eval()),
        "clamp" => trial.gives(x.clamp(trial.arg::<T>(0), trial.arg::<T>(1)).eval()),
        "mul_add" => trial.gives(x.mul_add(y(trial), trial.input::<T>(2)).eval()),
        _ => {}
    }
}

fn elements<T: Stored>(trial: &mut Trial<'_>) {
    if trial.op() == "select" {
        let (mask, yes, no) = (
            trial.input::<bool>(0),
            trial.input::<T>(1),
            trial.input::<T>(2),
        );
        return trial.gives(select(mask, yes, no).eval());
    }
    let (x, y) = (trial.input::<T>(0), trial.input::<T>(1));
    let lazy = x.lazy();
    match trial.op() {
        "eq" => trial.gives(lazy.eq(y).eval()),
        "ne" => trial.gives(lazy.ne(y).eval()),
        "lt" => trial.gives(lazy.lt(y).eval()),
        "le" => trial.gives(lazy.le(y).eval()),
        "gt" => trial.gives(lazy.gt(y).eval()),
        "ge" => trial.gives(lazy.ge(y).eval()),
        "maximum" => trial.gives(lazy.maximum(y).eval()),
        "minimum" => trial.gives(lazy.minimum(y).eval()),
        _ => {}
    }
}

fn bits<T: Stored + Bitwise>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    match trial.op() {
        "and" => trial.gives(x.and(trial.input::<T>(1)).eval()),
        "or" => trial.gives(x.or(trial.input::<T>(1)).eval()),
        "not" => trial.gives(x.not().eval()),
        _ => {}
    }
}

fn casts<T: Stored>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    macro_rules! to {
        ($($type:ident)+) => {
            match trial.output_element() {
                $(stringify!($type) => trial.gives(x.cast::<$type>().eval()),)+
                other => panic!("no type {other}"),
            }
        };
    }
    to!(bf16 u8);
}
