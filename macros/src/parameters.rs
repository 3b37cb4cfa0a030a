//! Implements `#[derive(Parameters)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Index, Member, Path, Result};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let text = "`Parameters` is derived for a `struct`";
        return Err(Error::new(input.ident.span(), text));
    };
    let krate = krate(input)?;
    let name = &input.ident;
    let mut generics = input.generics.clone();
    if generics.type_params().next().is_some() {
        let predicates = &mut generics.make_where_clause().predicates;
        for field in &data.fields {
            let of_field = &field.ty;
            predicates.push(if is_skipped(field)? {
                syn::parse_quote!(#of_field: ::core::clone::Clone)
            } else {
                syn::parse_quote!(#of_field: #krate::grad::Parameters)
            });
        }
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    // The names of generated variables, such as `__map`, must differ from the user's constants.
    // Otherwise, a pattern would match the constant.
    let (map, zip, map_buffers) = (
        quote!(#krate::grad::MapArrays),
        quote!(#krate::grad::ZipArrays),
        quote!(#krate::grad::MapBuffers),
    );
    let mut mapped = Vec::new();
    let mut zipped = Vec::new();
    let mut buffers = Vec::new();
    for (number, field) in data.fields.iter().enumerate() {
        let (member, part) = member(field, number);
        if is_skipped(field)? {
            mapped.push(quote!(#member: ::core::clone::Clone::clone(&self.#member)));
            continue;
        }
        // The call names the type of the field. If this type does not implement `Parameters`, the
        // compiler reports the error at the field.
        let of_field = &field.ty;
        let parameters = quote!(<#of_field as #krate::grad::Parameters>);
        mapped.push(quote!(#member: {
            #map::enter(__map, &#part);
            let __mapped = #parameters::map_arrays(&self.#member, __map)?;
            #map::leave(__map);
            __mapped
        }));
        zipped.push(quote! {
            #zip::enter(__zip, &#part);
            #parameters::zip_arrays(&mut self.#member, &__other.#member, __zip)?;
            #zip::leave(__zip);
        });
        buffers.push(quote! {
            #map_buffers::enter(__map, &#part);
            #parameters::map_buffers(&mut self.#member, __map)?;
            #map_buffers::leave(__map);
        });
    }
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::grad::Parameters for #name #type_generics #where_clause {
            #[allow(unused_variables)]
            fn map_arrays<__Map: #map>(&self, __map: &mut __Map) -> #krate::Result<Self> {
                ::core::result::Result::Ok(Self { #(#mapped),* })
            }

            #[allow(unused_variables)]
            fn zip_arrays<__Zip: #zip>(
                &mut self,
                __other: &Self,
                __zip: &mut __Zip,
            ) -> #krate::Result<()> {
                #(#zipped)*
                ::core::result::Result::Ok(())
            }

            #[allow(unused_variables)]
            fn map_buffers<__Map: #map_buffers>(
                &mut self,
                __map: &mut __Map,
            ) -> #krate::Result<()> {
                #(#buffers)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// Returns the accessor and the name of a field. The name of an unnamed field is its index.
pub(crate) fn member(field: &Field, number: usize) -> (Member, String) {
    match &field.ident {
        Some(name) => (Member::Named(name.clone()), name.unraw().to_string()),
        None => (Member::Unnamed(Index::from(number)), number.to_string()),
    }
}

/// Returns whether a field has the attribute `#[parameters(skip)]`.
pub(crate) fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    let problem = "unknown option of a field, expected `#[parameters(skip)]`";
    each_option(&field.attrs, ("skip", problem), &mut |_| {
        skipped = true;
        Ok(())
    })?;
    Ok(skipped)
}

/// Returns the path of the crate: `cachescope`, or the path in `#[parameters(crate = path)]`.
pub(crate) fn krate(input: &DeriveInput) -> Result<Path> {
    let mut krate: Path = syn::parse_quote!(::cachescope);
    let problem = "unknown option of a structure, expected `#[parameters(crate = path)]`";
    each_option(&input.attrs, ("crate", problem), &mut |meta| {
        krate = meta.value()?.parse()?;
        Ok(())
    })?;
    Ok(krate)
}

/// Calls `read` for each option in the attributes `#[parameters(…)]`. All options must have the
/// name `known`.
fn each_option(
    attributes: &[Attribute],
    (known, problem): (&str, &str),
    read: &mut dyn FnMut(ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    let own = |attribute: &&Attribute| attribute.path().is_ident("parameters");
    attributes.iter().filter(own).try_for_each(|attribute| {
        attribute.parse_nested_meta(|meta| match meta.path.is_ident(known) {
            true => read(meta),
            false => Err(Error::new(meta.path.span(), problem)),
        })
    })
}
