//! Tables of loops by element type.

/// The number of types whose loops are compiled with the library: `f32` and `f64`, the first types
/// of `DType`.
pub const COMPILED_TYPES: usize = 2;

/// Returns a reference to the entry for `$T` of `$table`, which has
/// [`COMPILED_TYPES`](compiled::COMPILED_TYPES) entries. If `$table` has no entry for `$T`, returns
/// a reference to `$own`. The loops of `$own` are compiled in the crate that uses them. A table is
/// a static, not a constant. If a constant contains the address of a function, the function is
/// compiled wherever the constant is used.
#[doc(hidden)]
#[macro_export]
macro_rules! compiled_or {
    ($T:ty, $table:expr, $own:expr) => {
        // The condition is a constant, so that the loops of `$own` are not compiled if the table
        // has an entry.
        if const { (<$T>::DTYPE as usize) < $crate::compiled::COMPILED_TYPES } {
            &$table[<$T>::DTYPE as usize]
        } else {
            const { &$own }
        }
    };
}
