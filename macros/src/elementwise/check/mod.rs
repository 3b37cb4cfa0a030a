//! Checks the subset of Rust that an elementwise function may use. Any other construct is refused
//! at its first token.

mod body;

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, Ident, ItemFn, Pat, Path, Result, ReturnType, Signature, Token, Type,
};

use self::body::Scope;
use super::functions::Functions;
use super::tree::{Argument, Definition, ElementType, Value};

const ELEMENTS: [&str; 13] = [
    "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
];

/// The maximum number of arguments of a function.
const MOST_ARGUMENTS: usize = 4;

/// Creates an error at `span`, the first token of a construct. An error that underlines a whole
/// loop would be hard to read.
fn refused(span: Span, what: &str) -> Error {
    Error::new(
        span,
        format!(
            "{what} cannot be used in an elementwise function, which consists of arithmetic, \
             comparisons, `!`, `&&`, `||`, `&`, `|`, `^`, `<<`, `>>`, `let`, `if` with `else`, \
             `as`, literals, constants, blocks, mathematical functions as methods, and calls of \
             other elementwise functions"
        ),
    )
}

fn refuse<T>(span: Span, what: &str) -> Result<T> {
    Err(refused(span, what))
}

/// Refuses the first optional token that is present.
macro_rules! refuse_tokens {
    ($($token:expr => $what:literal),+ $(,)?) => {
        $(
            if let Some(token) = &$token {
                return refuse(token.span(), $what);
            }
        )+
    };
}

use refuse_tokens;

/// Checks a function. All of its constructs must be allowed in an elementwise function.
pub(crate) fn definition(item: ItemFn, functions: &Functions) -> Result<Definition> {
    let Signature {
        ident: name,
        inputs,
        output,
        ..
    } = check_signature(&item)?;
    let arguments: Vec<Argument> = inputs.iter().map(argument).collect::<Result<_>>()?;
    let (docs, derivatives) = attributes(&item.attrs, arguments.len())?;
    if !(1..=MOST_ARGUMENTS).contains(&arguments.len()) {
        let count = arguments.len();
        return Err(Error::new(
            name.span(),
            format!("an elementwise function has {count} arguments, expected 1 to 4"),
        ));
    }
    let mut scope = Scope {
        functions,
        names: Vec::new(),
    };
    for Argument { name, .. } in &arguments {
        if scope.names.contains(name) {
            let problem = format!("the argument `{name}` is named twice");
            return Err(Error::new(name.span(), problem));
        }
        scope.names.push(name.clone());
    }
    let ReturnType::Type(_, output) = output else {
        return Err(Error::new(
            name.span(),
            "an elementwise function needs a return type, as in `-> f32`",
        ));
    };
    let body = scope.body(&item.block)?;
    Ok(Definition {
        docs,
        derivatives,
        visibility: item.vis.clone(),
        name: name.clone(),
        arguments,
        output: element(output)?,
        body,
    })
}

fn check_signature(item: &ItemFn) -> Result<&Signature> {
    let signature = &item.sig;
    refuse_tokens! {
        signature.constness => "`const`",
        signature.asyncness => "`async`",
        signature.unsafety => "`unsafe`",
        signature.abi => "`extern`",
        signature.generics.lt_token => "generics",
        signature.generics.where_clause => "`where`",
        signature.variadic => "`...`",
    }
    Ok(signature)
}

/// The hand-written partial derivatives, in the order of the arguments.
type Derivatives = Vec<Option<Path>>;

/// Checks the attributes, which must be documentation or hand-written derivatives.
fn attributes(
    attributes: &[Attribute],
    arguments: usize,
) -> Result<(Vec<Attribute>, Option<Derivatives>)> {
    let (mut docs, mut derivatives) = (Vec::new(), None);
    for attribute in attributes {
        if attribute.path().is_ident("doc") {
            docs.push(attribute.clone());
        } else if attribute.path().is_ident("derivative") && derivatives.is_none() {
            derivatives = Some(partials(attribute, arguments)?);
        } else {
            return refuse(
                attribute.pound_token.span(),
                "attributes other than documentation and one `#[derivative(…)]`",
            );
        }
    }
    Ok((docs, derivatives))
}

