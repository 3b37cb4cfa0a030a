//! The arithmetic operators.
//!
//! Integers wrap. The remainder has the sign of the dividend, like Rust's `%` and C's `fmod`, but
//! unlike NumPy's `remainder`.

use crate::elementwise::declare::function;

function! { number pass add Added(x, y) [] => x.plus(y), "cs_add(a, b)" }
function! { number pass sub Subtracted(x, y) [] => x.minus(y), "cs_sub(a, b)" }
function! { number pass mul Times(x, y) [] => x.times(y), "cs_mul(a, b)" }
function! { number pass div Over(x, y) [] => x.over(y), "cs_div(a, b)" }
function! { real pass rem Modulo(x, y) [] => x.modulo(y), "cs_rem(a, b)" }
