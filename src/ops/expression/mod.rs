//! Expressions: their types, their graph, and the functions that they apply.
//!
//! Building an expression neither fails nor allocates device memory.
//!
//! | Form | Its arrays | Use |
//! |---|---|---|
//! | static types (`node.rs`) | handles | a program's expressions: the compiler can make one loop of a type |
//! | `AnyLazy` | handles | the library's expressions, and `BoxedLazy`: the nodes in a list, the type as a value |
//! | `ExpressionGraph` | borrowed, with shapes | the evaluators of both devices; equal nodes are one |
//! | `GraphTemplate` | placeholders | gradients, recomputation and bodies of written functions |

mod any_array;
pub(crate) mod any_lazy;
pub(in crate::ops) mod boxed;
pub(in crate::ops) mod declare;
pub(in crate::ops) mod elementwise;
pub(in crate::ops) mod expr;
pub(in crate::ops) mod graph;
pub(in crate::ops) mod node;
mod node_list;
mod node_shapes;
pub(crate) mod nodes;
pub(in crate::ops) mod not_yet;
pub(in crate::ops) mod template;
pub(in crate::ops) mod tree;
pub(in crate::ops) mod vocabulary;
