//! Single elements as text: their notation, digits and width.
//!
//! The rules follow NumPy's `FloatingFormat` (numpy/_core/arrayprint.py, version 2.4).

use std::any::TypeId;

use half::{bf16, f16};
use num_complex::Complex;

use crate::array::{AnyElement, DType};
use cachescope_kernels::element::scalar::convert;

/// The maximum number of decimals of an element, without a precision.
const MAX_DECIMALS: usize = 8;

/// Returns the text of each element, padded to one width.
///
/// If `precision` is given, floating-point elements have this number of decimals.
pub(super) fn cells<T: AnyElement>(elements: &[T], precision: Option<usize>) -> Vec<String> {
    let columns = |part: fn(T) -> f64, is_signed| {
        let values: Vec<f64> = elements.iter().map(|&x| part(x)).collect();
        Columns::new(Digits::of::<T>(), &values, precision, is_signed).cells(&values)
    };
    match Notation::of::<T>() {
        Notation::Exact => {}
        Notation::Float => return columns(T::to_f64, false),
        Notation::Complex => {
            let parts = columns(T::to_f64, false).into_iter();
            return parts
                .zip(columns(imaginary, true))
                .map(|(re, im)| {
                    let (digits, padding) = im.split_at(im.trim_end().len());
                    format!("{re}{digits}j{padding}")
                })
                .collect();
        }
    }
    let cells: Vec<String> = elements.iter().map(|&element| exact(element)).collect();
    let least = if is_bool::<T>() { "False".len() } else { 0 };
    let width = cells.iter().map(String::len).max().unwrap_or(0).max(least);
    cells.iter().map(|cell| format!("{cell:>width$}")).collect()
}

/// Returns the element of an array of rank 0, with all its digits.
pub(super) fn scalar<T: AnyElement>(element: T) -> String {
    let digits = Digits::of::<T>();
    match Notation::of::<T>() {
        Notation::Exact => exact(element),
        Notation::Float => float(digits, element.to_f64()),
        Notation::Complex => {
            let part = |value| {
                let text = float(digits, value);
                text.strip_suffix(".0").map_or(text.clone(), String::from)
            };
            let (re, im) = (part(element.to_f64()), part(imaginary(element)));
            let sign = if im.starts_with('-') { "" } else { "+" };
            format!("({re}{sign}{im}j)")
        }
    }
}

fn float(digits: Digits, value: f64) -> String {
    if !value.is_finite() {
        return non_finite(value);
    }
    let large = 10f64.powi(if digits.binary == f64::MANTISSA_DIGITS {
        16
    } else {
        digits.decimal()
    });
    if value != 0.0 && !(1e-4..large).contains(&value.abs()) {
        let text = scientific(&digits.shortest(value), 0, 2);
        return text.replace(".e", "e");
    }
    let text = digits.positional(value, usize::MAX);
    if text.ends_with('.') {
        text + "0"
    } else {
        text
    }
}

/// The notation of a type's elements.
enum Notation {
    Exact,
    Float,
    Complex,
}

impl Notation {
    fn of<T: AnyElement>() -> Self {
        match T::DTYPE {
            DType::F32 | DType::F64 | DType::F16 | DType::Bf16 => Self::Float,
            DType::C32 | DType::C64 => Self::Complex,
            _ => Self::Exact,
        }
    }
}

fn imaginary<T: AnyElement>(element: T) -> f64 {
    convert::<Complex<f64>, T>(element).im
}

fn is_bool<T: AnyElement>() -> bool {
    TypeId::of::<T>() == TypeId::of::<bool>()
}

/// Returns the text of an integer, or NumPy's text of a truth value.
fn exact<T: AnyElement>(element: T) -> String {
    if !is_bool::<T>() {
        return element.to_string();
    }
    let holds = element == T::one();
    if holds { "True" } else { "False" }.into()
}

fn non_finite(value: f64) -> String {
    match value {
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "nan",
    }
    .into()
}

/// The precision of a floating-point type. An `f64` represents all values of the type exactly.
#[derive(Clone, Copy)]
struct Digits {
    /// The number of binary digits of the significand.
    binary: u32,
    /// The function that rounds a number to the nearest value of the type.
    round: fn(f64) -> f64,
}

impl Digits {
    fn of<T: AnyElement>() -> Self {
        Self {
            binary: match T::DTYPE {
                DType::F32 | DType::C32 => f32::MANTISSA_DIGITS,
                DType::F16 => f16::MANTISSA_DIGITS,
                DType::Bf16 => bf16::MANTISSA_DIGITS,
                _ => f64::MANTISSA_DIGITS,
            },
            round: |value| T::from_f64(value).to_f64(),
        }
    }

    /// Returns the number of decimal digits that every number keeps when it is rounded to the type
    /// (C's `FLT_DIG`).
    fn decimal(self) -> i32 {
        (f64::from(self.binary - 1) * std::f64::consts::LOG10_2) as i32
    }

    /// Returns the fewest significant digits that identify `value` among the type's values, as
    /// `d.ddde-x`.
    fn shortest(self, value: f64) -> String {
        match self.binary {
            f64::MANTISSA_DIGITS => format!("{value:e}"),
            f32::MANTISSA_DIGITS => format!("{:e}", value as f32),
            _ => {
                let tries = (0..).map(|digits| format!("{value:.digits$e}"));
                let names = |text: &String| {
                    let read = text.parse().unwrap_or(value);
                    (self.round)(read) == value
                };
                // 17 significant digits identify every `f64`, so the search ends.
                tries.take(18).find(names).unwrap_or_default()
            }
        }
    }

