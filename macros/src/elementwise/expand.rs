//! Generates the code of a call.
//!
//! Each function becomes
//!
//! ```text
//! pub struct mish {}                                  // the function as a type: an operation
//! impl mish { fn __apply(…), __CUDA, __RARE }         // what other written functions call
//! impl Function<(f32,)> for mish { … }                // what expressions call
//! pub fn mish<A>(x: A) -> Lazy<Apply<mish, …>> { … }  // what users call
//! ```
//!
//! The type and the function share a name in two namespaces, so one `use` imports both. The type
//! has braces, because a unit structure would also be a value.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use super::Elementwise;
use super::cuda::lambda;
use super::host::Host;
use super::names::beside;
use super::terms::Derivable;
use super::tree::{Definition, Value};
use crate::expand::core_at;

pub(crate) fn expand(call: &Elementwise) -> TokenStream {
    let functions = call.definitions.iter();
    functions
        .flat_map(|one| [implementation(call, one), builder(call, one)])
        .collect()
}

/// Generates the type and the implementations of its traits.
fn implementation(call: &Elementwise, definition: &Definition) -> TokenStream {
    let (span, krate) = (Span::mixed_site(), &call.krate);
    let core = core_at(krate, span);
    let Definition {
        visibility, name, ..
    } = definition;
    let names = definition.names();
    let (pass, of_pass) = (beside(names[0]), call.fresh.word("L"));
    let body = Host { krate, pass: &pass }.body(&definition.body);
    let terms = derivable(call, definition, &pass);
    let partials = partials(call, definition);
    let types = definition.types();
    let output = &definition.output.written;
    let parts = lambda(definition).constants(krate);
    let rare = rare(krate, definition);
    let text = name.to_string();
    let doc = format!("The elementwise operation [`{name}()`], as a type.");
    let letters = &["a", "b", "c", "d"][..names.len()];
    let letters = format!("({})", letters.join(", "));
    let joined = joined(call, &parts);
    let called = joined_with(call, name, &letters);
    quote_spanned! {span=>
        #[doc = #doc]
        #[allow(non_camel_case_types, dead_code)]
        #[derive(#core::clone::Clone, #core::marker::Copy, #core::fmt::Debug)]
        #visibility struct #name {}

        #[doc(hidden)]
        #[allow(missing_docs, dead_code)]
        impl #name {
            #visibility const __CUDA: &'static #core::primitive::str = #joined;
            #visibility const __RARE: #core::primitive::bool = false #(|| #rare)*;

            #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
            #[inline(always)]
            #visibility fn __apply<#of_pass: #krate::__private::Pass>(
                #(#names: #types,)*
                #[allow(unused_variables)]
                #pass: &mut #of_pass,
            ) -> #output
            #body

            #terms
        }

        impl #krate::__private::Function<(#(#types,)*)> for #name {
            const NAME: &'static #core::primitive::str = #text;
            const CUDA: &'static #core::primitive::str = #called;
            const RARE: #core::primitive::bool = <#name>::__RARE;
            const BODY: #core::option::Option<#krate::__private::terms::Body> =
                #core::option::Option::Some(<#name>::__body);
            #partials
            type Output = #output;

            #[inline(always)]
            fn apply<#of_pass: #krate::__private::Pass>(
                #pass: &mut #of_pass,
                (#(#names,)*): (#(#types,)*),
            ) -> #output {
                <#name>::__apply(#(#names,)* #pass)
            }
        }
    }
}

/// Generates the functions `__terms` and `__body`. Both append the body as terms. If derivatives
/// are hand-written, the only term is a call of the function itself.
fn derivable(call: &Elementwise, definition: &Definition, terms: &Ident) -> TokenStream {
    let (span, krate) = (Span::mixed_site(), &call.krate);
    let core = core_at(krate, span);
    let Definition {
        name, visibility, ..
    } = definition;
    let names = definition.names();
    let types = definition.types();
    let output = &definition.output.written;
    let body = match &definition.derivatives {
        None => Derivable { krate, terms }.body(&definition.body),
        Some(_) => quote_spanned! {span=>
            { #terms.call::<#name, (#(#types,)*)>(&[#(#names),*]) }
        },
    };
    let (numbers, places) = (0..names.len(), 0..names.len());
    let arguments = call.fresh.word("arguments");
    quote_spanned! {span=>
        #[allow(clippy::all, clippy::pedantic, clippy::nursery, unused_variables)]
        #visibility fn __terms(
            #arguments: &[#krate::__private::terms::Term],
            #terms: &mut #krate::__private::terms::Terms,
        ) -> #krate::__private::terms::Term {
            #(let #names = #krate::__private::terms::typed::<#types>(#arguments[#numbers], #terms);)*
            let result = #body;
            #krate::__private::terms::typed::<#output>(result, #terms)
        }

        fn __body(#terms: &mut #krate::__private::terms::Terms) -> #core::option::Option<#core::primitive::u32> {
            let all = [#(#terms.argument(#places)),*];
            let result = <#name>::__terms(&all, #terms);
            #terms.finish(result)
        }
    }
}

