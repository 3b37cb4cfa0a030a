//! Checks the bodies of functions: blocks, expressions, and the names in expressions.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    BinOp, Block, Error, Expr, ExprIf, ExprMethodCall, ExprUnary, Ident, Lit, Local, Pat, Path,
    PathArguments, Result, Stmt, UnOp,
};

use super::{check_element_name, element, plain_name, refuse, refuse_tokens};
use crate::elementwise::functions::Functions;
use crate::elementwise::tree::{Choice, FunctionBody, Let, Literal, Value};

/// The functions and the local names that are in scope.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    pub(super) functions: &'a Functions,
    pub(super) names: Vec<Ident>,
}

impl Scope<'_> {
    /// Checks a block, which may use the names in scope.
    pub(super) fn body(&self, block: &Block) -> Result<FunctionBody> {
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

    /// Checks a statement before the last statement. It must be a `let`.
    fn binding(&mut self, statement: &Stmt) -> Result<Let> {
        match statement {
            Stmt::Local(local) => self.local(local),
            Stmt::Item(item) => refuse(item.span(), "an item"),
            Stmt::Macro(call) => refuse(call.mac.path.span(), "a macro"),
            Stmt::Expr(value, _) => {
                self.value(value)?;
                Err(Error::new(
                    value.span(),
                    "a value has no effect before the end of a block",
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

    /// Returns the value of a name, which is a local variable or a constant.
    fn named(&self, path: &Path) -> Result<Value> {
        if let Some(name) = path.get_ident()
            && self.names.contains(name)
        {
            return Ok(Value::Local(name.clone()));
        }
        // In the expansion, `Self` would be the type of the function.
        let mut words = path.segments.iter().map(|segment| &segment.ident);
        if let Some(word) = words.find(|&word| word == "Self") {
            return refuse(word.span(), "`Self`");
        }
        match path.get_ident() {
            Some(name) if !is_capitalized(name) => Err(Error::new(
                name.span(),
                format!(
                    "`{name}` is neither an argument nor a `let` of this function: if it is a \
                     constant, write its path, as in `self::{name}`"
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

    fn function(&self, function: &Expr) -> Result<Path> {
        let path = match function {
            Expr::Group(group) => return self.function(&group.expr),
            Expr::Path(path) => path,
            other => {
                let problem = "only a function's name or path can be called here";
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
            let problem = format!("`{name}` is a number here, not a function");
            return Err(Error::new(name.span(), problem));
        }
        let mut path = path.path.clone();
        for segment in &mut path.segments {
            segment.arguments = PathArguments::None;
        }
        Ok(path)
    }
}

/// Returns whether the first letter of a name is a capital, as in the name of a constant.
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
        _ => return Err(Error::new(lit.span(), "this literal is not a number")),
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

/// Returns the first token and the name of a refused expression.
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
