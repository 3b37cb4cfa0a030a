//! The form from which derivatives are derived: the function's expression as terms of the library's
//! functions.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{BinOp, Ident, Lit};

use super::host::{at, signed};
use super::tree::{Choice, FunctionBody, Let, Value};
use crate::parse::krate_at;

/// Makes that form.
pub(super) struct Derivable<'a> {
    /// The path of the crate `cachescope`.
    pub(super) krate: &'a TokenStream,
    /// The name of the list of terms.
    pub(super) terms: &'a Ident,
}

impl Derivable<'_> {
    /// Returns the block, in braces.
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
                self.plain(literal.lit.span(), name, signed(literal))
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
            Value::Negative(span, x) => self.operator(*span, "neg", &[x]),
            Value::Not(span, x) => self.element(*span, "not", &[x]),
            Value::Binary(operands, operator) => {
                let [left, right] = &**operands;
                let (is_element, name) = function(operator);
                if is_element {
                    self.element(operator.span(), name, &[left, right])
                } else {
                    self.operator(operator.span(), name, &[left, right])
                }
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
                let arguments: Vec<&Value> = arguments.iter().collect();
                self.element(name.span(), target, &arguments)
            }
            Value::Call(path, arguments) => {
                let (terms, span) = (self.terms, at(path.span()));
                let arguments = arguments.iter().map(|argument| self.value(argument));
                // A list, so that their number is wrong once, in the host's form.
                quote_spanned! {span=> { let all = [#(#arguments),*]; <#path>::__terms(&all, #terms) } }
            }
        }
    }

    /// Returns a number or a truth value as a term.
    fn plain(&self, span: Span, name: &str, value: TokenStream) -> TokenStream {
        let (krate, terms, name) = (
            krate_at(self.krate, span),
            self.terms,
            Ident::new(name, at(span)),
        );
        quote_spanned! {at(span)=> #krate::__private::terms::#name(#value, #terms) }
    }

    /// Returns a call of a function of elements.
    fn element(&self, span: Span, name: &str, arguments: &[&Value]) -> TokenStream {
        let arguments = arguments.iter().map(|argument| self.value(argument));
        let (krate, name, terms) = (
            krate_at(self.krate, span),
            Ident::new(name, at(span)),
            self.terms,
        );
        quote_spanned! {at(span)=> #krate::__private::terms::element::#name(#(#arguments,)* #terms) }
    }

    /// Returns a call of the function that computes an operator.
    fn operator(&self, span: Span, name: &str, arguments: &[&Value]) -> TokenStream {
        let arguments = arguments.iter().map(|argument| self.value(argument));
        let (krate, name, terms) = (
            krate_at(self.krate, span),
            Ident::new(name, at(span)),
            self.terms,
        );
        quote_spanned! {at(span)=> #krate::__private::terms::operators::#name(#(#arguments,)* #terms) }
    }

    fn choice(&self, choice: &Choice) -> TokenStream {
        let (krate, terms) = (krate_at(self.krate, choice.span), self.terms);
        let condition = self.value(&choice.condition);
        let (yes, no) = (self.body(&choice.yes), self.body(&choice.no));
        quote_spanned! {at(choice.span)=>
            #krate::__private::terms::choose(#condition, #yes, #no, #terms)
        }
    }
}

/// Returns whether an operator is a function of elements, and the name of its function.
fn function(operator: &BinOp) -> (bool, &'static str) {
    match operator {
        BinOp::Add(_) => (false, "add"),
        BinOp::Sub(_) => (false, "sub"),
        BinOp::Mul(_) => (false, "mul"),
        BinOp::Div(_) => (false, "div"),
        BinOp::Rem(_) => (false, "rem"),
        BinOp::Shl(_) => (false, "shl"),
        BinOp::Shr(_) => (false, "shr"),
        BinOp::And(_) | BinOp::BitAnd(_) => (true, "and"),
        BinOp::Or(_) | BinOp::BitOr(_) => (true, "or"),
        BinOp::BitXor(_) => (true, "xor"),
        BinOp::Eq(_) => (true, "eq"),
        BinOp::Ne(_) => (true, "ne"),
        BinOp::Lt(_) => (true, "lt"),
        BinOp::Le(_) => (true, "le"),
        BinOp::Gt(_) => (true, "gt"),
        BinOp::Ge(_) => (true, "ge"),
        _ => unreachable!("operators that assign are refused"),
    }
}
