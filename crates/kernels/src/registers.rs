//! Vector registers of floats, and loops that are compiled for the registers of each processor.

use crate::Number;
#[cfg(target_arch = "x86_64")]
use crate::vector::{has_vectors, has_wide_vectors};

/// A vector register of elements of `T`. Its functions are inlined, and compiled for the target
/// features of the calling function.
///
/// # Safety
///
/// A load reads, and a store writes, exactly [`LANES`](Self::LANES) elements.
pub unsafe trait VectorOf<T>: Copy {
    /// The number of elements.
    const LANES: usize;
    /// `true` if the processor has 32 registers, `false` if it has 16.
    const IS_WIDE: bool;
    /// `true` for x86-64 without AVX2. Code for processors without AVX2 is kept short, because they
    /// are rare.
    const IS_PLAIN: bool = false;

    /// # Safety
    ///
    /// The processor must support the type's instructions. This requirement applies to all
    /// functions of the trait.
    unsafe fn splat(value: T) -> Self;

    /// # Safety
    ///
    /// A vector must be readable at `from`, with any alignment.
    unsafe fn load(from: *const T) -> Self;

    /// # Safety
    ///
    /// A vector must be writable at `to`, with any alignment.
    unsafe fn store(self, to: *mut T);

    /// Returns `self + left · right`.
    ///
    /// # Safety
    ///
    /// The contract of [`splat`](Self::splat) must hold.
    unsafe fn plus_product(self, left: Self, right: Self) -> Self;

    /// # Safety
    ///
    /// The contract of [`splat`](Self::splat) must hold.
    unsafe fn plus(self, other: Self) -> Self;

    /// Returns the sum of the elements.
    ///
    /// # Safety
    ///
    /// The contract of [`splat`](Self::splat) must hold.
    unsafe fn total(self) -> T;
}

#[cfg(target_arch = "x86_64")]
macro_rules! registers {
    ($($type:ty as $register:ident, $lanes:literal, $is_wide:literal:
        $splat:ident $load:ident $store:ident $fma:ident $add:ident $total:expr;)+) => {
        $(
            // SAFETY: the intrinsics access exactly `LANES` elements.
            unsafe impl VectorOf<$type> for std::arch::x86_64::$register {
                const LANES: usize = $lanes;
                const IS_WIDE: bool = $is_wide;

                #[inline(always)]
                unsafe fn splat(value: $type) -> Self {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { std::arch::x86_64::$splat(value) }
                }

                #[inline(always)]
                unsafe fn load(from: *const $type) -> Self {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { std::arch::x86_64::$load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut $type) {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { std::arch::x86_64::$store(to, self) }
                }

                #[inline(always)]
                unsafe fn plus_product(self, left: Self, right: Self) -> Self {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { std::arch::x86_64::$fma(left, right, self) }
                }

                #[inline(always)]
                unsafe fn plus(self, other: Self) -> Self {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { std::arch::x86_64::$add(self, other) }
                }

                #[inline(always)]
                unsafe fn total(self) -> $type {
                    // SAFETY: the caller upholds this function's contract.
                    unsafe { $total(self) }
                }
            }
        )+
    };
}

#[cfg(target_arch = "x86_64")]
registers! {
    f32 as __m512, 16, true: _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_fmadd_ps _mm512_add_ps std::arch::x86_64::_mm512_reduce_add_ps;
    f64 as __m512d, 8, true: _mm512_set1_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_fmadd_pd _mm512_add_pd std::arch::x86_64::_mm512_reduce_add_pd;
    f32 as __m256, 8, false: _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_fmadd_ps _mm256_add_ps total_ps;
    f64 as __m256d, 4, false: _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_fmadd_pd _mm256_add_pd total_pd;
}

/// Returns the sum of the elements.
///
/// # Safety
///
/// The processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn total_ps(vector: std::arch::x86_64::__m256) -> f32 {
    use std::arch::x86_64::{
        _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehl_ps, _mm_shuffle_ps,
        _mm256_castps256_ps128, _mm256_extractf128_ps,
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let half = _mm_add_ps(
            _mm256_castps256_ps128(vector),
            _mm256_extractf128_ps::<1>(vector),
        );
        let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
        _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
    }
}

