//! Generates the C++ expression of a function. The CUDA backend generates kernels from this
//! expression.
//!
//! A function becomes a lambda with typed arguments. A block with `let`s becomes a lambda that is
//! called immediately. Locals are numbered, so shadowing and C++ keywords cause no conflicts. The
//! texts of called functions are spliced in when the user's crate is compiled. The text of a
//! built-in function is in the table of elementwise operations. A user-written function provides
//! its own text, and a constant its value. So the spliced text is self-contained.
//!
//! The text requires the declarations of the backend's prelude:
//! - the types `f32` to `u64`, by their Rust names;
//! - the operators `cs_add` to `cs_rem`, `cs_neg`, `cs_not`, `cs_and`, `cs_or`, `cs_xor`, `cs_shl`
//!   and `cs_shr`, which are equivalent to the host's;
//! - `cs_cast<T>`, a conversion;
//! - `cs_literal`, a number that adopts the type of the other operand;
//! - `cs_bits<T>`, `cs_f16_of_bits` and `cs_bf16_of_bits`, constants given by their bits;
//! - `cs_common<T, …>`, the type among its arguments that is not a literal's;
//! - `cs_wide`, a conversion from `f16` or `bf16` to `float`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{BinOp, Ident, Lit, Path};

use super::tree::{Definition, FunctionBody, Literal, Value};
use crate::parse::krate_at;

/// A text into which other texts are spliced.
#[derive(Default)]
pub(super) struct Text {
    pub(super) pieces: Vec<Piece>,
}

pub(super) enum Piece {
    Own(String),
    /// The lambda of a library function, given by its name.
    Row(String),
    /// The lambda of a user-written function.
    Lambda(Path),
    Constant(Path),
}

impl Text {
    fn push(&mut self, text: &str) {
        if let Some(Piece::Own(last)) = self.pieces.last_mut() {
            last.push_str(text);
        } else {
            self.pieces.push(Piece::Own(text.into()));
        }
    }

