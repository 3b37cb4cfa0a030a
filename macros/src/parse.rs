//! The grammar of `cache_scope!` and `uncached!`.

use crate::body::{self, Body};
use crate::options::{self, ScopeOption};
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result, Token, parenthesized};

/// A call `cache_scope!(name, option = value, …, { … })`.
pub(crate) struct CacheScope {
    /// The path of the crate `cachescope`, provided by the `macro_rules!` front end.
    pub(crate) krate: TokenStream,
    pub(crate) name: Name,
    /// The options in source order, which is the order of evaluation.
    pub(crate) options: Vec<ScopeOption>,
    pub(crate) body: Body,
}

pub(crate) enum Name {
    /// A literal name. The call site can cache the scope's cache.
    Literal(LitStr),
    /// A computed name, which is evaluated at each entry.
    Computed(Expr),
}

/// A call `uncached!({ … })` or `uncached!(expression)`.
pub(crate) struct Uncached {
    /// The path of the crate `cachescope`, provided by the `macro_rules!` front end.
    pub(crate) krate: TokenStream,
    pub(crate) body: Body,
}

impl Parse for CacheScope {
    fn parse(input: ParseStream) -> Result<CacheScope> {
        let krate = parse_krate(input)?;
        let end = last_span(input);
        let name = parse_name(input)?;
        let mut options = Vec::new();
        loop {
            input.parse::<Option<Token![,]>>()?;
            if input.is_empty() {
                return Err(no_block(&name, options.last(), end));
            }
            if Body::peek(input) {
                break;
            }
            options.push(options::parse(input, &options, parse_argument)?);
        }
        Ok(CacheScope {
            krate,
            name,
            options,
            body: Body::parse_last(input)?,
        })
    }
}

impl Parse for Uncached {
    fn parse(input: ParseStream) -> Result<Uncached> {
        let krate = parse_krate(input)?;
        if input.is_empty() {
            return Err(Error::new(
                input.span(),
                "`uncached!` needs a block or an expression",
            ));
        }
        let body = if only_braces_remain(input) {
            Body::parse_last(input)?
        } else {
            parse_lone_expression(input)?
        };
        Ok(Uncached { krate, body })
    }
}

pub(crate) fn parse_krate(input: ParseStream) -> Result<TokenStream> {
    let krate;
    parenthesized!(krate in input);
    krate.parse()
}

/// Returns the path of the crate with the location of `span`. An error at a path is reported at the
/// path's first token.
pub(crate) fn krate_at(krate: &TokenStream, span: Span) -> TokenStream {
    let moved = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    krate.clone().into_iter().map(moved).collect()
}

fn parse_name(input: ParseStream) -> Result<Name> {
    if input.is_empty() {
        return Err(Error::new(
            input.span(),
            "`cache_scope!` needs a name and a block, as in `cache_scope!(\"loop\", { … })`",
        ));
    }
    let first = input.span();
    if options::peek(input) || only_braces_remain(input) {
        return Err(no_name(first));
    }
    let opens_angle = input.peek(Token![<]);
    match parse_argument(input) {
        Ok(name) => classify(name),
        Err(_) if opens_angle => Err(no_name(first)),
        Err(error) => Err(error),
    }
}

fn classify(name: Expr) -> Result<Name> {
    match name {
        Expr::Group(group) => classify(*group.expr),
        Expr::Lit(ExprLit {
            lit: Lit::Str(name),
            ..
        }) => Ok(Name::Literal(name)),
        Expr::Lit(other) => Err(Error::new_spanned(
            other,
            "the name of a scope is a string, such as `\"loop\"`",
        )),
        name => Ok(Name::Computed(name)),
    }
}

/// Parses an expression up to the next comma or the end of the call.
fn parse_argument(input: ParseStream) -> Result<Expr> {
    let ends = |rest: ParseStream| rest.is_empty() || rest.peek(Token![,]);
    let ahead = input.fork();
    if let Ok(value) = ahead.parse::<Expr>()
        && ends(&ahead)
    {
        input.advance_to(&ahead);
        return Ok(value);
    }
    // If the comma is missing, `name { … }` parses as a structure literal. Without eager braces,
    // the expression ends before the brace.
    let value = Expr::parse_without_eager_brace(input)?;
    if ends(input) {
        return Ok(value);
    }
    Err(no_comma(input.span()))
}

