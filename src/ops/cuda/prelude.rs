//! The prelude of every kernel source: element types, arithmetic, conversions and functions.

use crate::device::cuda::KernelSource;

const TYPES: &str = include_str!("prelude/types.cuh");
const ARITHMETIC: &str = include_str!("prelude/arithmetic.cuh");
const CASTS: &str = include_str!("prelude/casts.cuh");
const FUNCTIONS: &str = include_str!("prelude/functions.cuh");
const COMPLEX: &str = include_str!("prelude/complex.cuh");
const LITERALS: &str = include_str!("prelude/literals.cuh");
const WARPS: &str = include_str!("prelude/warps.cuh");

/// Returns the complete source of a kernel: the parts of the prelude that `text` uses, and `text`.
/// Error messages contain `name`.
pub(super) fn source(name: String, text: &str) -> KernelSource {
    // Only functions that users write have untyped literals.
    let has_literals = ["cs_literal", "cs_common"]
        .iter()
        .any(|word| text.contains(word));
    let literals = if has_literals { LITERALS } else { "" };
    let is_complex = ["c32", "c64"].iter().any(|word| text.contains(word));
    let complex = if is_complex { COMPLEX } else { "" };
    let warps = if text.contains("cs_tile") { WARPS } else { "" };
    let parts = [
        TYPES, ARITHMETIC, CASTS, FUNCTIONS, complex, literals, warps, text,
    ];
    KernelSource {
        name,
        text: parts.concat(),
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::source;
    use crate::device::cuda::ptx_of;

    /// If an architecture has the conversion instruction, the conversion uses it. Otherwise,
    /// integer operations compute the bits.
    #[test]
    fn halves_are_rounded_by_the_hardware_that_can() {
        let text = |of: &str| {
            format!("extern \"C\" __global__ void kernel({of}* to, float x) {{ *to = {of}(x); }}")
        };
        for (of, instruction, first) in [
            ("f16", "cvt.rn.f16.f32", 75),
            ("bf16", "cvt.rn.bf16.f32", 80),
        ] {
            for architecture in [75, 80, 90] {
                let kernel = source(format!("a conversion to {of}"), &text(of));
                let Some(ptx) = ptx_of(&kernel, architecture) else {
                    return;
                };
                assert_eq!(
                    ptx.contains(instruction),
                    architecture >= first,
                    "{of} of {architecture}: {ptx}"
                );
            }
        }
    }
}
