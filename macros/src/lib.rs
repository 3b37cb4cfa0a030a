//! The procedural macros of cachescope; use them through that crate.
//!
//! Each call arrives as `(path) tokens…`: the path of the crate `cachescope` as the
//! `macro_rules!` front resolved it, then the user's tokens. With that path, and hygiene for every local name,
//! the expansion works without imports and under any name of the crate.

mod awaits;
mod body;
mod elementwise;
mod expand;
mod options;
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

fn expand_with<Call: Parse>(
    input: TokenStream,
    expand: fn(&Call) -> proc_macro2::TokenStream,
) -> TokenStream {
    match syn::parse::<Call>(input) {
        Ok(call) => expand(&call).into(),
        Err(error) => error.into_compile_error().into(),
    }
}
