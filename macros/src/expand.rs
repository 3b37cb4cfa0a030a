//! The code of `cache_scope!` and `uncached!`.
//!
//! Both calls become
//!
//! ```text
//! {
//!     match ScopeGuard::held({ enter…(…) }) { _ => { body } }
//! }
//! ```
//!
//! The body is not a closure, so `?`, `return`, `break` and `continue` leave through the guard. It
//! is the arm of a `match`, because only there all of this holds:
//!
//! - temporaries of its last expression die at the end of the arm, before the guard, in every
//!   edition. At the end of a block they would outlive the guard before edition 2024. As in a plain
//!   block, a `let` extends the life of some temporaries: `let x = cache_scope!("a", { &make() })`;
//! - the type that the caller expects reaches the value, so coercions and closures infer as in a
//!   plain block. A `let` for the value would stop this inference;
//! - no code follows it, so a block that diverges leaves nothing unreachable.
//!
//! The guard is a temporary of the `match` without a name, because items have no hygiene. A name in
//! a pattern could mean a static, a constant or a unit structure of the caller's. The guard dies at
//! the end of the outer block. The temporaries of the name and the options die at the end of the
//! block around `enter`. Both blocks have this crate's edition, 2024, whatever the caller's is.
//!
//! The span of `held` is the beginning of the body, as if the caller had written it. If a future
//! holds the guard, the compiler points at this span. Clippy also inspects it, although it skips
//! the code of other crates' macros.
//!
//! The inner braces are a block at the end of a block, where inner attributes may be written. Every
//! brace here has the hygiene of this crate. So lints on superfluous braces do not take these
//! braces for the user's. The one item, the static of a call site, is in a block with no user code.
//! All paths, even of primitive types, begin at the crate's path: the caller may have items named
//! `core` or `str`.

use crate::body::Body;
use crate::options::{Key, ScopeOption};
use crate::parse::{CacheScope, Name, Uncached, krate_at};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, LitStr};

/// Returns the scope as an expression with the value of its block.
pub(crate) fn cache_scope(call: &CacheScope) -> TokenStream {
    let krate = &call.krate;
    let enter = match (&call.name, call.options.as_slice()) {
        (Name::Literal(name), options) => enter_site(krate, name, options),
        (Name::Computed(name), options) => enter_named(krate, name, options),
    };
    guarded(krate, &enter, &call.body)
}

/// Returns the block or expression outside every cache.
pub(crate) fn uncached(call: &Uncached) -> TokenStream {
    let krate = &call.krate;
    let enter = quote_spanned! {Span::mixed_site()=> #krate::__private::enter_uncached() };
    guarded(krate, &enter, &call.body)
}

fn guarded(krate: &TokenStream, enter: &TokenStream, body: &Body) -> TokenStream {
    let mut block = Group::new(Delimiter::Brace, body.tokens.clone());
    block.set_span(Span::mixed_site().located_at(body.span));
    // The span of a call is from its first token to its last. The first token is not in the path of
    // the crate.
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

/// Returns the entry of a scope with a computed name, which is only borrowed. The conversion has
/// the span of the name's tokens, so that the compiler points at them if they make no string. Its
/// first token is the bracket. The path of the crate is of another expansion: if it came first, the
/// span would be the whole call.
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

/// Returns the path of the standard library's core. The caller may give it another name, or its
/// name to another item.
pub(crate) fn core_at(krate: &TokenStream, span: Span) -> TokenStream {
    let krate = krate_at(krate, span);
    quote_spanned! {span=> #krate::__private::core }
}

/// Returns the options. The given fields come first and as written, since that is the order of
/// their evaluation.
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
