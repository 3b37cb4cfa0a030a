//! Tables of loops by element type.

/// The types whose loops are compiled with the library, by the number of `DType`: `f32` and `f64`.
pub const COMPILED_TYPES: usize = 2;

/// Returns a reference to the entry for `$T` of a table of
/// [`COMPILED_TYPES`](compiled::COMPILED_TYPES). For another type it is a reference to `$own`,
/// whose loops are compiled in the crate that uses them. A table is a static: if a constant has the
/// address of a function, the compiler compiles the function where the constant is.
#[doc(hidden)]
#[macro_export]
macro_rules! compiled_or {
    ($T:ty, $table:expr, $own:expr) => {
        // A constant, so that no loop is compiled where there is one in the table.
        if const { (<$T>::DTYPE as usize) < $crate::compiled::COMPILED_TYPES } {
            &$table[<$T>::DTYPE as usize]
        } else {
            const { &$own }
        }
    };
}
