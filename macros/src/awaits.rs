//! Finds `.await` in the block of a scope.
//!
//! The search reads tokens. So it also finds awaits in macro definitions of the block, and in macro
//! arguments. In both, the word `await` may occur without a dot, so every `await` is an error.
//! Awaits in the expansion of a macro from outside of the block are not found. For them, the
//! compiler reports that the future holds the guard. A nested async block, closure or function may
//! await, because its code runs only when its future is polled.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, ExprClosure, ItemFn, Result};

/// Returns an error for each `.await` that would suspend the scope.
pub(crate) fn reject(tokens: TokenStream) -> Result<()> {
    let mut found = None;
    search(tokens, &mut found);
    found.map_or(Ok(()), Err)
}

fn search(tokens: TokenStream, found: &mut Option<Error>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let [token, after @ ..] = rest {
        rest = after;
        match token {
            TokenTree::Group(group) => search(group.stream(), found),
            word if is_word(word, "async") => rest = &after[own_length(after)..],
            word if is_word(word, "await") => note_await(word, found),
            _ => {}
        }
    }
}

fn note_await(word: &TokenTree, found: &mut Option<Error>) {
    let error = Error::new(
        word.span(),
        "`.await` cannot be used in the block of a scope, which belongs to one thread from entry \
         to exit: await before or after the block",
    );
    match found {
        Some(first) => first.combine(error),
        None => *found = Some(error),
    }
}

/// Returns the number of tokens after `async` that belong to its block, closure or function.
fn own_length(after_async: &[TokenTree]) -> usize {
    let first = after_async.first();
    let moved = usize::from(first.is_some_and(|token| is_word(token, "move")));
    match after_async.get(moved) {
        Some(block) if is_braces(block) => moved + 1,
        Some(TokenTree::Punct(bar)) if bar.as_char() == '|' => {
            moved + length_of::<ExprClosure>(&after_async[moved..])
        }
        _ => length_of::<ItemFn>(after_async),
    }
}

/// Returns the number of leading tokens that form a `Syntax`. If the tokens do not parse, returns
/// the number of tokens up to the first braces or semicolon.
fn length_of<Syntax: Parse>(tokens: &[TokenTree]) -> usize {
    let counted = |input: ParseStream| {
        input.parse::<Syntax>()?;
        Ok(input.parse::<TokenStream>()?.into_iter().count())
    };
    let ends = |token: &TokenTree| is_braces(token) || is_semicolon(token);
    match counted.parse2(tokens.iter().cloned().collect()) {
        Ok(remaining) => tokens.len() - remaining,
        Err(_) => tokens.iter().position(ends).map_or(0, |at| at + 1),
    }
}

fn is_braces(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(found) if found == word)
}

#[cfg(test)]
mod tests {
    use super::reject;

    fn awaits(source: &str) -> usize {
        match reject(source.parse().unwrap()) {
            Ok(()) => 0,
            Err(error) => error.into_iter().count(),
        }
    }

    #[test]
    fn finds_every_await_of_the_block_itself() {
        assert_eq!(awaits("f().await"), 1);
        assert_eq!(awaits("let x = f().await?; g(h().await); [i.await]"), 3);
        assert_eq!(awaits("if c { { f() . await } }"), 1);
        assert_eq!(awaits("println!(\"{}\", f().await)"), 1);
        assert_eq!(awaits("select! { x = f() => { g().await } }"), 1);
    }

    #[test]
    fn finds_what_macros_of_the_block_await() {
        assert_eq!(awaits("macro_rules! wait { ($f:expr) => { $f.await } }"), 1);
        assert_eq!(awaits("and_then!(f(), [g() | h().await])"), 1);
        assert_eq!(awaits("apply!(f(), await)"), 1);
        assert_eq!(
            awaits("macro_rules! word { () => { await } } f().word!()"),
            1
        );
        assert_eq!(awaits("wait!(f())"), 0, "nobody can see it there");
    }

    #[test]
    fn leaves_other_uses_of_the_word_alone() {
        assert_eq!(awaits("self.r#await; \"x.await\"; /* y.await */"), 0);
        assert_eq!(awaits("mod r#async { }"), 0);
    }

    #[test]
    fn leaves_async_blocks_alone_but_not_what_follows_them() {
        assert_eq!(awaits("async { f().await }"), 0);
        assert_eq!(awaits("async move { if c { f().await } }"), 0);
        assert_eq!(
            awaits("run(async { f().await }); spawn!(async move { g().await })"),
            0
        );
        assert_eq!(awaits("async { f().await }.await"), 1);
        assert_eq!(awaits("join(async { f().await }, g().await)"), 1);
    }

    #[test]
    fn leaves_async_closures_alone_but_not_what_follows_them() {
        assert_eq!(awaits("async |x| x.await"), 0);
        assert_eq!(awaits("async move |x: F| -> u8 { x.await }"), 0);
        assert_eq!(awaits("call(async || f::<A, B>().await + 1)"), 0);
        assert_eq!(awaits("call(async |(a, b)| a.await, g().await)"), 1);
        assert_eq!(awaits("let f = async || g().await; f().await"), 1);
    }

    #[test]
    fn leaves_async_functions_alone_but_not_what_follows_them() {
        assert_eq!(awaits("async fn f() -> u8 { g().await }"), 0);
        assert_eq!(
            awaits("impl S { async unsafe fn f(&self) { g().await } }"),
            0
        );
        assert_eq!(
            awaits("async fn f<T>(x: [u8; { 1 }]) -> A<{ 2 }> where T: B { g().await }"),
            0
        );
        assert_eq!(
            awaits("trait T { async fn f(&self); fn g() { h().await } }"),
            1
        );
        assert_eq!(awaits("async fn f() { g().await } f().await"), 1);
    }
}
