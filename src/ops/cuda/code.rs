//! An expression graph as CUDA C++. Its functions and types determine the computation. Its arrays
//! and scalars are operands, numbered from left to right.

use std::fmt::Write;

use super::types::computed_in;

/// A builder of the statements that compute one element.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// The stored types of the arrays.
    arrays: Vec<&'static str>,
    /// The types of the scalars.
    scalars: Vec<&'static str>,
    statements: String,
    /// The names of the values in error messages.
    names: Vec<String>,
}

/// The number of a computed value.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeValue(usize);

impl CodeValue {
    pub(super) fn number(self) -> usize {
        self.0
    }
}

/// The longest name in bytes; longer ones do not help.
const LONGEST_NAME: usize = 120;

impl Code {
    pub(super) fn arrays(&self) -> &[&'static str] {
        &self.arrays
    }

    pub(super) fn scalars(&self) -> &[&'static str] {
        &self.scalars
    }

    pub(super) fn statements(&self) -> &str {
        &self.statements
    }

    /// Returns the name of a value in error messages.
    pub(super) fn name(&self, value: CodeValue) -> &str {
        &self.names[value.0]
    }

    fn value(&mut self, name: String) -> CodeValue {
        self.names.push(name);
        CodeValue(self.names.len() - 1)
    }

    /// Adds the element of the next array, whose type is `of`.
    pub(crate) fn array(&mut self, of: &'static str) -> CodeValue {
        let value = self.value(of.into());
        let (number, name, wide) = (self.arrays.len(), value.0, computed_in(of));
        self.arrays.push(of);
        let _ = writeln!(self.statements, "    const {wide} v{name} = x{number};");
        value
    }

    /// Adds the next scalar, whose type is `of`.
    pub(crate) fn scalar(&mut self, of: &'static str) -> CodeValue {
        let value = self.value(of.into());
        let (number, name, wide) = (self.scalars.len(), value.0, computed_in(of));
        self.scalars.push(of);
        let _ = writeln!(
            self.statements,
            "    const {wide} v{name} = cs_wide(o.s{number});"
        );
        value
    }

    /// Adds the function `text` of the arguments `a`, `b`, `c` and `d`, rounded to `of`.
    pub(crate) fn apply(
        &mut self,
        name: &str,
        text: &str,
        of: &'static str,
        operands: &[CodeValue],
    ) -> CodeValue {
        let names: Vec<&str> = operands.iter().map(|operand| self.name(*operand)).collect();
        let mut called = format!("{name}({})", names.join(", "));
        if called.len() > LONGEST_NAME {
            called = format!("{name}(…)");
        }
        let value = self.value(called);
        let wide = computed_in(of);
        let _ = write!(self.statements, "    {wide} v{};\n    {{ ", value.0);
        for (letter, operand) in ["a", "b", "c", "d"].iter().zip(operands) {
            let _ = write!(self.statements, "const auto {letter} = v{}; ", operand.0);
        }
        let _ = writeln!(
            self.statements,
            "typedef {of} R; v{} = cs_wide(R({text})); }}",
            value.0
        );
        value
    }
}
