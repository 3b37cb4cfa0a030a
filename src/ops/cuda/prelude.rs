//! What every kernel's text begins with: the element types, their arithmetic, conversions and functions.

use crate::device::cuda::KernelSource;

const TYPES: &str = include_str!("prelude/types.cuh");
const ARITHMETIC: &str = include_str!("prelude/arithmetic.cuh");
const CASTS: &str = include_str!("prelude/casts.cuh");
const FUNCTIONS: &str = include_str!("prelude/functions.cuh");
const COMPLEX: &str = include_str!("prelude/complex.cuh");
const LITERALS: &str = include_str!("prelude/literals.cuh");

/// The kernel that `text` is, with what it relies on before it; `name` is what error messages call it.
pub(super) fn source(name: String, text: &str) -> KernelSource {
    // Only functions that users write have numbers without a type.
    let has_literals = ["cs_literal", "cs_common"]
        .iter()
        .any(|word| text.contains(word));
    let literals = if has_literals { LITERALS } else { "" };
    let is_complex = ["c32", "c64"].iter().any(|word| text.contains(word));
    let complex = if is_complex { COMPLEX } else { "" };
    KernelSource {
        name,
        text: [TYPES, ARITHMETIC, CASTS, FUNCTIONS, complex, literals, text].concat(),
    }
}
