//! Generates the code of `cache_scope!` and `uncached!`.
//!
//! The expansion of each macro is
//!
//! ```text
//! {
//!     match ScopeGuard::held({ enter…(…) }) { _ => { body } }
//! }
//! ```
//!
//! The body is not a closure. So `?`, `return`, `break` and `continue` leave the scope, and drop
//! the guard. The body is the arm of a `match`, because only a `match` arm has these three
//! properties:
//!
//! - Temporaries of the last expression are dropped at the end of the arm, before the guard, in all
//!   editions. In a plain block, before edition 2024, they would outlive the guard. A `let` still
//!   extends the life of some temporaries: `let x = cache_scope!("a", { &make() })`.
//! - The expected type propagates into the value. So coercions and closures are inferred as in a
//!   plain block. A `let` for the value would prevent this inference.
//! - No code follows the arm. So a diverging block does not create unreachable code.
//!
//! The guard is an unnamed temporary of the `match`, because items lack hygiene. A name in a
//! pattern could refer to a static, a constant or a unit structure of the caller. The guard is
//! dropped at the end of the outer block. The temporaries of the name and the options are dropped
//! at the end of the block around `enter`. The two blocks have the edition of this crate (2024),
//! independent of the caller's edition.
//!
//! The span of `held` is the beginning of the body, as if the caller had written `held`. If a
//! future holds the guard, the compiler's error points at this span. Clippy also inspects this
//! span, although it skips code of external macros.
//!
//! The inner braces form a block at the end of a block, in which inner attributes are allowed. All
//! braces have the hygiene of this crate, so lints on redundant braces ignore them. The only item,
//! the static of a call site, is in a block without user code. All paths, even of primitive types,
//! begin at the crate's path. The caller may have items named `core` or `str`.

use crate::body::Body;
use crate::options::{Key, ScopeOption};
use crate::parse::{CacheScope, Name, Uncached, krate_at};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, LitStr};

/// Generates the scope as an expression with the value of its block.
pub(crate) fn cache_scope(call: &CacheScope) -> TokenStream {
    let krate = &call.krate;
    let enter = match (&call.name, call.options.as_slice()) {
        (Name::Literal(name), options) => enter_site(krate, name, options),
        (Name::Computed(name), options) => enter_named(krate, name, options),
    };
    guarded(krate, &enter, &call.body)
}

/// Generates the block or expression outside of all caches.
pub(crate) fn uncached(call: &Uncached) -> TokenStream {
    let krate = &call.krate;
    let enter = quote_spanned! {Span::mixed_site()=> #krate::__private::enter_uncached() };
    guarded(krate, &enter, &call.body)
}

fn guarded(krate: &TokenStream, enter: &TokenStream, body: &Body) -> TokenStream {
    let mut block = Group::new(Delimiter::Brace, body.tokens.clone());
    block.set_span(Span::mixed_site().located_at(body.span));
    // The span of a call extends from its first token to its last token. The first token must be in
    // the user's code, and not in the path of the crate.
    let held = quote_spanned! {body.span=> <#krate::scope::ScopeGuard>::held };
    let mut entered = Group::new(
        Delimiter::Parenthesis,
        quote_spanned! {Span::mixed_site()=> { #enter } },
    );
    entered.set_span(body.span);
    quote_spanned! {Span::mixed_site()=>
        {
            match #held #entered { _ => { #block } }
        }
    }
}

fn enter_site(krate: &TokenStream, name: &LitStr, options: &[ScopeOption]) -> TokenStream {
    let site = call_site(krate, name);
    if options.is_empty() {
        return quote_spanned! {Span::mixed_site()=> #krate::__private::enter(#site) };
    }
    let options = scope_options(krate, options);
    quote_spanned! {Span::mixed_site()=> #krate::__private::enter_site(#site, #options) }
}

/// Generates the entry of a scope with a computed name. The name is borrowed. The conversion to a
/// string has the span of the name. So if the name does not convert, the compiler points at the
/// name. The conversion begins with a bracket, because the crate's path belongs to another
/// expansion. If the path were first, the error would point at the whole call.
fn enter_named(krate: &TokenStream, name: &Expr, options: &[ScopeOption]) -> TokenStream {
    let options = scope_options(krate, options);
    let span = Span::mixed_site().located_at(name.span());
    let core = core_at(krate, span);
    let name = quote_spanned! {span=>
        <_ as #core::convert::AsRef<#core::primitive::str>>::as_ref(&(#name))
    };
    quote_spanned! {Span::mixed_site()=> #krate::__private::enter_named(#name, #options) }
}

fn call_site(krate: &TokenStream, name: &LitStr) -> TokenStream {
    quote_spanned! {Span::mixed_site()=>
        {
            static SITE: #krate::__private::CallSite = #krate::__private::CallSite::new(#name);
            &SITE
        }
    }
}

/// Returns the path of the crate `core`. The caller may rename `core`, or use its name for another
/// item.
pub(crate) fn core_at(krate: &TokenStream, span: Span) -> TokenStream {
    let krate = krate_at(krate, span);
    quote_spanned! {span=> #krate::__private::core }
}

/// Generates the options. The given fields precede the missing fields. They keep their source
/// order, because it is their evaluation order.
fn scope_options(krate: &TokenStream, options: &[ScopeOption]) -> TokenStream {
    let span = Span::mixed_site();
    let core = core_at(krate, span);
    let given = options.iter().map(|option| {
        let field = Ident::new(option.key.word(), span);
        let value = &option.value;
        quote_spanned! {span=> #field: <#core::option::Option<_>>::Some(#value) }
    });
    let is_given = |key: &Key| options.iter().any(|option| option.key == *key);
    let missing = Key::ALL
        .into_iter()
        .filter(|key| !is_given(key))
        .map(|key| {
            let field = Ident::new(key.word(), span);
            quote_spanned! {span=> #field: <#core::option::Option<_>>::None }
        });
    quote_spanned! {span=> #krate::__private::ScopeOptions { #(#given,)* #(#missing,)* } }
}
