//! The procedural macros of cachescope, which are used through the crate `cachescope`.
//!
//! Each input is `(path) tokens…`. `path` is the path of the crate `cachescope`, as resolved by the
//! `macro_rules!` front end. The user's tokens follow it. With this path, and hygiene for local
//! names, the expansion needs no imports. If the crate is renamed, the expansion still works.

#![forbid(unsafe_code)]

mod awaits;
mod body;
mod cast_parameters;
mod elementwise;
mod expand;
mod options;
mod parameters;
mod parse;

use proc_macro::TokenStream;
use syn::parse::Parse;

/// Expands `cachescope::cache_scope!`.
#[proc_macro]
pub fn expand_cache_scope(input: TokenStream) -> TokenStream {
    expand_with(input, expand::cache_scope)
}

/// Expands `cachescope::uncached!`.
#[proc_macro]
pub fn expand_uncached(input: TokenStream) -> TokenStream {
    expand_with(input, expand::uncached)
}

/// Expands `cachescope::elementwise!`.
#[proc_macro]
pub fn expand_elementwise(input: TokenStream) -> TokenStream {
    expand_with(input, elementwise::expand)
}

/// Derives `cachescope::grad::Parameters`.
#[proc_macro_derive(Parameters, attributes(parameters))]
pub fn derive_parameters(input: TokenStream) -> TokenStream {
    expand_with(input, |call| {
        parameters::derive(call).unwrap_or_else(syn::Error::into_compile_error)
    })
}

/// Derives `cachescope::grad::CastParameters`.
#[proc_macro_derive(CastParameters, attributes(parameters))]
pub fn derive_cast_parameters(input: TokenStream) -> TokenStream {
    expand_with(input, |call| {
        cast_parameters::derive(call).unwrap_or_else(syn::Error::into_compile_error)
    })
}

fn expand_with<Call: Parse>(
    input: TokenStream,
    expand: fn(&Call) -> proc_macro2::TokenStream,
) -> TokenStream {
    match syn::parse::<Call>(input) {
        Ok(call) => expand(&call).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
