//! The functions that can be called as methods: the library's elementwise functions, which each
//! call of the macro lists.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, bracketed, parenthesized};

/// A known function.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The function's name in the library.
    pub(crate) target: String,
    /// Its arguments beside the receiver.
    arguments: usize,
}

/// The known functions, by their names in a written function.
#[derive(Debug)]
pub(crate) struct Functions(Vec<(String, Known)>);

/// `[name [alias …] (argument …) …]`
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
    /// Returns the function named `name`.
    pub(crate) fn find(&self, name: &Ident) -> Result<&Known, Error> {
        let found = self.0.iter().find(|(known, _)| name == known);
        found.map(|(_, known)| known).ok_or_else(|| {
            let mut names: Vec<&str> = self.0.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            Error::new(
                name.span(),
                format!(
                    "`{name}` is no known function of an element; these are: {}",
                    names.join(", ")
                ),
            )
        })
    }
}

impl Known {
    /// Checks that the function takes `given` arguments beside the receiver. The error calls the
    /// function `name`, the word of the call.
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