fn parse_lone_expression(input: ParseStream) -> Result<Body> {
    let excess = |span| Error::new(span, "`uncached!` takes one block or one expression");
    if input.peek(Token![let]) {
        return Err(excess(input.span()));
    }
    let span = input.span();
    let expression: Expr = input.parse()?;
    input.parse::<Option<Token![,]>>()?;
    if !input.is_empty() {
        return Err(excess(input.span()));
    }
    Body::new(span, expression.into_token_stream())
}

fn only_braces_remain(input: ParseStream) -> bool {
    let ahead = input.fork();
    let braced = body::next_braces(&ahead).is_some();
    let skipped = ahead.parse::<TokenTree>().is_ok() && ahead.parse::<Option<Token![,]>>().is_ok();
    braced && skipped && ahead.is_empty()
}

fn last_span(input: ParseStream) -> Span {
    let rest: Result<TokenStream> = input.fork().parse();
    let last = rest.ok().and_then(|rest| rest.into_iter().last());
    last.map_or_else(|| input.span(), |token| token.span())
}

/// Returns the error for a call without a block. The block may have been parsed as a part of the
/// last argument.
fn no_block(name: &Name, last_option: Option<&ScopeOption>, end: Span) -> Error {
    let last = match (last_option, name) {
        (Some(option), _) => Some(&option.value),
        (None, Name::Computed(name)) => Some(name),
        (None, Name::Literal(_)) => None,
    };
    match (last, last_option, name) {
        (_, _, Name::Computed(Expr::Block(first))) => no_name(first.block.brace_token.span.open()),
        (Some(Expr::Block(_)), Some(option), _) => options::no_value(option.key, option.key_span),
        (Some(Expr::Struct(taken)), _, _) => no_comma(taken.brace_token.span.open()),
        _ => Error::new(
            end,
            "the scope has no block: end the call with `{ … }` or `< … >`",
        ),
    }
}

fn no_name(span: Span) -> Error {
    Error::new(
        span,
        "the name of the scope is missing: write it first, as in `cache_scope!(\"loop\", { … })`",
    )
}

fn no_comma(span: Span) -> Error {
    Error::new(span, "expected `,`")
}

#[cfg(test)]
mod tests {
    use super::{CacheScope, Name, Uncached};
    use crate::options::Key;

    const OPTIONS: [(Key, &str); 3] = [
        (Key::Policy, "policy = choose::<u8, u8>(a, b)"),
        (Key::MaxBytes, "max_bytes = 1 << 30"),
        (Key::Device, "device = &dev"),
    ];
    const BODIES: [&str; 4] = ["{ run() }", "{ run() },", "< run() >", "< run() >,"];

    fn scope(call: &str) -> CacheScope {
        syn::parse_str(&format!("(krate) {call}")).unwrap_or_else(|error| panic!("{call}: {error}"))
    }

    fn refusal(call: &str) -> String {
        match syn::parse_str::<CacheScope>(&format!("(krate) {call}")) {
            Ok(_) => panic!("{call} was accepted"),
            Err(error) => error.to_string(),
        }
    }

