//! Reductions for the element types in which gradients and layer norms are computed.

use num_complex::Complex;

use super::reduce::Reduction;
use crate::array::DType;
#[cfg(feature = "linalg")]
use cachescope_kernels::reduce::{Max, Min, Prod};
use cachescope_kernels::reduce::{Mean, Norm, Std, Sum, Var};

/// The reductions of an operation for `f32` and `f64`. An operation may also have reductions for
/// `Complex<f32>`, `Complex<f64>` and `i64`.
pub(in crate::ops) struct WideReduction([Option<Reduction>; 5]);

impl WideReduction {
    /// Returns the reduction of elements of `dtype`.
    ///
    /// # Panics
    ///
    /// Panics if the operation has no reduction for `dtype`.
    pub(in crate::ops) fn at(&'static self, dtype: DType) -> &'static Reduction {
        let place = match dtype {
            DType::F32 => 0,
            DType::F64 => 1,
            DType::C32 => 2,
            DType::C64 => 3,
            DType::I64 => 4,
            other => unreachable!("{other} is computed in another type"),
        };
        self.0[place]
            .as_ref()
            .expect("the reduction supports the type")
    }
}

macro_rules! floats {
    ($($(#[$attribute:meta])? $name:ident $reducer:ident;)+) => {
        $(
            $(#[$attribute])?
            pub(in crate::ops) static $name: WideReduction = WideReduction([
                Some(Reduction::of::<$reducer, f32>()),
                Some(Reduction::of::<$reducer, f64>()),
                None,
                None,
                None,
            ]);
        )+
    };
}

floats! {
    #[cfg(feature = "linalg")]
    MAX Max;
    MEAN Mean;
    #[cfg(feature = "linalg")]
    MIN Min;
    NORM Norm;
    #[cfg(feature = "linalg")]
    PROD Prod;
    STD Std;
    VAR Var;
}

pub(in crate::ops) static SUM: WideReduction = WideReduction([
    Some(Reduction::of::<Sum, f32>()),
    Some(Reduction::of::<Sum, f64>()),
    Some(Reduction::of::<Sum, Complex<f32>>()),
    Some(Reduction::of::<Sum, Complex<f64>>()),
    Some(Reduction::of::<Sum, i64>()),
]);
