//! The names of the element types in the text of a kernel.

/// Returns the type that values of the stored type `name` are computed in.
pub(super) fn computed_in(name: &'static str) -> &'static str {
    match name {
        "f16" | "bf16" => "f32",
        same => same,
    }
}