    /// Returns the fewest significant digits that identify `value`, as `d.ddde-x` with at most
    /// `decimals` decimals.
    fn scientific(self, value: f64, decimals: usize) -> String {
        let shortest = self.shortest(value);
        if split(&shortest).1.len() <= decimals {
            return shortest;
        }
        format!("{value:.decimals$e}")
    }

    /// Returns the fewest digits that identify `value`, in positional notation with at most
    /// `decimals` decimals. The point is always written.
    fn positional(self, value: f64, decimals: usize) -> String {
        let shortest = self.shortest(value);
        let (_, fraction, exponent) = split(&shortest);
        let needed = (fraction.len() as i64 - i64::from(exponent)).max(0) as usize;
        let text = format!("{value:.0$}", needed.min(decimals));
        match text.split_once('.') {
            None => text + ".",
            Some(_) => text.trim_end_matches('0').into(),
        }
    }
}

/// Splits `d.ddde-x` into the digits before the point, the digits after the point, and the
/// exponent.
fn split(text: &str) -> (&str, &str, i32) {
    let (significand, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = significand.split_once('.').unwrap_or((significand, ""));
    (
        whole,
        fraction.trim_end_matches('0'),
        exponent.parse().unwrap_or(0),
    )
}

/// Returns `text`, of the form `d.ddde-x`, with at least `decimals` decimals and at least
/// `exponent_digits` digits of the exponent.
fn scientific(text: &str, decimals: usize, exponent_digits: usize) -> String {
    let (whole, fraction, exponent) = split(text);
    let sign = if exponent < 0 { '-' } else { '+' };
    let exponent = exponent.unsigned_abs();
    format!("{whole}.{fraction:0<decimals$}e{sign}{exponent:0exponent_digits$}")
}

/// The format that all floating-point elements of one array share.
struct Columns {
    digits: Digits,
    /// The maximum number of decimals of a number.
    decimals: usize,
    /// True if every number has `decimals` decimals.
    is_fixed: bool,
    /// The number of digits of the exponent, if numbers have an exponent.
    exponent: Option<usize>,
    /// True if numbers that are not negative also have a sign.
    is_signed: bool,
    /// The number of characters before the point, and the number of characters after it.
    left: usize,
    right: usize,
}

impl Columns {
    fn new(digits: Digits, values: &[f64], precision: Option<usize>, is_signed: bool) -> Self {
        let mut columns = Self {
            digits,
            decimals: precision.unwrap_or(MAX_DECIMALS),
            is_fixed: precision.is_some(),
            exponent: None,
            is_signed,
            left: 0,
            right: 0,
        };
        let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
        if needs_exponents(digits, &finite) {
            columns.fit_exponents(&finite);
        }
        for &value in &finite {
            let text = columns.number(value);
            let point = text.find('.').unwrap_or(text.len());
            columns.left = columns.left.max(point);
            columns.right = columns.right.max((text.len() - point).saturating_sub(1));
        }
        for &value in values.iter().filter(|x| !x.is_finite()) {
            let excess = columns
                .non_finite(value)
                .len()
                .saturating_sub(columns.right + 1);
            columns.left = columns.left.max(excess);
        }
        columns
    }

    /// Sets the numbers of decimals and of exponent digits so that all numbers fit.
    fn fit_exponents(&mut self, finite: &[f64]) {
        let (mut decimals, mut exponent_digits) = (0, 2);
        for &value in finite {
            let text = self.digits.scientific(value, self.decimals);
            let (_, fraction, exponent) = split(&text);
            decimals = decimals.max(fraction.len());
            exponent_digits = exponent_digits.max(exponent.unsigned_abs().to_string().len());
        }
        if !self.is_fixed {
            self.decimals = decimals;
        }
        self.exponent = Some(exponent_digits);
    }

    /// Returns the plus sign if `value` needs one.
    fn sign(&self, value: f64) -> &'static str {
        let is_signed = self.is_signed && (value.is_nan() || value.is_sign_positive());
        if is_signed { "+" } else { "" }
    }

    fn non_finite(&self, value: f64) -> String {
        format!("{}{}", self.sign(value), non_finite(value))
    }

    /// Returns the text of a finite number, not yet aligned.
    fn number(&self, value: f64) -> String {
        let decimals = self.decimals;
        let digits = match self.exponent {
            Some(exponent_digits) => {
                // The number is rounded again, and not padded with zeros, so that every digit is a
                // digit of the number.
                let text = format!("{value:.decimals$e}");
                scientific(&text, decimals, exponent_digits)
            }
            None if self.is_fixed && decimals == 0 => format!("{value:.0}."),
            None if self.is_fixed => format!("{value:.decimals$}"),
            None => self.digits.positional(value, decimals),
        };
        format!("{}{digits}", self.sign(value))
    }

    fn cells(&self, values: &[f64]) -> Vec<String> {
        let (left, right) = (self.left, self.right);
        let width = left + 1 + right;
        let cell = |&value: &f64| {
            if !value.is_finite() {
                return format!("{:>width$}", self.non_finite(value));
            }
            let text = self.number(value);
            let point = text.find('.').unwrap_or(text.len());
            let (whole, rest) = text.split_at(point);
            format!("{whole:>left$}{rest:<0$}", right + 1)
        };
        values.iter().map(cell).collect()
    }
}

/// Returns whether the numbers need exponents, because one is very large or small, or the numbers
/// differ much.
fn needs_exponents(digits: Digits, finite: &[f64]) -> bool {
    let sizes = || finite.iter().map(|x| x.abs()).filter(|&x| x != 0.0);
    let (least, most) = (
        sizes().fold(f64::INFINITY, f64::min),
        sizes().fold(0.0, f64::max),
    );
    let large = 10f64.powi(digits.decimal().min(8));
    most > 0.0
        && (most >= large || least < (digits.round)(1e-4) || (digits.round)(most / least) > 1000.0)
}
