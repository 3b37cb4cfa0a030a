//! Generates the host code of a function: its expression, with operators and functions replaced by
//! library functions.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Ident};

use super::tree::{Choice, FunctionBody, Let, Literal, Value};
use crate::parse::krate_at;

pub(super) struct Host<'a> {
    pub(super) krate: &'a TokenStream,
    /// The name of the variable that contains the pass.
    pub(super) pass: &'a Ident,
}

/// Returns a span with the hygiene and the lints of this crate, and the location of `span`.
pub(super) fn at(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

impl Host<'_> {
    /// Generates a block in braces.
    pub(super) fn body(&self, body: &FunctionBody) -> TokenStream {
        let lets = body.lets.iter().map(|binding| self.binding(binding));
        let value = self.value(&body.value);
        quote_spanned! {Span::mixed_site()=> { #(#lets)* #value } }
    }

    fn binding(&self, binding: &Let) -> TokenStream {
        let (name, value) = (&binding.name, self.value(&binding.value));
        let of = binding.of.as_ref().map(|of| {
            let written = &of.written;
            quote_spanned! {Span::mixed_site()=> : #written }
        });
        quote_spanned! {Span::mixed_site()=> let #name #of = #value; }
    }

    fn value(&self, value: &Value) -> TokenStream {
        match value {
            Value::Literal(literal) => signed(literal),
            Value::Local(name) => name.to_token_stream(),
            Value::Constant(path) => path.to_token_stream(),
            Value::Negative(span, x) => self.operator(*span, "neg", &[self.value(x)]),
            Value::Not(span, x) => {
                let x = self.value(x);
                quote_spanned! {at(*span)=> (!#x) }
            }
            Value::Binary(operands, operator) => self.binary(operands, operator),
            Value::Cast(x, of) => {
                let (x, written) = (self.value(x), &of.written);
                let krate = krate_at(self.krate, written.span());
                quote_spanned! {at(written.span())=>
                    #krate::__private::operators::cast::<#written, _>(#x)
                }
            }
            Value::If(choice) => self.choice(choice),
            Value::Block(body) => self.body(body),
            Value::Method(name, target, arguments) => {
                let values = arguments.iter().map(|argument| self.value(argument));
                // Arguments are evaluated in order, and the other arguments also borrow the pass.
                // Therefore the pass is the last argument.
                let all: Vec<_> = values.chain([self.pass.to_token_stream()]).collect();
                let (krate, span) = (krate_at(self.krate, name.span()), at(name.span()));
                let function = Ident::new(target, span);
                quote_spanned! {span=> #krate::__private::element::#function(#(#all),*) }
            }
            Value::Call(path, arguments) => {
                let (pass, span) = (self.pass, at(path.span()));
                let arguments = arguments.iter().map(|argument| self.value(argument));
                quote_spanned! {span=> <#path>::__apply(#(#arguments,)* #pass) }
            }
        }
    }

    fn binary(&self, [left, right]: &[Value; 2], operator: &BinOp) -> TokenStream {
        let operands = [self.value(left), self.value(right)];
        let name = match operator {
            BinOp::Add(_) => "add",
            BinOp::Sub(_) => "sub",
            BinOp::Mul(_) => "mul",
            BinOp::Div(_) => "div",
            BinOp::Rem(_) => "rem",
            BinOp::Shl(_) => "shl",
            BinOp::Shr(_) => "shr",
            // For all element types, Rust's operators and the library's operators have equal
            // results.
            _ => {
                let [left, right] = operands;
                return quote_spanned! {at(operator.span())=> (#left #operator #right) };
            }
        };
        self.operator(operator.span(), name, &operands)
    }

    /// Generates a call of the function that implements an operator.
    fn operator(&self, span: Span, name: &str, arguments: &[TokenStream]) -> TokenStream {
        let (krate, name) = (krate_at(self.krate, span), Ident::new(name, at(span)));
        quote_spanned! {at(span)=> #krate::__private::operators::#name(#(#arguments),*) }
    }

    fn choice(&self, choice: &Choice) -> TokenStream {
        let condition = self.value(&choice.condition);
        let (yes, no) = (self.body(&choice.yes), self.body(&choice.no));
        quote_spanned! {at(choice.span)=> (if #condition #yes else #no) }
    }
}

pub(super) fn signed(literal: &Literal) -> TokenStream {
    let lit = &literal.lit;
    if literal.is_negative {
        return quote_spanned! {at(lit.span())=> -#lit };
    }
    lit.to_token_stream()
}