/// Generates the constant of the hand-written partial derivatives.
fn partials(call: &Elementwise, definition: &Definition) -> Option<TokenStream> {
    let (span, krate) = (Span::mixed_site(), &call.krate);
    let core = core_at(krate, span);
    let types = definition.types();
    let partials = definition
        .derivatives
        .as_ref()?
        .iter()
        .map(|path| match path {
            None => quote_spanned! {span=> #core::option::Option::None },
            Some(path) => quote_spanned! {span.located_at(path.span())=>
                #core::option::Option::Some(#krate::__private::call_of::<#path, (#(#types,)*)>())
            },
        });
    Some(quote_spanned! {span=>
        const PARTIALS: #core::option::Option<&'static [#core::option::Option<&'static #krate::__private::Call>]> =
            #core::option::Option::Some(&[#(#partials),*]);
    })
}

fn builder(call: &Elementwise, definition: &Definition) -> TokenStream {
    let (span, krate) = (Span::mixed_site(), &call.krate);
    let Definition {
        docs,
        visibility,
        name,
        ..
    } = definition;
    let names = definition.names();
    let types = definition.types();
    let operands = &["A", "B", "C", "D"][..names.len()];
    let operands = operands.iter().map(|name| call.fresh.word(name));
    let operands: Vec<Ident> = operands.collect();
    let join = format_ident!("apply{}", names.len(), span = span);
    quote_spanned! {span=>
        #(#docs)*
        #[track_caller]
        #visibility fn #name<#(#operands: #krate::IntoExpr<#types>),*>(
            #(#names: #operands),*
        ) -> #krate::Lazy<#krate::__private::Apply<
            #name,
            (#(<#operands as #krate::IntoExpr<#types>>::Expr,)*),
        >> {
            #krate::__private::#join(
                #(#krate::IntoExpr::<#types>::into_lazy(#names)),*
            )
        }
    }
}

/// Returns expressions that are true if a called function may encounter a rare element.
fn rare(krate: &TokenStream, definition: &Definition) -> Vec<TokenStream> {
    let span = Span::mixed_site();
    let (mut methods, mut calls): (Vec<&str>, Vec<TokenStream>) = (Vec::new(), Vec::new());
    definition.body.visit(&mut |value| match value {
        Value::Method(_, target, _) => methods.push(target),
        Value::Call(path, _) => {
            calls.push(quote_spanned! {span.located_at(path.span())=> <#path>::__RARE });
        }
        _ => {}
    });
    methods.sort_unstable();
    methods.dedup();
    let of_method = |target: &&str| {
        let name = Ident::new(target, span);
        quote_spanned! {span=> #krate::__private::element::rare::#name }
    };
    methods.iter().map(of_method).chain(calls).collect()
}

/// Generates an expression that concatenates constant texts.
fn joined(call: &Elementwise, parts: &[TokenStream]) -> TokenStream {
    let (span, krate) = (Span::mixed_site(), &call.krate);
    let core = core_at(krate, span);
    // Items lack hygiene, and the block contains the user's constants.
    let (all, bytes) = (call.fresh.word("PARTS"), call.fresh.word("BYTES"));
    quote_spanned! {span=>
        {
            const #all: &[&#core::primitive::str] = &[#(#parts),*];
            const #bytes: [#core::primitive::u8; #krate::__private::text::length(#all)] =
                #krate::__private::text::joined(#all);
            #krate::__private::text::of(&#bytes)
        }
    }
}

/// Generates the text of the function's lambda, followed by `arguments`.
fn joined_with(call: &Elementwise, name: &Ident, arguments: &str) -> TokenStream {
    let span = Span::mixed_site();
    let parts = [
        quote_spanned! {span=> <#name>::__CUDA },
        quote_spanned! {span=> #arguments },
    ];
    joined(call, &parts)
}
