#![doc = include_str!("../README.md")]

#[macro_use]
mod functions;

#[doc(hidden)]
pub mod blocks;
#[doc(hidden)]
pub mod compare;
#[doc(hidden)]
pub mod compiled;
#[doc(hidden)]
pub mod convolution;
#[doc(hidden)]
pub mod counts;
mod dtype;
#[doc(hidden)]
pub mod element;
#[doc(hidden)]
pub mod elementwise;
#[doc(hidden)]
pub mod lanes;
#[doc(hidden)]
pub mod moves;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod pointers;
#[doc(hidden)]
pub mod products;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod reduce;
#[doc(hidden)]
pub mod registers;
#[doc(hidden)]
pub mod scan;
#[doc(hidden)]
pub mod search;
#[doc(hidden)]
pub mod softmax;
#[doc(hidden)]
pub mod sort;
#[doc(hidden)]
pub mod vector;
#[doc(hidden)]
pub mod walk;

pub use dtype::DType;
pub use element::{AnyElement, Bitwise, Element, Float, Integer, Number, Numeric};
pub use half;
pub use num_complex::{self, Complex};