/// Returns the sum of the elements, like [`total_ps`].
///
/// # Safety
///
/// The processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn total_pd(vector: std::arch::x86_64::__m256d) -> f64 {
    use std::arch::x86_64::{
        _mm_add_pd, _mm_add_sd, _mm_cvtsd_f64, _mm_unpackhi_pd, _mm256_castpd256_pd128,
        _mm256_extractf128_pd,
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let pair = _mm_add_pd(
            _mm256_castpd256_pd128(vector),
            _mm256_extractf128_pd::<1>(vector),
        );
        _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)))
    }
}

/// A vector in plain code, which the compiler vectorises for the architecture's baseline.
#[derive(Clone, Copy, Debug)]
pub struct PlainVector<T>([T; 4]);

/// Floats for which vector registers exist.
pub trait RegisterFloat: Number {
    /// A register of AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Long: VectorOf<Self>;
    /// A register of AVX2.
    #[cfg(target_arch = "x86_64")]
    type Short: VectorOf<Self>;

    /// Returns `self + left · right`. If the processor has a fused multiply-add, the result is
    /// rounded once.
    fn plus_product(self, left: Self, right: Self) -> Self;
}

macro_rules! register_floats {
    ($($type:ident: $long:ident $short:ident;)+) => {
        $(
            impl RegisterFloat for $type {
                #[cfg(target_arch = "x86_64")]
                type Long = std::arch::x86_64::$long;
                #[cfg(target_arch = "x86_64")]
                type Short = std::arch::x86_64::$short;

                #[inline(always)]
                fn plus_product(self, left: Self, right: Self) -> Self {
                    match cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                        true => left.mul_add(right, self),
                        false => self + left * right,
                    }
                }
            }
        )+
    };
}

register_floats! {
    f32: __m512 __m256;
    f64: __m512d __m256d;
}

// SAFETY: the functions access the elements of an array of `LANES` elements.
unsafe impl<T: RegisterFloat> VectorOf<T> for PlainVector<T> {
    const LANES: usize = 4;
    const IS_WIDE: bool = false;
    const IS_PLAIN: bool = cfg!(target_arch = "x86_64");

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Self([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller upholds this function's contract.
        Self(unsafe { from.cast::<[T; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { to.cast::<[T; 4]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn plus_product(self, left: Self, right: Self) -> Self {
        Self(std::array::from_fn(|lane| {
            self.0[lane].plus_product(left.0[lane], right.0[lane])
        }))
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].plus(other.0[lane])))
    }

    #[inline(always)]
    unsafe fn total(self) -> T {
        let [a, b, c, d] = self.0;
        a.plus(b).plus(c.plus(d))
    }
}

/// A loop over vector registers with elements of `T`.
pub trait RegisterLoop<T: RegisterFloat> {
    /// Runs the loop. The function must be marked `#[inline(always)]`.
    ///
    /// # Safety
    ///
    /// The processor must support the instructions of `V`.
    unsafe fn run<V: VectorOf<T>>(self);
}

pub fn with_longest_registers<T: RegisterFloat>(work: impl RegisterLoop<T>) {
    #[cfg(target_arch = "x86_64")]
    {
        if has_vectors() && has_wide_vectors() {
            // SAFETY: the processor has the features, as just checked.
            return unsafe { with_long::<T, _>(work) };
        }
        if has_vectors() {
            // SAFETY: the processor has AVX2 and FMA, as just checked.
            return unsafe { with_short::<T, _>(work) };
        }
    }
    // SAFETY: a plain vector needs only the baseline's instructions.
    unsafe { work.run::<PlainVector<T>>() };
}

/// # Safety
///
/// The processor must support the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
unsafe fn with_long<T: RegisterFloat, W: RegisterLoop<T>>(work: W) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { work.run::<T::Long>() };
}

/// # Safety
///
/// The processor must support the features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_short<T: RegisterFloat, W: RegisterLoop<T>>(work: W) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { work.run::<T::Short>() };
}
