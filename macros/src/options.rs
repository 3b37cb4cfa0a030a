//! The options of a scope: `policy = …`, `max_bytes = …` and `device = …`, each at most once.

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Result, Token};

/// The key of an option, in the order of the fields of `ScopeOptions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    Policy,
    MaxBytes,
    Device,
}

impl Key {
    pub(crate) const ALL: [Key; 3] = [Key::Policy, Key::MaxBytes, Key::Device];

    /// Returns the keyword of the option, which is also the field of `ScopeOptions`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Key::Policy => "policy",
            Key::MaxBytes => "max_bytes",
            Key::Device => "device",
        }
    }
}

/// An option `key = value` of a call.
pub(crate) struct ScopeOption {
    pub(crate) key: Key,
    pub(crate) key_span: Span,
    pub(crate) value: Expr,
}

/// Returns whether the next tokens are `word =`, but not `word ==` or `word =>`.
pub(crate) fn peek(input: ParseStream) -> bool {
    let longer = input.peek2(Token![==]) || input.peek2(Token![=>]);
    input.peek(Ident) && input.peek2(Token![=]) && !longer
}

/// Parses the next option. Its key must differ from the keys of `earlier`. `value` parses an
/// expression up to the comma.
pub(crate) fn parse(
    input: ParseStream,
    earlier: &[ScopeOption],
    value: fn(ParseStream) -> Result<Expr>,
) -> Result<ScopeOption> {
    if !input.peek(Ident) {
        return Err(Error::new(
            input.span(),
            "expected an option (`policy = …`, `max_bytes = …`, `device = …`) or the block \
             `{ … }` or `< … >`",
        ));
    }
    let assigned = peek(input);
    let word: Ident = input.parse()?;
    let key = key_of(&word)?;
    if earlier.iter().any(|option| option.key == key) {
        return Err(Error::new(
            word.span(),
            format!("the option `{word}` is given twice"),
        ));
    }
    if assigned {
        input.parse::<Token![=]>()?;
    }
    if !assigned || input.is_empty() || input.peek(Token![,]) {
        return Err(no_value(key, word.span()));
    }
    Ok(ScopeOption {
        key,
        key_span: word.span(),
        value: value(input)?,
    })
}

fn key_of(word: &Ident) -> Result<Key> {
    let known = Key::ALL.into_iter().find(|key| word == key.word());
    known.ok_or_else(|| {
        Error::new(
            word.span(),
            format!("unknown option `{word}`, expected `policy`, `max_bytes` or `device`"),
        )
    })
}

pub(crate) fn no_value(key: Key, span: Span) -> Error {
    let word = key.word();
    Error::new(
        span,
        format!("the option `{word}` has no value: write `{word} = …`"),
    )
}
