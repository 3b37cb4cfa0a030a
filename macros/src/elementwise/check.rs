//! The subset of Rust that a function of an element may use. Anything else is refused at its first
//! token.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, BinOp, Block, Error, Expr, ExprIf, ExprMethodCall, ExprUnary, FnArg, Ident, ItemFn,
    Lit, Local, Pat, Path, PathArguments, Result, ReturnType, Signature, Stmt, Token, Type, UnOp,
};

use super::functions::Functions;
use super::tree::{Argument, Choice, Definition, ElementType, FunctionBody, Let, Literal, Value};

/// The types of elements, by their last words.
const ELEMENTS: [&str; 13] = [
    "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool",
];

/// The most arguments that a function has.
const MOST_ARGUMENTS: usize = 4;

/// Returns an error at the first token of `tokens`: the whole of a loop is too much to underline.
fn refused(span: Span, what: &str) -> Error {
    Error::new(
        span,
        format!(
            "{what} cannot stand in a function of an element, which is made of arithmetic, \
             comparisons, `!`, `&&`, `||`, `&`, `|`, `^`, `<<`, `>>`, `let`, `if` with `else`, `as`, \
             literals, constants, blocks, mathematical functions as methods, and calls of other such functions"
        ),
    )
}

fn refuse<T>(span: Span, what: &str) -> Result<T> {
    Err(refused(span, what))
}

/// Refuses the first of these tokens that is there.
macro_rules! refuse_tokens {
    ($($token:expr => $what:literal),+ $(,)?) => {
        $(
            if let Some(token) = &$token {
                return refuse(token.span(), $what);
            }
        )+
    };
}

/// Checks one function: every construct in it must be allowed in a function of an element.
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
            format!("a function of an element has 1 to 4 arguments, and {count} are given"),
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
            "a function of an element needs the type of its value, as in `-> f32`",
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

/// The partial derivatives by hand, in the order of the arguments.
type Derivatives = Vec<Option<Path>>;

/// Checks the attributes, which must be documentation and derivatives by hand.
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
                "other attributes than documentation and one `#[derivative(…)]`",
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
                "`derivative` names a function for each argument, or `_` where there is none: there are {arguments} \
                 arguments, and {given} are given"
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

/// Checks a pattern, which must be a name.
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

/// Checks the type of an element.
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
        format!("{what} is no element type; these are: {types}"),
    )
}

/// The names that are known at some place.
#[derive(Clone)]
struct Scope<'a> {
    functions: &'a Functions,
    names: Vec<Ident>,
}