/// Parses `#[derivative(df_dx, _, df_dz)]`.
fn partials(attribute: &Attribute, arguments: usize) -> Result<Derivatives> {
    let parse = |input: ParseStream<'_>| {
        if input.peek(Token![_]) {
            input.parse::<Token![_]>()?;
            return Ok(None);
        }
        input.call(Path::parse_mod_style).map(Some)
    };
    let list =
        |input: ParseStream<'_>| Punctuated::<_, Token![,]>::parse_terminated_with(input, parse);
    let paths: Derivatives = attribute.parse_args_with(list)?.into_iter().collect();
    if paths.len() != arguments {
        let given = paths.len();
        return Err(Error::new(
            attribute.path().span(),
            format!(
                "the number of functions in `derivative` is {given}, expected {arguments}, one for \
                 each argument: write `_` for an argument without a derivative"
            ),
        ));
    }
    Ok(paths)
}

fn argument(input: &FnArg) -> Result<Argument> {
    match input {
        FnArg::Receiver(receiver) => refuse(receiver.self_token.span(), "`self`"),
        FnArg::Typed(typed) => {
            if let Some(attribute) = typed.attrs.first() {
                return refuse(attribute.pound_token.span(), "attributes of arguments");
            }
            Ok(Argument {
                name: plain_name(&typed.pat)?,
                of: element(&typed.ty)?,
            })
        }
    }
}

/// Checks a pattern, which must be a plain name.
fn plain_name(pattern: &Pat) -> Result<Ident> {
    let Pat::Ident(name) = pattern else {
        return refuse(pattern.span(), "a pattern");
    };
    refuse_tokens! {
        name.by_ref => "`ref`",
        name.mutability => "`mut`",
    }
    match &name.subpat {
        Some((at, _)) => refuse(at.span(), "a pattern"),
        None => Ok(name.ident.clone()),
    }
}

fn element(of: &Type) -> Result<ElementType> {
    let last = match of {
        Type::Group(group) => return element(&group.elem),
        Type::Paren(paren) => return element(&paren.elem),
        Type::Reference(reference) => return refuse(reference.and_token.span(), "a reference"),
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        _ => None,
    };
    let Some(last) = last else {
        return Err(no_element(of.span(), "this"));
    };
    check_element_name(&last.ident.to_string(), last.ident.span())?;
    if !last.arguments.is_none() {
        return refuse(last.arguments.span(), "a type argument");
    }
    Ok(ElementType {
        written: of.clone(),
        word: last.ident.to_string(),
    })
}

fn check_element_name(name: &str, span: Span) -> Result<()> {
    if ELEMENTS.contains(&name) {
        return Ok(());
    }
    Err(no_element(span, &format!("`{name}`")))
}

fn no_element(span: Span, what: &str) -> Error {
    let types = ELEMENTS.join(", ");
    Error::new(
        span,
        format!("{what} is not an element type, expected one of {types}"),
    )
}

/// Refuses recursion among the functions of a call.
pub(crate) fn acyclic(definitions: &[Definition]) -> Result<()> {
    let called = |definition: &Definition| -> Vec<Ident> {
        let mut names = Vec::new();
        definition.body.visit(&mut |value| {
            if let Value::Call(path, _) = value {
                names.extend(own_name(path).cloned());
            }
        });
        names
    };
    for start in definitions {
        let mut reached = called(start);
        let mut next = 0;
        while let Some(name) = reached.get(next).cloned() {
            if name == start.name {
                let way = if next < called(start).len() {
                    ""
                } else {
                    ", by way of others"
                };
                let problem = format!("`{name}` calls itself{way}");
                return Err(Error::new(name.span(), problem));
            }
            let callee = definitions.iter().find(|other| other.name == name);
            let further = callee.map(called).unwrap_or_default();
            let fresh = further.into_iter().filter(|name| !reached.contains(name));
            let fresh: Vec<Ident> = fresh.collect();
            reached.extend(fresh);
            next += 1;
        }
    }
    Ok(())
}

/// Returns the name if the path is `name` or `self::name`. Only these paths may refer to functions
/// of this module.
fn own_name(path: &Path) -> Option<&Ident> {
    let mut words = path.segments.iter().map(|segment| &segment.ident);
    match (words.next(), words.next(), words.next()) {
        (Some(name), None, None) => Some(name),
        (Some(module), Some(name), None) if module == "self" => Some(name),
        _ => None,
    }
}
