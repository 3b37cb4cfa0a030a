//! Functions of single elements, as types and as values, with their loops over blocks of elements.
//!
//! A function is a row of `functions!`, or has a separate file. Its type implements
//! [`Function`](function::Function) for each element type. Its table of [`Calls`](call::Calls)
//! stores the function as a value. Each entry has a loop for each instruction set.

pub mod arithmetic;
pub mod body;
pub mod call;
pub mod cast;
pub mod complex;
mod declare;
pub mod function;
pub mod functions;
pub mod loops;
pub mod operation;
pub mod run;
pub mod select;
mod widened;
pub mod written;
