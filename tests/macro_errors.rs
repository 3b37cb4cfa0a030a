//! Mistakes in a call of the macros, each with the message and the place that the user sees.
//!
//! `TRYBUILD=overwrite cargo test --test macro_errors` writes the expected messages anew.

#[test]
fn mistakes_point_at_the_offending_token() {
    trybuild::TestCases::new().compile_fail("tests/macro_errors/*.rs");
}