    /// Returns the pieces as expressions of type `&'static str`.
    pub(super) fn constants(&self, krate: &TokenStream) -> Vec<TokenStream> {
        let span = Span::mixed_site();
        let constant = |piece: &Piece| match piece {
            Piece::Own(text) => quote_spanned! {span=> #text },
            Piece::Row(name) => {
                let name = Ident::new(name, span);
                quote_spanned! {span=> #krate::__private::element::cuda::#name }
            }
            Piece::Lambda(path) => {
                let span = span.located_at(syn::spanned::Spanned::span(path));
                quote_spanned! {span=> <#path>::__CUDA }
            }
            Piece::Constant(path) => {
                let span = span.located_at(syn::spanned::Spanned::span(path));
                let krate = krate_at(krate, span);
                quote_spanned! {span=>
                    #krate::__private::text::of_constant(
                        &const { #krate::__private::text::constant(#path) }
                    )
                }
            }
        };
        self.pieces.iter().map(constant).collect()
    }
}

/// The numbering of locals: the names in scope, and the number of all names that were declared.
struct Locals {
    names: Vec<(Ident, usize)>,
    count: usize,
}

impl Locals {
    fn add(&mut self, name: &Ident) -> String {
        let number = self.count;
        self.count += 1;
        self.names.push((name.clone(), number));
        format!("v{number}")
    }

    fn find(&self, name: &Ident) -> String {
        let known = self.names.iter().rev().find(|(known, _)| known == name);
        known.map_or_else(String::new, |(_, number)| format!("v{number}"))
    }
}

/// Generates the function as a lambda.
pub(super) fn lambda(definition: &Definition) -> Text {
    let mut text = Text::default();
    let mut locals = Locals {
        names: Vec::new(),
        count: 0,
    };
    let arguments = definition.arguments.iter().map(|argument| {
        let name = locals.add(&argument.name);
        format!("{} {name}", argument.of.word)
    });
    let arguments: Vec<String> = arguments.collect();
    text.push(&format!("[]({})", arguments.join(", ")));
    text.push(&format!(" -> {} ", definition.output.word));
    statements(&definition.body, &mut locals, &mut text);
    text
}

/// Writes `{ let …; return …; }`.
fn statements(body: &FunctionBody, locals: &mut Locals, text: &mut Text) {
    let outside = locals.names.len();
    text.push("{ ");
    for binding in &body.lets {
        let of = binding.of.as_ref().map_or("auto", |of| &of.word);
        // The value may use only the names that are declared before this name.
        let mut own = Text::default();
        value(&binding.value, locals, &mut own);
        let name = locals.add(&binding.name);
        text.push(&format!("{of} {name} = "));
        text.append(own);
        text.push("; ");
    }
    text.push("return ");
    value(&body.value, locals, text);
    text.push("; }");
    locals.names.truncate(outside);
}

impl Text {
    fn append(&mut self, other: Text) {
        for piece in other.pieces {
            match piece {
                Piece::Own(text) => self.push(&text),
                piece => self.pieces.push(piece),
            }
        }
    }
}

/// Writes a block as an expression.
fn block(body: &FunctionBody, locals: &mut Locals, text: &mut Text) {
    if body.lets.is_empty() {
        return value(&body.value, locals, text);
    }
    text.push("[&] ");
    statements(body, locals, text);
    text.push("()");
}

fn value(of: &Value, locals: &mut Locals, text: &mut Text) {
    match of {
        Value::Literal(number) => text.push(&literal(number)),
        Value::Local(name) => text.push(&locals.find(name)),
        Value::Constant(path) => text.pieces.push(Piece::Constant(path.clone())),
        Value::Negative(_, x) => call("cs_neg", [&**x], locals, text),
        Value::Not(_, x) => call("cs_not", [&**x], locals, text),
        Value::Binary(operands, operator) => binary(operands, operator, locals, text),
        Value::Cast(x, to) => call(&format!("cs_cast<{}>", to.word), [&**x], locals, text),
        Value::If(choice) => {
            text.push("(");
            value(&choice.condition, locals, text);
            text.push(" ? ");
            block(&choice.yes, locals, text);
            text.push(" : ");
            block(&choice.no, locals, text);
            text.push(")");
        }
        Value::Block(body) => block(body, locals, text),
        Value::Method(_, target, arguments) => {
            text.pieces.push(Piece::Row(target.clone()));
            call("", arguments, locals, text);
        }
        Value::Call(path, arguments) => {
            text.pieces.push(Piece::Lambda(path.clone()));
            call("", arguments, locals, text);
        }
    }
}

fn binary([left, right]: &[Value; 2], operator: &BinOp, locals: &mut Locals, text: &mut Text) {
    let name = match operator {
        BinOp::Add(_) => "cs_add",
        BinOp::Sub(_) => "cs_sub",
        BinOp::Mul(_) => "cs_mul",
        BinOp::Div(_) => "cs_div",
        BinOp::Rem(_) => "cs_rem",
        BinOp::BitAnd(_) => "cs_and",
        BinOp::BitOr(_) => "cs_or",
        BinOp::BitXor(_) => "cs_xor",
        BinOp::Shl(_) => "cs_shl",
        BinOp::Shr(_) => "cs_shr",
        same => {
            text.push("(");
            value(left, locals, text);
            text.push(&format!(" {} ", quote::ToTokens::to_token_stream(same)));
            value(right, locals, text);
            return text.push(")");
        }
    };
    call(name, [left, right], locals, text);
}

fn call<'a>(
    name: &str,
    arguments: impl IntoIterator<Item = &'a Value>,
    locals: &mut Locals,
    text: &mut Text,
) {
    text.push(name);
    text.push("(");
    for (index, argument) in arguments.into_iter().enumerate() {
        if index > 0 {
            text.push(", ");
        }
        value(argument, locals, text);
    }
    text.push(")");
}

fn literal(literal: &Literal) -> String {
    let sign = if literal.is_negative { "-" } else { "" };
    let (digits, suffix) = match &literal.lit {
        Lit::Int(number) => (whole(number.base10_digits(), sign), number.suffix()),
        Lit::Float(number) => (format!("{sign}{}", number.base10_digits()), number.suffix()),
        Lit::Bool(truth) => return truth.value.to_string(),
        _ => (String::new(), ""),
    };
    match suffix {
        "" => format!("cs_literal({digits})"),
        suffix => format!("cs_cast<{suffix}>({digits})"),
    }
}

/// Formats an integer. In C++, a negative literal is a negated positive literal.
fn whole(digits: &str, sign: &str) -> String {
    match digits.parse::<u64>() {
        Ok(number) if number == i64::MIN.unsigned_abs() && sign == "-" => {
            format!("-{} - 1", i64::MAX)
        }
        Ok(number) if number > i64::MAX.unsigned_abs() => format!("{sign}{digits}ull"),
        _ => format!("{sign}{digits}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of the last function, with spliced pieces between `⟨` and `⟩`.
    fn text(functions: &str) -> String {
        let call = crate::elementwise::tests::parsed(functions);
        let text = lambda(call.definitions.last().unwrap());
        let shown = |piece: &Piece| match piece {
            Piece::Own(text) => text.clone(),
            Piece::Row(name) => format!("⟨{name}⟩"),
            Piece::Lambda(path) | Piece::Constant(path) => {
                let path = quote::ToTokens::to_token_stream(path).to_string();
                format!("⟨{}⟩", path.replace(' ', ""))
            }
        };
        text.pieces.iter().map(shown).collect()
    }

    #[track_caller]
    fn says(function: &str, expected: &str) {
        assert_eq!(text(function), expected, "{function}");
    }

    #[test]
    fn a_function_is_a_lambda() {
        says(
            "fn f(x: f32, n: half::f16) -> f32 { x }",
            "[](f32 v0, f16 v1) -> f32 { return v0; }",
        );
        says(
            "fn f(x: f32) -> f32 { let y = x * 2.0; let x: f32 = y - x; x / y }",
            "[](f32 v0) -> f32 { auto v1 = cs_mul(v0, cs_literal(2.0)); \
             f32 v2 = cs_sub(v1, v0); return cs_div(v2, v1); }",
        );
        says(
            "fn f(x: f32) -> bool { (x + 1.0 > 2.0 && !(x == 3.0)) || false }",
            "[](f32 v0) -> bool { return (((cs_add(v0, cs_literal(1.0)) > cs_literal(2.0)) && \
             cs_not((v0 == cs_literal(3.0)))) || false); }",
        );
        says(
            "fn f(n: u8) -> i64 { -(((n & 1 | 2) ^ 3) << 1 >> n % 0x10) as i64 }",
            "[](u8 v0) -> i64 { return cs_cast<i64>(cs_neg(cs_shr(cs_shl(cs_xor(cs_or(cs_and(v0, \
             cs_literal(1)), cs_literal(2)), cs_literal(3)), cs_literal(1)), cs_rem(v0, \
             cs_literal(16))))); }",
        );
    }

    #[test]
    fn an_if_is_a_conditional_expression() {
        says(
            "fn f(x: f32) -> f32 { if x < 0.0 { -x } else if x > 9.0 { 9.0 } else { x } }",
            "[](f32 v0) -> f32 { return ((v0 < cs_literal(0.0)) ? cs_neg(v0) : \
             ((v0 > cs_literal(9.0)) ? cs_literal(9.0) : v0)); }",
        );
        says(
            "fn f(x: f32) -> f32 { let a = if x > 0.0 { let x = x + x; x } else { x }; { a * x } }",
            "[](f32 v0) -> f32 { auto v2 = ((v0 > cs_literal(0.0)) ? [&] { auto v1 = cs_add(v0, v0); \
             return v1; }() : v0); return cs_mul(v2, v0); }",
        );
    }

    #[test]
    fn functions_are_spliced_in() {
        says(
            "fn f(x: f32) -> f32 { x.exp() }",
            "[](f32 v0) -> f32 { return ⟨exp⟩(v0); }",
        );
        says(
            "fn f(x: f32) -> f32 { x.max(0.0) }",
            "[](f32 v0) -> f32 { return ⟨maximum⟩(v0, cs_literal(0.0)); }",
        );
        says(
            "fn f(x: f32) -> f32 { x.powi(-2) }",
            "[](f32 v0) -> f32 { return ⟨powi⟩(v0, cs_literal(-2)); }",
        );
        says(
            "fn f(x: f32) -> f32 { self::other::g(x, h(1.0)) }",
            "[](f32 v0) -> f32 { return ⟨self::other::g⟩(v0, ⟨h⟩(cs_literal(1.0))); }",
        );
    }

    #[test]
    fn constants_are_spliced_in() {
        says(
            "fn f(x: f32) -> f32 { -PI * x + std::f32::consts::E.ln() }",
            "[](f32 v0) -> f32 { return cs_add(cs_mul(cs_neg(⟨PI⟩), v0), ⟨ln⟩(⟨std::f32::consts::E⟩)); }",
        );
        says(
            "fn f(X: f32) -> f32 { let Y = X * Z; Y }",
            "[](f32 v0) -> f32 { auto v1 = cs_mul(v0, ⟨Z⟩); return v1; }",
        );
    }

    #[test]
    fn numbers_are_those_of_cpp() {
        for (number, expected) in [
            ("1_000", "cs_literal(1000)"),
            ("0xff_u8", "cs_cast<u8>(255)"),
            ("-7i8", "cs_cast<i8>(-7)"),
            (
                "-9223372036854775808",
                "cs_literal(-9223372036854775807 - 1)",
            ),
            (
                "18446744073709551615",
                "cs_literal(18446744073709551615ull)",
            ),
            ("2.", "cs_literal(2.)"),
            ("-1e-3_f32", "cs_cast<f32>(-1e-3)"),
            ("true", "true"),
        ] {
            let expected = format!("[](f32 v0) -> f32 {{ return {expected}; }}");
            says(&format!("fn f(x: f32) -> f32 {{ {number} }}"), &expected);
        }
    }
}
