//! The functions of the library as an enum, for rules that depend on the function.
//!
//! A function has a type, from which the compiler makes a fused loop, and a variant of
//! [`Operation`]. The rules of derivatives get a function as a `Call` at run time, and match on its
//! `Operation`. A function of `elementwise!` is `Operation::Written`. Two written functions have
//! different values of `Call::id`. No rule depends on this id.

use crate::DType;

macro_rules! operation {
    ($pass:ident $(
        $(#[doc = $doc:literal])+
        $name:ident $op:ident $arguments:tt $kind:ident $(as $aliases:tt)? { $($body:tt)+ }
    )+) => {
        /// The function of a [`Call`](super::call::Call), independent of the types of its operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each variant has the name of its function")]
        pub enum Operation {
            Added,
            Subtracted,
            Times,
            Over,
            Modulo,
            $($op,)+
            Cast,
            OfParts,
            Select,
            /// A function of `elementwise!`.
            Written,
        }
    };
}

functions! { operation }

impl Operation {
    /// Returns whether the function has loops for AVX-512 for elements of `dtype`. Functions of
    /// exponentials have such loops, because networks compute exponentials of many elements. Other
    /// functions have no loops for AVX-512, because these loops would increase the compile time.
    pub(crate) const fn is_wide(self, dtype: DType) -> bool {
        match self {
            Self::Exp | Self::Gelu | Self::Sigmoid | Self::Silu | Self::Tanh => {
                matches!(dtype, DType::F32 | DType::F64)
            }
            // In `f64`, the error function calls `libm` for each element, so vectors do not help.
            Self::Erf => matches!(dtype, DType::F32),
            _ => false,
        }
    }
}
