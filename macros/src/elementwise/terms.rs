//! Generates the function as terms of library functions. Derivatives are derived from these terms.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Ident, Lit};

use super::host::{at, signed};
use super::tree::{Choice, FunctionBody, Let, Value};
use crate::parse::krate_at;

pub(super) struct Derivable<'a> {
    pub(super) krate: &'a TokenStream,
    /// The name of the variable that contains the list of terms.
    pub(super) terms: &'a Ident,
}

impl Derivable<'_> {
    /// Generates a block in braces.
    pub(super) fn body(&self, body: &FunctionBody) -> TokenStream {
        let lets = body.lets.iter().map(|binding| self.binding(binding));
        let value = self.value(&body.value);
        quote_spanned! {Span::mixed_site()=> { #(#lets)* #value } }
    }

    fn binding(&self, binding: &Let) -> TokenStream {
        let (krate, name, value) = (self.krate, &binding.name, self.value(&binding.value));
        let Some(of) = &binding.of else {
            return quote_spanned! {Span::mixed_site()=> let #name = #value; };
        };
        let (written, terms) = (&of.written, self.terms);
        quote_spanned! {Span::mixed_site()=>
            let #name = #krate::__private::terms::typed::<#written>(#value, #terms);
        }
    }

    fn value(&self, value: &Value) -> TokenStream {
        match value {
            Value::Literal(literal) => {
                let name = match &literal.lit {
                    Lit::Float(lit) if lit.suffix().is_empty() => "float",
                    Lit::Int(lit) if lit.suffix().is_empty() => "integer",
                    _ => "value",
                };
                self.call(literal.lit.span(), [name], &[signed(literal)])
            }
            Value::Local(name) => name.to_token_stream(),
            Value::Constant(path) => {
                let (krate, terms) = (krate_at(self.krate, path.span()), self.terms);
                quote_spanned! {at(path.span())=>
                    #krate::__private::terms::constant(
                        &const { #krate::__private::text::constant(#path) },
                        #terms,
                    )
                }
            }
            Value::Negative(span, x) => self.call(*span, ["operators", "neg"], &[self.value(x)]),
            Value::Not(span, x) => self.call(*span, ["element", "not"], &[self.value(x)]),
            Value::Binary(operands, operator) => {
                let values = self.values(&**operands);
                self.call(operator.span(), function(operator), &values)
            }
            Value::Cast(x, of) => {
                let (x, written, terms) = (self.value(x), &of.written, self.terms);
                let krate = krate_at(self.krate, written.span());
                quote_spanned! {at(written.span())=>
                    #krate::__private::terms::cast::<#written>(#x, #terms)
                }
            }
            Value::If(choice) => self.choice(choice),
            Value::Block(body) => self.body(body),
            Value::Method(name, target, arguments) => {
                self.call(name.span(), ["element", target], &self.values(arguments))
            }
            Value::Call(path, arguments) => {
                let (terms, span) = (self.terms, at(path.span()));
                let arguments = self.values(arguments);
                // With a list, a wrong number of arguments is reported only once, for the host
                // code.
                quote_spanned! {span=> { let all = [#(#arguments),*]; <#path>::__terms(&all, #terms) } }
            }
        }
    }

    /// Generates a call of the function at `path` in the library's module `terms`.
    fn call<const N: usize>(
        &self,
        span: Span,
        path: [&str; N],
        arguments: &[TokenStream],
    ) -> TokenStream {
        let (krate, terms) = (krate_at(self.krate, span), self.terms);
        let path = path.map(|word| Ident::new(word, at(span)));
        quote_spanned! {at(span)=> #krate::__private::terms #(::#path)* (#(#arguments,)* #terms) }
    }

    fn values<'v>(&self, values: impl IntoIterator<Item = &'v Value>) -> Vec<TokenStream> {
        values.into_iter().map(|value| self.value(value)).collect()
    }

    fn choice(&self, choice: &Choice) -> TokenStream {
        let condition = self.value(&choice.condition);
        let arguments = [condition, self.body(&choice.yes), self.body(&choice.no)];
        self.call(choice.span, ["choose"], &arguments)
    }
}

/// Returns the path in the module `terms` of the function that implements an operator.
fn function(operator: &BinOp) -> [&'static str; 2] {
    match operator {
        BinOp::Add(_) => ["operators", "add"],
        BinOp::Sub(_) => ["operators", "sub"],
        BinOp::Mul(_) => ["operators", "mul"],
        BinOp::Div(_) => ["operators", "div"],
        BinOp::Rem(_) => ["operators", "rem"],
        BinOp::Shl(_) => ["operators", "shl"],
        BinOp::Shr(_) => ["operators", "shr"],
        BinOp::And(_) | BinOp::BitAnd(_) => ["element", "and"],
        BinOp::Or(_) | BinOp::BitOr(_) => ["element", "or"],
        BinOp::BitXor(_) => ["element", "xor"],
        BinOp::Eq(_) => ["element", "eq"],
        BinOp::Ne(_) => ["element", "ne"],
        BinOp::Lt(_) => ["element", "lt"],
        BinOp::Le(_) => ["element", "le"],
        BinOp::Gt(_) => ["element", "gt"],
        BinOp::Ge(_) => ["element", "ge"],
        _ => unreachable!("assignment operators are refused"),
    }
}
