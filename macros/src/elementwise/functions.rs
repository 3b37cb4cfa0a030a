//! The library's elementwise functions, which can be called as methods. Each call of the macro
//! contains their list.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, bracketed, parenthesized};

#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) target: String,
    /// The number of arguments, without the receiver.
    arguments: usize,
}

/// The known functions, by their names in user-written functions.
#[derive(Debug)]
pub(crate) struct Functions(Vec<(String, Known)>);

/// Parses `[name [alias …] (argument …) …]`.
impl Parse for Functions {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let rows;
        bracketed!(rows in input);
        let mut functions = Vec::new();
        while !rows.is_empty() {
            let (aliases, arguments);
            let name = Ident::parse_any(&rows)?;
            bracketed!(aliases in rows);
            parenthesized!(arguments in rows);
            let mut count = 0;
            while !arguments.is_empty() {
                Ident::parse_any(&arguments)?;
                count += 1;
            }
            let known = Known {
                target: name.to_string(),
                arguments: count - 1,
            };
            while !aliases.is_empty() {
                let alias = Ident::parse_any(&aliases)?;
                functions.push((alias.to_string(), known.clone()));
            }
            functions.push((known.target.clone(), known));
        }
        Ok(Self(functions))
    }
}

impl Functions {
    pub(crate) fn find(&self, name: &Ident) -> Result<&Known, Error> {
        let found = self.0.iter().find(|(known, _)| name == known);
        found.map(|(_, known)| known).ok_or_else(|| {
            let mut names: Vec<&str> = self.0.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            Error::new(
                name.span(),
                format!(
                    "`{name}` is not a mathematical function, expected one of {}",
                    names.join(", ")
                ),
            )
        })
    }
}

impl Known {
    /// Checks that the function takes `given` arguments, without the receiver. Errors use `name`,
    /// the name in the call.
    pub(crate) fn check(&self, name: &Ident, given: usize) -> Result<(), Error> {
        if given == self.arguments {
            return Ok(());
        }
        let wanted = match self.arguments {
            0 => "no argument".into(),
            1 => "1 argument".into(),
            more => format!("{more} arguments"),
        };
        let verb = if given == 1 { "is" } else { "are" };
        let problem = format!("`{name}` takes {wanted}, and {given} {verb} given");
        Err(Error::new(name.span(), problem))
    }
}
