//! The syntax tree of a checked function.

use proc_macro2::Span;
use syn::{Attribute, BinOp, Ident, Lit, Path, Type, Visibility};

pub(crate) struct Definition {
    pub(crate) docs: Vec<Attribute>,
    /// The hand-written derivatives: for each argument, the function that computes the partial
    /// derivative, or `None`.
    pub(crate) derivatives: Option<Vec<Option<Path>>>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: ElementType,
    pub(crate) body: FunctionBody,
}

/// An argument `name: type`.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) of: ElementType,
}

/// The element type of a value: the type as written, and the last word of its path.
pub(crate) struct ElementType {
    pub(crate) written: Type,
    pub(crate) word: String,
}

/// A block `{ let …; … value }`.
pub(crate) struct FunctionBody {
    pub(crate) lets: Vec<Let>,
    pub(crate) value: Value,
}

/// A statement `let name: of = value;`.
pub(crate) struct Let {
    pub(crate) name: Ident,
    pub(crate) of: Option<ElementType>,
    pub(crate) value: Value,
}

pub(crate) enum Value {
    Literal(Literal),
    Local(Ident),
    /// A constant of the user or of a library.
    Constant(Path),
    /// A negation `-x`.
    Negative(Span, Box<Value>),
    /// A complement `!x`.
    Not(Span, Box<Value>),
    Binary(Box<[Value; 2]>, BinOp),
    /// A conversion `x as type`.
    Cast(Box<Value>, ElementType),
    If(Box<Choice>),
    Block(Box<FunctionBody>),
    /// A method call `x.name(…)`: the name in the call, the library's name, and the arguments, with
    /// the receiver first.
    Method(Ident, String, Vec<Value>),
    /// A function call `path(…)`.
    Call(Path, Vec<Value>),
}

/// A literal: a number or a Boolean.
pub(crate) struct Literal {
    pub(crate) is_negative: bool,
    pub(crate) lit: Lit,
}

/// A conditional `if condition { yes } else { no }`.
pub(crate) struct Choice {
    pub(crate) span: Span,
    pub(crate) condition: Value,
    pub(crate) yes: FunctionBody,
    pub(crate) no: FunctionBody,
}

impl Definition {
    pub(crate) fn names(&self) -> Vec<&Ident> {
        self.arguments.iter().map(|one| &one.name).collect()
    }

    pub(crate) fn types(&self) -> Vec<&Type> {
        self.arguments.iter().map(|one| &one.of.written).collect()
    }
}

impl FunctionBody {
    /// Calls `visit` with each value, from left to right. A value precedes its operands.
    pub(crate) fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Value)) {
        for binding in &self.lets {
            binding.value.visit(visit);
        }
        self.value.visit(visit);
    }
}

impl Value {
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Value)) {
        visit(self);
        match self {
            Value::Literal(_) | Value::Local(_) | Value::Constant(_) => {}
            Value::Negative(_, x) | Value::Not(_, x) | Value::Cast(x, _) => x.visit(visit),
            Value::Binary(operands, _) => operands.iter().for_each(|x| x.visit(visit)),
            Value::If(choice) => {
                choice.condition.visit(visit);
                choice.yes.visit(visit);
                choice.no.visit(visit);
            }
            Value::Block(body) => body.visit(visit),
            Value::Method(_, _, arguments) | Value::Call(_, arguments) => {
                arguments.iter().for_each(|x| x.visit(visit));
            }
        }
    }
}