impl Scope<'_> {
    /// Checks a block, which may use the names around it.
    fn body(&self, block: &Block) -> Result<FunctionBody> {
        let mut scope = self.clone();
        let end = block.brace_token.span.close();
        let no_value = |span| Error::new(span, "a block needs a value at its end");
        let Some((last, before)) = block.stmts.split_last() else {
            return Err(no_value(end));
        };
        let lets = before.iter().map(|statement| scope.binding(statement));
        let lets = lets.collect::<Result<_>>()?;
        let value = match last {
            Stmt::Expr(value, None) => scope.value(value)?,
            Stmt::Expr(value, Some(semicolon)) => {
                scope.value(value)?;
                return Err(no_value(semicolon.span()));
            }
            Stmt::Local(_) => {
                scope.binding(last)?;
                return Err(no_value(end));
            }
            Stmt::Item(item) => return refuse(item.span(), "an item"),
            Stmt::Macro(call) => return refuse(call.mac.path.span(), "a macro"),
        };
        Ok(FunctionBody { lets, value })
    }

    /// Checks a statement before the last, which must be a `let`.
    fn binding(&mut self, statement: &Stmt) -> Result<Let> {
        match statement {
            Stmt::Local(local) => self.local(local),
            Stmt::Item(item) => refuse(item.span(), "an item"),
            Stmt::Macro(call) => refuse(call.mac.path.span(), "a macro"),
            Stmt::Expr(value, _) => {
                self.value(value)?;
                Err(Error::new(
                    value.span(),
                    "a value that is not the block's last does nothing",
                ))
            }
        }
    }

    fn local(&mut self, local: &Local) -> Result<Let> {
        if let Some(attribute) = local.attrs.first() {
            return refuse(attribute.pound_token.span(), "attributes");
        }
        let (name, of) = match &local.pat {
            Pat::Type(typed) => (plain_name(&typed.pat)?, Some(element(&typed.ty)?)),
            pattern => (plain_name(pattern)?, None),
        };
        let Some(init) = &local.init else {
            return Err(Error::new(name.span(), "a `let` needs a value"));
        };
        if let Some((other, _)) = &init.diverge {
            return refuse(other.span(), "this `else`");
        }
        let value = self.value(&init.expr)?;
        self.names.push(name.clone());
        Ok(Let { name, of, value })
    }

    fn values<'e>(&self, values: impl IntoIterator<Item = &'e Expr>) -> Result<Vec<Value>> {
        values.into_iter().map(|value| self.value(value)).collect()
    }

    fn value(&self, value: &Expr) -> Result<Value> {
        match value {
            Expr::Group(group) => self.value(&group.expr),
            Expr::Paren(paren) => self.value(&paren.expr),
            Expr::Lit(literal) => literal_of(&literal.lit, false).map(Value::Literal),
            Expr::Path(path) if path.qself.is_none() => self.named(&path.path),
            Expr::Unary(unary) => self.unary(unary),
            Expr::Binary(binary) => {
                check_operator(&binary.op)?;
                let operands = [self.value(&binary.left)?, self.value(&binary.right)?];
                Ok(Value::Binary(Box::new(operands), binary.op))
            }
            Expr::Cast(cast) => Ok(Value::Cast(
                Box::new(self.value(&cast.expr)?),
                element(&cast.ty)?,
            )),
            Expr::If(choice) => self.choice(choice),
            Expr::Block(block) => {
                refuse_tokens! { block.label => "a label" }
                Ok(Value::Block(Box::new(self.body(&block.block)?)))
            }
            Expr::MethodCall(call) => self.method(call),
            Expr::Call(call) => {
                let path = self.function(&call.func)?;
                Ok(Value::Call(path, self.values(&call.args)?))
            }
            other => {
                let (span, what) = foreign(other);
                refuse(span, what)
            }
        }
    }

    /// A name that stands for a number: a local, or else a constant.
    fn named(&self, path: &Path) -> Result<Value> {
        if let Some(name) = path.get_ident()
            && self.names.contains(name)
        {
            return Ok(Value::Local(name.clone()));
        }
        // It would be the type that the function becomes.
        let mut words = path.segments.iter().map(|segment| &segment.ident);
        if let Some(word) = words.find(|&word| word == "Self") {
            return refuse(word.span(), "`Self`");
        }
        match path.get_ident() {
            Some(name) if !is_capitalized(name) => Err(Error::new(
                name.span(),
                format!(
                    "`{name}` is no argument and no `let` of this function; a constant whose name \
                     begins with no capital letter needs a path, as in `self::{name}`"
                ),
            )),
            _ => Ok(Value::Constant(path.clone())),
        }
    }

    fn unary(&self, unary: &ExprUnary) -> Result<Value> {
        let operand = || self.value(&unary.expr).map(Box::new);
        match (&unary.op, &*unary.expr) {
            (UnOp::Neg(_), Expr::Lit(literal)) => {
                literal_of(&literal.lit, true).map(Value::Literal)
            }
            (UnOp::Neg(minus), _) => Ok(Value::Negative(minus.span(), operand()?)),
            (UnOp::Not(not), _) => Ok(Value::Not(not.span(), operand()?)),
            (operator, _) => refuse(operator.span(), "`*`"),
        }
    }

    fn choice(&self, choice: &ExprIf) -> Result<Value> {
        let span = choice.if_token.span();
        let condition = self.value(&choice.cond)?;
        let Some((_, other)) = &choice.else_branch else {
            return Err(Error::new(
                span,
                "an `if` needs an `else`, to have a value either way",
            ));
        };
        let yes = self.body(&choice.then_branch)?;
        let no = match &**other {
            Expr::Block(block) => self.body(&block.block)?,
            other => FunctionBody {
                lets: Vec::new(),
                value: self.value(other)?,
            },
        };
        Ok(Value::If(Box::new(Choice {
            span,
            condition,
            yes,
            no,
        })))
    }

    fn method(&self, call: &ExprMethodCall) -> Result<Value> {
        let function = self.functions.find(&call.method)?;
        refuse_tokens! { call.turbofish => "a type argument" }
        function.check(&call.method, call.args.len())?;
        let arguments = self.values(std::iter::once(&*call.receiver).chain(&call.args))?;
        Ok(Value::Method(
            call.method.clone(),
            function.target.clone(),
            arguments,
        ))
    }

    /// Returns the path of a function that is called.
    fn function(&self, function: &Expr) -> Result<Path> {
        let path = match function {
            Expr::Group(group) => return self.function(&group.expr),
            Expr::Path(path) => path,
            other => {
                let problem = "only functions by their names can be called here";
                return Err(Error::new(other.span(), problem));
            }
        };
        refuse_tokens! { path.qself.as_ref().map(|qself| qself.lt_token) => "a type argument" }
        for segment in &path.path.segments {
            if let PathArguments::AngleBracketed(generics) = &segment.arguments
                && !generics.args.is_empty()
            {
                return refuse(generics.lt_token.span(), "a type argument");
            }
        }
        if let Some(name) = path.path.get_ident()
            && self.names.contains(name)
        {
            let problem = format!("`{name}` is a number here, and no function");
            return Err(Error::new(name.span(), problem));
        }
        let mut path = path.path.clone();
        for segment in &mut path.segments {
            segment.arguments = PathArguments::None;
        }
        Ok(path)
    }
}

