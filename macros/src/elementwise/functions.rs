//! The functions that can be called as methods: those of the library's elementwise table.

use proc_macro2::Span;
use syn::{Error, Ident};

/// One of them.
#[derive(Debug)]
pub(crate) struct Known {
    /// Its name in a written function.
    pub(crate) name: &'static str,
    /// Its name in the library.
    pub(crate) target: &'static str,
    /// Its arguments beside the receiver.
    pub(crate) arguments: &'static [Kind],
    /// Whether it returns a truth value; otherwise a value of the receiver's type.
    pub(crate) is_test: bool,
}

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Of the receiver's type.
    Same,
    /// An `i32`.
    Whole,
}

const fn unary(name: &'static str) -> Known {
    named(name, name, &[])
}

const fn binary(name: &'static str) -> Known {
    named(name, name, &[Kind::Same])
}

const fn named(name: &'static str, target: &'static str, arguments: &'static [Kind]) -> Known {
    Known {
        name,
        target,
        arguments,
        is_test: false,
    }
}

static KNOWN: [Known; 44] = [
    unary("abs"),
    unary("acos"),
    unary("acosh"),
    unary("asin"),
    unary("asinh"),
    unary("atan"),
    binary("atan2"),
    unary("atanh"),
    unary("ceil"),
    named("clamp", "clamp", &[Kind::Same, Kind::Same]),
    unary("cos"),
    unary("cosh"),
    unary("erf"),
    unary("exp"),
    unary("exp_m1"),
    unary("floor"),
    unary("gelu"),
    Known {
        name: "is_nan",
        target: "is_nan",
        arguments: &[],
        is_test: true,
    },
    unary("ln"),
    named("ln_1p", "log1p", &[]),
    unary("log10"),
    unary("log1p"),
    unary("log2"),
    named("max", "maximum", &[Kind::Same]),
    binary("maximum"),
    named("min", "minimum", &[Kind::Same]),
    binary("minimum"),
    named("mul_add", "mul_add", &[Kind::Same, Kind::Same]),
    binary("powf"),
    named("powi", "powi", &[Kind::Whole]),
    unary("recip"),
    unary("relu"),
    unary("round"),
    unary("rsqrt"),
    unary("sigmoid"),
    unary("sign"),
    unary("silu"),
    unary("sin"),
    unary("sinh"),
    unary("sqrt"),
    unary("square"),
    unary("tan"),
    unary("tanh"),
    unary("trunc"),
];

/// The function called `name`.
pub(crate) fn known(name: &Ident) -> Result<&'static Known, Error> {
    let found = KNOWN.iter().find(|known| name == known.name);
    found.ok_or_else(|| {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        Error::new(
            name.span(),
            format!(
                "`{name}` is no known function of an element; these are: {}",
                names.join(", ")
            ),
        )
    })
}

impl Known {
    /// Whether it takes `given` arguments beside the receiver.
    pub(crate) fn check(&self, given: usize, span: Span) -> Result<(), Error> {
        if given == self.arguments.len() {
            return Ok(());
        }
        let expected = match self.arguments.len() {
            0 => "no argument".into(),
            1 => "1 argument".into(),
            more => format!("{more} arguments"),
        };
        let verb = if given == 1 { "is" } else { "are" };
        let problem = format!("`{}` takes {expected}, and {given} {verb} given", self.name);
        Err(Error::new(span, problem))
    }
}
