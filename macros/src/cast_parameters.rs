//! Implements `#[derive(CastParameters)]`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, GenericParam, Generics, Result};

use crate::parameters::{is_skipped, krate, member};

/// Returns the implementation of `CastParameters` for a structure with one type parameter.
pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let text = "`CastParameters` is derived for a `struct`";
        return Err(Error::new(input.ident.span(), text));
    };
    let element = element(&input.generics, &input.ident)?;
    let krate = krate(input)?;
    let name = &input.ident;
    let of_cast = arguments(&input.generics);
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let mut parts = Vec::new();
    for (number, field) in data.fields.iter().enumerate() {
        let (member, _) = member(field, number);
        let of_field = &field.ty;
        parts.push(
            if !is_skipped(field)? && names(of_field.to_token_stream(), element) {
                quote!(#member: <#of_field as #krate::grad::CastParameters>::cast::<__U>(&self.#member)?)
            } else {
                quote!(#member: ::core::clone::Clone::clone(&self.#member))
            },
        );
    }
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::grad::CastParameters for #name #type_generics #where_clause {
            type Cast<__U: #krate::Float> = #name #of_cast;

            #[track_caller]
            fn cast<__U: #krate::Float>(&self) -> #krate::Result<#name #of_cast> {
                ::core::result::Result::Ok(#name { #(#parts),* })
            }
        }
    })
}

fn element<'a>(generics: &'a Generics, name: &Ident) -> Result<&'a Ident> {
    let mut parameters = generics.type_params();
    match (parameters.next(), parameters.next()) {
        (Some(element), None) => Ok(&element.ident),
        _ => {
            let text = format!(
                "`CastParameters` is derived for a `struct` with one type parameter, the type of its elements: \
                 write `struct {name}<T: Float = f32>`, with fields such as `nn::Linear<T>`"
            );
            Err(Error::new(name.span(), text))
        }
    }
}

/// Returns the generic arguments of the structure with the element type `__U`.
fn arguments(generics: &Generics) -> TokenStream {
    let arguments = generics.params.iter().map(|own| match own {
        GenericParam::Type(_) => quote!(__U),
        GenericParam::Lifetime(own) => own.lifetime.to_token_stream(),
        GenericParam::Const(own) => own.ident.to_token_stream(),
    });
    quote!(<#(#arguments),*>)
}

/// Returns whether the tokens of a type contain `name`.
fn names(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|own| match own {
        TokenTree::Ident(own) => own == *name,
        TokenTree::Group(group) => names(group.stream(), name),
        _ => false,
    })
}
