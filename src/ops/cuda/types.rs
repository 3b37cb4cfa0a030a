//! What the element types are called in a kernel's text.

/// What values of the stored type `name` are computed in.
pub(super) fn computed_in(name: &'static str) -> &'static str {
    match name {
        "f16" | "bf16" => "f32",
        same => same,
    }
}
