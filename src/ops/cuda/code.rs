//! Expression graphs as CUDA C++. The functions and types of a graph determine the source. The
//! arrays and scalars of a graph are operands, numbered from left to right.

use std::fmt::Write;

use crate::array::DType;
use crate::ops::expression::graph::{ExpressionGraph, NodeKind};

/// The source of the computation of one element.
#[derive(Debug, Default)]
pub(super) struct Code {
    /// The stored types of the arrays.
    pub(super) arrays: Vec<DType>,
    pub(super) scalars: Vec<DType>,
    /// The statements. The value of node 3 is the variable `v3`.
    pub(super) statements: String,
}

impl Code {
    pub(super) fn of(graph: &ExpressionGraph<'_>) -> Self {
        let mut code = Self::default();
        let Self {
            arrays,
            scalars,
            statements,
        } = &mut code;
        for (number, node) in graph.nodes().iter().enumerate() {
            let (of, wide) = (node.dtype.in_cuda(), node.dtype.computed_in().in_cuda());
            let _ = match node.kind {
                NodeKind::Array(_) => {
                    arrays.push(node.dtype);
                    let at = arrays.len() - 1;
                    writeln!(statements, "    const {wide} v{number} = x{at};")
                }
                NodeKind::Scalar(_) => {
                    scalars.push(node.dtype);
                    let at = scalars.len() - 1;
                    writeln!(statements, "    const {wide} v{number} = cs_wide(o.s{at});")
                }
                NodeKind::Call(call, _) => {
                    let _ = write!(statements, "    {wide} v{number};\n    {{ ");
                    for (letter, operand) in ["a", "b", "c", "d"].iter().zip(node.operands()) {
                        let _ = write!(statements, "const auto {letter} = v{operand}; ");
                    }
                    let text = call.cuda;
                    writeln!(
                        statements,
                        "typedef {of} R; v{number} = cs_wide(R({text})); }}"
                    )
                }
            };
        }
        code
    }
}

/// The maximum length of a name in bytes. Longer names are abbreviated.
const LONGEST_NAME: usize = 120;

/// Returns the name of `graph` in error messages: the expression of its first result.
pub(super) fn name_of(graph: &ExpressionGraph<'_>) -> String {
    let mut names: Vec<String> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        names.push(match node.kind {
            NodeKind::Call(call, _) => {
                let operands = node.operands().iter();
                let operands: Vec<&str> = operands.map(|&own| &*names[own as usize]).collect();
                let called = format!("{}({})", call.name, operands.join(", "));
                match called.len() > LONGEST_NAME {
                    true => format!("{}(…)", call.name),
                    false => called,
                }
            }
            _ => node.dtype.in_cuda().into(),
        });
    }
    names.swap_remove(graph.results()[0])
}
