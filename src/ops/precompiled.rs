//! Operations that the library has compiled for `f32` and `f64`, so that programs do not compile
//! them again.
//!
//! A generic function is compiled in the crate that calls it. Functions that most programs call,
//! and large functions, are called through `precompiled!` instead.

/// `precompiled!(function::<T>([array]; name: type))` calls `function`, which returns a
/// `Result<Array<T>>`, with these arrays of `T` and these other operands. If `T` is `f32` or `f64`,
/// it calls the instance that is compiled with the library. A function that returns a `Result<R>`
/// instead is called with `-> R` behind it, where `R` does not depend on `T`.
macro_rules! precompiled {
    ($function:ident::<$T:ident>($([$array:ident]),* $(; $($name:ident: $type:ty),+)?)) => {
        $crate::ops::precompiled::precompiled! { @by_type
            $T, $function, [$($array)*], [$($($name: $type),+)?], ($crate::Array::downcast)
            [f32 -> $crate::Array<f32>] [f64 -> $crate::Array<f64>]
        }
    };
    ($function:ident::<$T:ident>($([$array:ident]),* $(; $($name:ident: $type:ty),+)?) -> $result:ty) => {
        $crate::ops::precompiled::precompiled! { @by_type
            $T, $function, [$($array)*], [$($($name: $type),+)?], (std::convert::identity)
            [f32 -> $result] [f64 -> $result]
        }
    };
    (@by_type
        $T:ident, $function:ident, $arrays:tt, $more:tt, $convert:tt [f32 -> $f32:ty] [f64 -> $f64:ty]
    ) => {
        // Constants, so that nothing is compiled for the other types.
        if const { <$T as $crate::AnyElement>::DTYPE as u8 == $crate::array::DType::F32 as u8 } {
            $crate::ops::precompiled::precompiled!(@made f32 -> $f32, $function, $arrays, $more, $convert)
        } else if const { <$T as $crate::AnyElement>::DTYPE as u8 == $crate::array::DType::F64 as u8 } {
            $crate::ops::precompiled::precompiled!(@made f64 -> $f64, $function, $arrays, $more, $convert)
        } else {
            $crate::ops::precompiled::precompiled!(@generic $function, $T, $arrays, $more)
        }
    };
    (@generic $function:ident, $T:ident, [$($array:ident)*], [$($name:ident: $type:ty),*]) => {
        $function::<$T>($($array,)* $($name),*)
    };
    (@made
        $of:ident -> $result:ty, $function:ident,
        [$($array:ident)*], [$($name:ident: $type:ty),*], ($($convert:tt)+)
    ) => {{
        // Not generic, and so compiled here; not inlined, and so compiled nowhere else.
        #[inline(never)]
        #[track_caller]
        fn made($($array: &$crate::Array<$of>,)* $($name: $type),*) -> $crate::Result<$result> {
            $function::<$of>($($array,)* $($name),*)
        }
        made($($array.downcast_ref(),)* $($name),*).map($($convert)+)
    }};
}

pub(super) use precompiled;
