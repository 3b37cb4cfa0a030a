//! The block of a scope. It is found by its delimiters, and never parsed. So the compiler reports
//! errors at the user's own tokens, and this crate supports new syntax without changes.

use crate::awaits;
use proc_macro2::{Delimiter, Group, Punct, Spacing, Span, TokenStream, TokenTree};
use syn::parse::ParseStream;
use syn::{Error, Result, Token};

/// The tokens that run inside the scope, without their delimiters.
pub(crate) struct Body {
    pub(crate) span: Span,
    pub(crate) tokens: TokenStream,
}

impl Body {
    /// Creates a body from tokens. The tokens must not contain an await. A scope belongs to one
    /// thread, but a suspended future may resume on another thread.
    pub(crate) fn new(span: Span, tokens: TokenStream) -> Result<Body> {
        awaits::reject(tokens.clone())?;
        Ok(Body { span, tokens })
    }

    /// Returns whether the next token begins a body.
    pub(crate) fn peek(input: ParseStream) -> bool {
        input.peek(Token![<]) || next_braces(input).is_some()
    }

    /// Parses the remaining tokens of the call as a body in braces or angle brackets.
    pub(crate) fn parse_last(input: ParseStream) -> Result<Body> {
        if let Some(braces) = next_braces(input) {
            input.parse::<TokenTree>()?;
            input.parse::<Option<Token![,]>>()?;
            if !input.is_empty() {
                return Err(not_last(input.span()));
            }
            return Body::new(braces.span_open(), braces.stream());
        }
        let opening: Punct = input.parse()?;
        between_angles(&opening, input.parse()?)
    }
}

/// Returns the next token if it is a braced group. If the group is a fragment of an outer macro
/// (`$body:block`), invisible groups enclose it. These groups are removed.
pub(crate) fn next_braces(input: ParseStream) -> Option<Group> {
    match input.fork().parse() {
        Ok(TokenTree::Group(group)) => visible(group).filter(is_braces),
        _ => None,
    }
}

fn visible(group: Group) -> Option<Group> {
    if group.delimiter() != Delimiter::None {
        return Some(group);
    }
    let mut inner = group.stream().into_iter();
    match (inner.next(), inner.next()) {
        (Some(TokenTree::Group(group)), None) => visible(group),
        _ => None,
    }
}

fn is_braces(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

/// Returns the tokens between `opening` and the last token of the call, which must be the closing
/// `>`. The position alone identifies the closing `>`. So comparisons, generics and arrows in the
/// block are allowed.
fn between_angles(opening: &Punct, rest: TokenStream) -> Result<Body> {
    let mut tokens: Vec<TokenTree> = rest.into_iter().collect();
    if tokens.last().is_some_and(|last| is_punct(last, ',')) {
        tokens.pop();
    }
    if !closes(&tokens, tokens.len().wrapping_sub(1)) {
        return Err(match after_early_close(&tokens) {
            Some(extra) => not_last(extra),
            None => Error::new(
                opening.span(),
                "this `<` opens the block of the scope, whose closing `>` must be the last token \
                 of the call",
            ),
        });
    }
    tokens.pop();
    separate_last(&mut tokens);
    Body::new(opening.span(), tokens.into_iter().collect())
}

/// Returns whether the token at `index` is a `>` that is not a part of an arrow.
fn closes(tokens: &[TokenTree], index: usize) -> bool {
    let arrow = |shaft: &TokenTree| {
        matches!(shaft, TokenTree::Punct(shaft)
            if shaft.spacing() == Spacing::Joint && matches!(shaft.as_char(), '-' | '='))
    };
    tokens.get(index).is_some_and(|head| is_punct(head, '>'))
        && !(index > 0 && arrow(&tokens[index - 1]))
}

/// Returns the span of an option after the intended closing `>`, as in `< … >, policy = …`.
fn after_early_close(tokens: &[TokenTree]) -> Option<Span> {
    let option_at = |index: usize| match &tokens[index..] {
        [
            TokenTree::Punct(comma),
            TokenTree::Ident(key),
            TokenTree::Punct(assign),
            ..,
        ] if comma.as_char() == ','
            && assign.as_char() == '='
            && assign.spacing() == Spacing::Alone =>
        {
            Some(key.span())
        }
        _ => None,
    };
    (1..tokens.len())
        .filter(|&index| closes(tokens, index - 1))
        .find_map(option_at)
}

/// Separates the last token from the closing `>`, with which it may be joined, as in
/// `Vec<Vec<u8>>`.
fn separate_last(tokens: &mut [TokenTree]) {
    if let Some(TokenTree::Punct(last)) = tokens.last_mut() {
        let mut alone = Punct::new(last.as_char(), Spacing::Alone);
        alone.set_span(last.span());
        *last = alone;
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn not_last(span: Span) -> Error {
    Error::new(
        span,
        "nothing may follow the block of the scope: write options before the block",
    )
}
