//! The plans of transforms.

use std::fmt;
use std::sync::Arc;

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

use crate::plan_cache::PlanCache;
use crate::{Direction, OrOutOfMemory};

/// Declares the type of a plan for each row `Name = Transform;`.
macro_rules! plans {
    ($($(#[$attribute:meta])* $name:ident = $transform:ident;)+) => {
        $(
            $(#[$attribute])*
            #[derive(Clone)]
            pub struct $name<T> {
                pub(crate) rows: Arc<dyn $transform<T>>,
                length: usize,
                scratch_length: usize,
            }

            impl<T> $name<T> {
                /// Returns the length of a row, in real or complex numbers.
                #[must_use]
                pub fn length(&self) -> usize {
                    self.length
                }

                /// Returns the number of complex numbers of scratch memory that each thread needs.
                #[must_use]
                pub fn scratch_length(&self) -> usize {
                    self.scratch_length
                }
            }

            impl<T> fmt::Debug for $name<T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, "{}({})", stringify!($name), self.length)
                }
            }
        )+
    };
}

plans! {
    /// A plan for transforms of complex rows of one length, in one direction. A clone shares the
    /// plan.
    ComplexPlan = Fft;
    /// A plan for transforms of real rows of one length to spectra. A clone shares the plan.
    ForwardPlan = RealToComplex;
    /// A plan for transforms of spectra to real rows of one length. A clone shares the plan.
    InversePlan = ComplexToReal;
}

/// Implements [`Transformed::plan`](crate::Transformed::plan).
pub(crate) fn complex<T: FftNum>(
    cache: &PlanCache<dyn Fft<T>>,
    length: usize,
    direction: Direction,
) -> OrOutOfMemory<ComplexPlan<T>> {
    let sign = match direction {
        Direction::Forward => FftDirection::Forward,
        Direction::Inverse => FftDirection::Inverse,
    };
    let rows = cache.get::<T>((length, direction), || {
        FftPlanner::new().plan_fft(length, sign)
    })?;
    Ok(ComplexPlan {
        length,
        scratch_length: rows.get_inplace_scratch_len(),
        rows,
    })
}

/// Implements [`Transformed::plan_forward`](crate::Transformed::plan_forward).
pub(crate) fn forward<T: FftNum>(
    cache: &PlanCache<dyn RealToComplex<T>>,
    length: usize,
) -> OrOutOfMemory<ForwardPlan<T>> {
    let rows = cache.get::<T>((length, Direction::Forward), || {
        RealFftPlanner::new().plan_fft_forward(length)
    })?;
    Ok(ForwardPlan {
        length,
        // The scratch memory includes a copy of a row, which realfft overwrites.
        scratch_length: length.div_ceil(2) + rows.get_scratch_len(),
        rows,
    })
}

/// Implements [`Transformed::plan_inverse`](crate::Transformed::plan_inverse).
pub(crate) fn inverse<T: FftNum>(
    cache: &PlanCache<dyn ComplexToReal<T>>,
    length: usize,
) -> OrOutOfMemory<InversePlan<T>> {
    let rows = cache.get::<T>((length, Direction::Inverse), || {
        RealFftPlanner::new().plan_fft_inverse(length)
    })?;
    Ok(InversePlan {
        length,
        // The scratch memory includes a copy of a spectrum, which realfft overwrites.
        scratch_length: rows.complex_len() + rows.get_scratch_len(),
        rows,
    })
}
