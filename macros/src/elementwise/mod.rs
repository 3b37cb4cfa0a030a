//! The macro `elementwise!`: elementwise functions that are written in Rust.
//!
//! A call is parsed as Rust functions. [`check`] refuses constructs that cannot run on all devices.
//! The result is a small tree ([`tree`]). Three generators traverse this tree: [`host`] for the
//! host code, [`cuda`] for the text of a GPU, and [`terms`] for derivatives. They share one tree,
//! so their results are equivalent.

mod check;
mod cuda;
mod expand;
mod functions;
mod host;
mod names;
mod terms;
mod tree;

use proc_macro2::TokenStream;
use syn::parse::{Parse, ParseStream};
use syn::{Error, ItemFn, Result};

pub(crate) use expand::expand;
use functions::Functions;
use names::Fresh;
use tree::Definition;

/// A call `elementwise! { fn …  fn … }`.
pub(crate) struct Elementwise {
    /// The path of the crate `cachescope`, provided by the `macro_rules!` front end.
    pub(crate) krate: TokenStream,
    pub(crate) definitions: Vec<Definition>,
    /// The generator of names for parameters and items of the expansion.
    pub(crate) fresh: Fresh,
}

impl Parse for Elementwise {
    fn parse(input: ParseStream) -> Result<Self> {
        let krate = crate::parse::parse_krate(input)?;
        let functions = input.parse::<Functions>()?;
        if input.is_empty() {
            return Err(Error::new(
                input.span(),
                "`elementwise!` needs a function, as in \
                 `elementwise! { fn double(x: f32) -> f32 { x + x } }`",
            ));
        }
        let fresh = Fresh::beside(input.fork().parse()?);
        let mut definitions = Vec::new();
        let mut refused: Option<Error> = None;
        while !input.is_empty() {
            match check::definition(input.parse::<ItemFn>()?, &functions) {
                Ok(definition) => definitions.push(definition),
                Err(error) => match &mut refused {
                    Some(earlier) => earlier.combine(error),
                    None => refused = Some(error),
                },
            }
        }
        check::acyclic(&definitions)?;
        match refused {
            Some(error) => Err(error),
            None => Ok(Self {
                krate,
                definitions,
                fresh,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Elementwise;

    /// An excerpt of the library's functions.
    const FUNCTIONS: &str = "[exp [] (x) ln [] (x) tanh [] (x) is_nan [] (x) maximum [max] (x y) powi [] (x exponent) \
                             clamp [] (x low high) mul_add [] (x factor addend)]";

    pub(super) fn parsed(functions: &str) -> Elementwise {
        syn::parse_str(&format!("(krate) {FUNCTIONS} {functions}"))
            .unwrap_or_else(|error| panic!("{functions}: {error}"))
    }

    fn refusals(functions: &str) -> Vec<String> {
        match syn::parse_str::<Elementwise>(&format!("(krate) {FUNCTIONS} {functions}")) {
            Ok(_) => panic!("{functions} was accepted"),
            Err(error) => error.into_iter().map(|error| error.to_string()).collect(),
        }
    }

    /// Checks that a function body with three arguments is refused with `message`.
    #[track_caller]
    fn refuses(body: &str, message: &str) {
        let errors = refusals(&format!(
            "fn f(x: f32, n: i32, b: bool) -> f32 {{ {body} }}"
        ));
        assert!(errors[0].contains(message), "{body}: {errors:?}");
    }

    #[test]
    fn takes_what_every_device_computes() {
        for body in [
            "x",
            "1.0",
            "-1e-3_f32",
            "{ x }",
            "((x))",
            "x * (1.0 + x.exp()).ln().tanh()",
            "let y = x + 1.0; let z: f32 = y * y; z - y",
            "if n == 0 && b || !b { x } else if n < 3 { -x } else { let y = x; y }",
            "(n as f32 % x).max(0xff as f32)",
            "cast((n & 3 | 1 ^ 2) << 1 >> n)",
            "self::other::g(x, n)",
            "crate::g::<>(x)",
            "x.clamp(-1.0, 1.0).mul_add(x, 0.5).powi(n)",
            "let b = true; if b { x } else { false as f32 }",
            "x * std::f32::consts::PI + -FACTOR - f32::EPSILON",
            "_X.powi(r#N) + crate::m::E + self::lower + Pair::<f32>::FIRST",
        ] {
            parsed(&format!(
                "fn f(x: f32, n: i32, b: bool) -> f32 {{ {body} }}"
            ));
        }
        parsed("#[derivative(_, self::g)] fn f(x: f32, y: f32) -> f32 { x * y }");
        parsed(
            "/// Doubles.\n pub(crate) fn f(x: half::f16) -> half::f16 { x + x } fn g(x: u8,) -> bool { x > 1 }",
        );
    }

    #[test]
    fn names_the_construct_that_it_refuses() {
        for (body, message) in [
            ("while b { } x", "`while` cannot be used in"),
            ("for i in 0..3 { } x", "`for` cannot be used in"),
            ("loop { break x }", "`loop` cannot be used in"),
            ("match n { _ => x }", "`match` cannot be used in"),
            ("return x", "`return` cannot be used in"),
            ("|y| y", "a closure cannot be used in"),
            ("println!(\"x\"); x", "a macro cannot be used in"),
            ("vec![x]", "a macro cannot be used in"),
            ("&x", "a reference cannot be used in"),
            ("*x", "`*` cannot be used in"),
            ("x?", "`?` cannot be used in"),
            ("x.await", "`.await` cannot be used in"),
            ("\"text\"", "is not a number"),
            ("b'x'", "is not a number"),
            ("1usize as f32", "`usize` is not an element type"),
            ("1.0_f128", "`f128` is not an element type"),
            ("x[0]", "an index cannot be used in"),
            ("x.0", "a field cannot be used in"),
            ("(x, x)", "a tuple cannot be used in"),
            ("[x]", "an array cannot be used in"),
            ("0..n", "a range cannot be used in"),
            ("S { x }", "a structure cannot be used in"),
            ("unsafe { x }", "`unsafe` cannot be used in"),
            ("const { x }", "`const` cannot be used in"),
            ("async { x }", "`async` cannot be used in"),
            ("'a: { x }", "a label cannot be used in"),
            ("x = 1.0; x", "an assignment cannot be used in"),
            ("x += 1.0; x", "an assignment cannot be used in"),
            ("let mut y = x; y", "`mut` cannot be used in"),
            ("let (y, z) = x; y", "a pattern cannot be used in"),
            ("let ref y = x; y", "`ref` cannot be used in"),
            ("let y; x", "a `let` needs a value"),
            ("let y = x else { x }; y", "`else` cannot be used in"),
            ("let y: usize = 1; x", "`usize` is not an element type"),
            ("if b { x }", "an `if` needs an `else`"),
            ("if let y = x { x } else { x }", "`let` cannot be used in"),
            ("x;", "needs a value at its end"),
            ("", "needs a value at its end"),
            ("x; x", "has no effect"),
            ("fn g() {} x", "an item cannot be used in"),
            ("y", "`y` is neither an argument"),
            ("r#y", "`r#y` is neither an argument"),
            ("_y", "write its path, as in `self::_y`"),
            ("Self::FACTOR", "`Self` cannot be used in"),
            ("{ let y = x; } y", "needs a value at its end"),
            (
                "if b { let y = x; y } else { y }",
                "`y` is neither an argument",
            ),
            ("x as usize as f32", "`usize` is not an element type"),
            (
                "x.gamma()",
                "`gamma` is not a mathematical function, expected one of clamp, exp, is_nan, ln, max, maximum, mul_add",
            ),
            ("x.exp(1.0)", "`exp` takes no argument, and 1 is given"),
            ("x.powi()", "`powi` takes 1 argument, and 0 are given"),
            ("x.exp::<f32>()", "a type argument cannot be used in"),
            ("g::<f32>(x)", "a type argument cannot be used in"),
            ("<T as U>::g(x)", "a type argument cannot be used in"),
            ("(x)(x)", "only a function's name or path"),
            ("f(x, n, b)", "`f` calls itself"),
            ("let g = x; g(x)", "`g` is a number here"),
        ] {
            refuses(body, message);
        }
    }

    #[test]
    fn names_what_is_wrong_with_a_signature() {
        for (function, message) in [
            ("", "needs a function"),
            ("struct S;", "expected"),
            ("const fn f(x: f32) -> f32 { x }", "`const` cannot be used"),
            ("async fn f(x: f32) -> f32 { x }", "`async` cannot be used"),
            (
                "unsafe fn f(x: f32) -> f32 { x }",
                "`unsafe` cannot be used",
            ),
            (
                "extern \"C\" fn f(x: f32) -> f32 { x }",
                "`extern` cannot be used",
            ),
            ("fn f<T>(x: T) -> T { x }", "generics cannot be used"),
            ("fn f(x: f32) -> f32 where { x }", "`where` cannot be used"),
            ("fn f() -> f32 { 1.0 }", "has 0 arguments, expected 1 to 4"),
            (
                "fn f(a: u8, b: u8, c: u8, d: u8, e: u8) -> u8 { a }",
                "has 5 arguments, expected 1 to 4",
            ),
            ("fn f(self) -> f32 { 1.0 }", "`self` cannot be used"),
            ("fn f(&self) -> f32 { 1.0 }", "`self` cannot be used"),
            ("fn f(mut x: f32) -> f32 { x }", "`mut` cannot be used"),
            ("fn f((x, y): f32) -> f32 { x }", "a pattern cannot be used"),
            ("fn f(x: &f32) -> f32 { x }", "a reference cannot be used"),
            (
                "fn f(x: usize) -> f32 { 1.0 }",
                "`usize` is not an element type",
            ),
            (
                "fn f(x: Vec<f32>) -> f32 { 1.0 }",
                "`Vec` is not an element type",
            ),
            ("fn f(x: [f32; 2]) -> f32 { 1.0 }", "is not an element type"),
            ("fn f(x: f32) { x }", "needs a return type"),
            ("fn f(x: f32) -> () { x }", "is not an element type"),
            ("#[inline] fn f(x: f32) -> f32 { x }", "attributes"),
            (
                "#[derivative(g)] #[derivative(g)] fn f(x: f32) -> f32 { x }",
                "attributes",
            ),
            (
                "#[derivative(g)] fn f(x: f32, y: f32) -> f32 { x }",
                "is 1, expected 2, one for each argument",
            ),
            ("#[derivative] fn f(x: f32) -> f32 { x }", "expected"),
            ("#[derivative(1)] fn f(x: f32) -> f32 { x }", "expected"),
            ("fn f(#[cfg(a)] x: f32) -> f32 { x }", "attributes"),
            ("fn f(x: f32, x: f32) -> f32 { x }", "`x` is named twice"),
        ] {
            let errors = refusals(function);
            assert!(errors[0].contains(message), "{function}: {errors:?}");
        }
    }

    #[test]
    fn reports_on_every_function() {
        let errors =
            refusals("fn f(x: f32) -> f32 { y } fn g(x: f32) -> f32 { x } fn h() -> u8 { 1 }");
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    #[test]
    fn finds_functions_that_call_each_other() {
        let functions = "fn f(x: f32) -> f32 { g(x) } fn g(x: f32) -> f32 { h(x) } \
                         fn h(x: f32) -> f32 { x + self::f(x) }";
        let errors = refusals(functions);
        assert!(errors[0].contains("calls itself, by way of"), "{errors:?}");
        parsed("fn f(x: f32) -> f32 { g(g(x)) + other::f(x) } fn g(x: f32) -> f32 { x }");
    }
}