/// Returns whether the first letter is a capital, as in the name of a constant.
fn is_capitalized(name: &Ident) -> bool {
    let word = name.unraw().to_string();
    let first = word.trim_start_matches('_').chars().next();
    first.is_some_and(char::is_uppercase)
}

fn literal_of(lit: &Lit, is_negative: bool) -> Result<Literal> {
    let suffix = match lit {
        Lit::Int(number) => number.suffix(),
        Lit::Float(number) => number.suffix(),
        Lit::Bool(_) if !is_negative => "",
        _ => return Err(Error::new(lit.span(), "this literal is no number")),
    };
    if !suffix.is_empty() {
        check_element_name(suffix, lit.span())?;
    }
    Ok(Literal {
        is_negative,
        lit: lit.clone(),
    })
}

fn check_operator(operator: &BinOp) -> Result<()> {
    match operator {
        BinOp::Add(_)
        | BinOp::Sub(_)
        | BinOp::Mul(_)
        | BinOp::Div(_)
        | BinOp::Rem(_)
        | BinOp::And(_)
        | BinOp::Or(_)
        | BinOp::BitAnd(_)
        | BinOp::BitOr(_)
        | BinOp::BitXor(_)
        | BinOp::Shl(_)
        | BinOp::Shr(_)
        | BinOp::Eq(_)
        | BinOp::Ne(_)
        | BinOp::Lt(_)
        | BinOp::Le(_)
        | BinOp::Gt(_)
        | BinOp::Ge(_) => Ok(()),
        other => refuse(other.span(), "an assignment"),
    }
}

/// Returns the name of a refused expression, and its first token.
fn foreign(expression: &Expr) -> (Span, &'static str) {
    let span = expression.span();
    match expression {
        Expr::While(token) => (token.while_token.span(), "`while`"),
        Expr::ForLoop(token) => (token.for_token.span(), "`for`"),
        Expr::Loop(token) => (token.loop_token.span(), "`loop`"),
        Expr::Match(token) => (token.match_token.span(), "`match`"),
        Expr::Return(token) => (token.return_token.span(), "`return`"),
        Expr::Break(token) => (token.break_token.span(), "`break`"),
        Expr::Continue(token) => (token.continue_token.span(), "`continue`"),
        Expr::Unsafe(token) => (token.unsafe_token.span(), "`unsafe`"),
        Expr::Const(token) => (token.const_token.span(), "`const`"),
        Expr::Async(token) => (token.async_token.span(), "`async`"),
        Expr::Let(token) => (token.let_token.span(), "`let`"),
        Expr::Closure(token) => (token.or1_token.span(), "a closure"),
        Expr::Macro(call) => (call.mac.path.span(), "a macro"),
        Expr::Reference(token) => (token.and_token.span(), "a reference"),
        Expr::Try(token) => (token.question_token.span(), "`?`"),
        Expr::Await(token) => (token.await_token.span(), "`.await`"),
        Expr::Index(token) => (token.bracket_token.span.open(), "an index"),
        Expr::Field(token) => (token.member.span(), "a field"),
        Expr::Assign(token) => (token.eq_token.span(), "an assignment"),
        Expr::Tuple(_) => (span, "a tuple"),
        Expr::Array(_) | Expr::Repeat(_) => (span, "an array"),
        Expr::Range(_) => (span, "a range"),
        Expr::Struct(_) => (span, "a structure"),
        _ => (span, "this"),
    }
}

/// Refuses recursion among the functions of one call.
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

/// Returns the name of a function of this module, written as `name` or `self::name`.
fn own_name(path: &Path) -> Option<&Ident> {
    let mut words = path.segments.iter().map(|segment| &segment.ident);
    match (words.next(), words.next(), words.next()) {
        (Some(name), None, None) => Some(name),
        (Some(module), Some(name), None) if module == "self" => Some(name),
        _ => None,
    }
}
