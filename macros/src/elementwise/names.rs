//! Names in the expansion that cannot collide with the user's names.
//!
//! Only local variables have hygiene. A type parameter or a constant is visible to all paths in its
//! item or block. So the names of type parameters and items must not occur in the call. A function
//! parameter has hygiene. But it is an error if a static, a constant or a unit structure has an
//! equal name. So an additional parameter reuses the word of a user's parameter: that word would
//! already cause the error.

use std::collections::HashSet;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};

/// A generator of identifiers that do not occur in the input of the macro.
pub(crate) struct Fresh(HashSet<String>);

impl Fresh {
    /// Creates a generator of names that do not occur in `tokens`.
    pub(super) fn beside(tokens: TokenStream) -> Self {
        let mut words = HashSet::new();
        collect(tokens, &mut words);
        Self(words)
    }

    /// Returns `word`, or `word` with a number, as the name of a type parameter or an item.
    pub(super) fn word(&self, word: &str) -> Ident {
        let numbered = (1..).map(|number| format!("{word}{number}"));
        let mut names = std::iter::once(word.to_owned()).chain(numbered);
        let free = names.find(|name| !self.0.contains(name));
        Ident::new(free.as_deref().unwrap_or(word), Span::mixed_site())
    }
}

fn collect(tokens: TokenStream, words: &mut HashSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), words),
            TokenTree::Ident(word) => {
                words.insert(word.to_string());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns a name for an additional function parameter. The name has the word of the user's
/// parameter `argument`, but differs by hygiene.
pub(super) fn beside(argument: &Ident) -> Ident {
    let mut name = argument.clone();
    name.set_span(Span::mixed_site());
    name
}

#[cfg(test)]
mod tests {
    use super::Fresh;

    #[test]
    fn a_name_is_numbered_until_the_call_has_none_such() {
        let fresh = Fresh::beside(
            "fn f(x: A::f16) -> f32 { (B1 + { [A1, A3] }) }"
                .parse()
                .unwrap(),
        );
        let names = ["A", "B", "C"].map(|word| fresh.word(word).to_string());
        assert_eq!(names, ["A2", "B", "C"]);
    }
}