    /// Returns all subsets of the options in all orders, including the empty subset.
    fn arrangements() -> Vec<Vec<(Key, &'static str)>> {
        let mut all: Vec<Vec<(Key, &'static str)>> = vec![Vec::new()];
        let mut at = 0;
        while at < all.len() {
            let shorter = all[at].clone();
            let others = OPTIONS.iter().filter(|option| !shorter.contains(option));
            all.extend(others.map(|&option| [shorter.as_slice(), &[option]].concat()));
            at += 1;
        }
        all
    }

    #[test]
    fn takes_every_order_of_options_with_every_form_of_the_block() {
        let arrangements = arrangements();
        assert_eq!(arrangements.len(), 1 + 3 + 6 + 6);
        for options in &arrangements {
            let written: String = options
                .iter()
                .map(|(_, text)| format!("{text}, "))
                .collect();
            let expected: Vec<Key> = options.iter().map(|&(key, _)| key).collect();
            for block in BODIES {
                let call = scope(&format!("\"loop\", {written}{block}"));
                let keys: Vec<Key> = call.options.iter().map(|option| option.key).collect();
                assert_eq!(keys, expected);
                assert_eq!(call.body.tokens.to_string(), "run ()");
            }
        }
    }

    #[test]
    fn distinguishes_literal_names_from_computed_ones() {
        for literal in ["\"loop\"", "r#\"loop\"#"] {
            let name = scope(&format!("{literal}, {{}}")).name;
            assert!(matches!(name, Name::Literal(name) if name.value() == "loop"));
        }
        for computed in [
            "NAME",
            "&format!(\"{a}\")",
            "<T as Named>::NAME",
            "{ NAME }",
            "if a { b } else { c }",
            "Names { first }.first",
            "a + \"b\"",
            "policy",
            "device == other",
        ] {
            let name = scope(&format!("{computed}, {{}}")).name;
            assert!(matches!(name, Name::Computed(_)), "{computed}");
        }
    }

    #[test]
    fn closes_the_angle_form_at_the_last_token_only() {
        for (call, inside) in [
            ("n, <>", ""),
            ("n, < a < b >", "a<b"),
            ("n, < a > b >", "a>b"),
            ("n, < Vec::<Vec<u8>>>", "Vec::<Vec<u8>>"),
            ("n, <<T as U>::V >", "<TasU>::V"),
            ("n, <-1>", "-1"),
            ("n, < |a| -> u8 { a >> 1 } >", "|a|->u8{a>>1}"),
            ("n, < f::<A>, policy == b >", "f::<A>,policy==b"),
        ] {
            let tokens = scope(call).body.tokens.to_string();
            assert_eq!(tokens.replace(' ', ""), inside);
        }
    }

    #[test]
    fn reports_the_missing_argument() {
        for (call, message) in [
            ("", "needs a name and a block"),
            ("{ run() }", "name of the scope is missing"),
            ("< run() >", "name of the scope is missing"),
            ("policy = P, { run() }", "name of the scope is missing"),
            ("{ run() }, policy = P", "name of the scope is missing"),
            ("7, {}", "a string"),
            ("\"a\"", "no block"),
            ("\"a\",", "no block"),
            ("\"a\", policy = P", "no block"),
            ("\"a\" { run() }", "expected `,`"),
            ("name { run() }", "expected `,`"),
            ("name { value }", "expected `,`"),
            ("name, policy = P { run() }", "expected `,`"),
            ("name, policy = P { value }", "expected `,`"),
        ] {
            let found = refusal(call);
            assert!(found.contains(message), "{call}: {found}");
        }
    }

    #[test]
    fn reports_the_fault_of_an_option() {
        for (call, message) in [
            ("n, polcy = P, {}", "unknown option `polcy`"),
            ("n, polcy, {}", "unknown option `polcy`"),
            ("n, unsafe {}", "expected an option"),
            ("n, \"m\", {}", "expected an option"),
            ("n, policy = P, policy = Q, {}", "`policy` is given twice"),
            (
                "n, max_bytes = 1, device = d, max_bytes = 2, {}",
                "`max_bytes` is given twice",
            ),
            ("n, policy = , {}", "`policy` has no value"),
            ("n, policy, {}", "`policy` has no value"),
            ("n, policy =", "`policy` has no value"),
            ("n, policy {}", "`policy` has no value"),
            ("n, policy => P, {}", "`policy` has no value"),
            ("n, device = { run() }", "`device` has no value"),
        ] {
            let found = refusal(call);
            assert!(found.contains(message), "{call}: {found}");
        }
    }

    #[test]
    fn reports_the_fault_of_the_block() {
        for (call, message) in [
            ("n, {}, policy = P", "nothing may follow"),
            ("n, {}.len()", "nothing may follow"),
            ("n, {} {}", "nothing may follow"),
            ("n, < run() >, policy = P", "nothing may follow"),
            ("n, < run()", "closing `>` must be the last"),
            ("n, < a > b", "closing `>` must be the last"),
            ("n, < || ->", "closing `>` must be the last"),
            ("n, < a =>", "closing `>` must be the last"),
            ("n, <", "closing `>` must be the last"),
            ("n, { f().await }", "`.await` cannot be used"),
            ("n, < f().await >", "`.await` cannot be used"),
        ] {
            let found = refusal(call);
            assert!(found.contains(message), "{call}: {found}");
        }
    }

    #[test]
    fn takes_one_block_or_expression_outside_every_cache() {
        let body = |call: &str| match syn::parse_str::<Uncached>(&format!("(krate) {call}")) {
            Ok(call) => call.body.tokens.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(body("{ a; b }"), "a ; b");
        assert_eq!(body("{ a; b },"), "a ; b");
        assert_eq!(body("a + b"), "a + b");
        assert_eq!(body("a + b,"), "a + b");
        assert_eq!(body("{ a }.b()"), "{ a } . b ()");
        assert_eq!(body("S { a }"), "S { a }");
        assert!(body("").contains("needs a block or an expression"));
        assert!(body("\"n\", { a }").contains("takes one block or one expression"));
        assert!(body("a; b").contains("takes one block or one expression"));
        assert!(body("let a = b").contains("takes one block or one expression"));
        assert!(body("f().await").contains("`.await` cannot be used"));
    }
}
