//! Transforms of contiguous rows. Only this module of the transforms depends on the element types.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

use cachescope_fft::{Direction, OrOutOfMemory, Transformed};
use num_complex::Complex;

use crate::array::{AnyElement, DType};
use cachescope_kernels::moves::copies::copy_run;
use cachescope_kernels::sort::digits::initialised;

/// Returns the transform of rows of `length` complex numbers of `dtype`, multiplied by `factor`.
///
/// # Errors
///
/// [`OutOfMemory`](cachescope_fft::OutOfMemory) if the host has no memory for the roots of unity.
pub(super) fn complex_rows(
    dtype: DType,
    length: usize,
    direction: Direction,
    factor: Option<f64>,
) -> OrOutOfMemory<FftRows> {
    match dtype {
        DType::C32 => complex::<f32>(length, direction, factor.map(|factor| factor as f32)),
        DType::C64 => complex::<f64>(length, direction, factor),
        other => unreachable!("{other} has no Fourier transforms"),
    }
}

/// Returns the transform from rows of `length` real numbers of `dtype` to the first halves of their
/// spectra.
pub(super) fn forward_rows(dtype: DType, length: usize) -> OrOutOfMemory<FftRows> {
    match dtype {
        DType::F32 => forward::<f32>(length),
        DType::F64 => forward::<f64>(length),
        other => unreachable!("{other} has no Fourier transforms"),
    }
}

/// Returns the transform from the first `width` numbers of spectra of `dtype` to rows of `length`
/// real numbers. The results are multiplied by `factor`.
pub(super) fn inverse_rows(
    dtype: DType,
    [width, length]: [usize; 2],
    factor: f64,
) -> OrOutOfMemory<FftRows> {
    match dtype {
        DType::C32 => inverse(width, length, factor as f32),
        DType::C64 => inverse(width, length, factor),
        other => unreachable!("{other} has no Fourier transforms"),
    }
}

/// A type-erased transform of rows without gaps.
#[derive(Clone)]
pub(super) struct FftRows {
    /// The numbers of elements of a row that is read, and of a row that is written.
    pub(super) lengths: [usize; 2],
    /// The types of the elements that are read, and of the elements that are written.
    pub(super) dtypes: [DType; 2],
    /// The size of a thread's scratch memory in bytes.
    pub(super) scratch_bytes: usize,
    loops: Arc<dyn RowLoops>,
}

impl FftRows {
    /// Returns the transform that `transform` computes. `transform` writes the transforms of the
    /// rows of one slice to the rows of another slice. The last argument of `transform` is scratch
    /// memory of `scratch_length` complex numbers.
    fn new<T, U, S, F>(lengths: [usize; 2], scratch_length: usize, transform: F) -> Self
    where
        T: AnyElement,
        U: AnyElement,
        S: 'static,
        F: Fn(&[T], &mut [MaybeUninit<U>], &mut [Complex<S>]) + Send + Sync + 'static,
    {
        Self {
            lengths,
            dtypes: [T::DTYPE, U::DTYPE],
            scratch_bytes: scratch_length.saturating_mul(size_of::<Complex<S>>()),
            loops: Arc::new(TypedLoops(transform, PhantomData)),
        }
    }

    /// Returns the sizes in bytes of an element that is read, and of an element that is written.
    pub(super) fn element_bytes(&self) -> [usize; 2] {
        self.dtypes.map(DType::size_bytes)
    }

    /// Returns the sizes in bytes of a row that is read, and of a row that is written.
    pub(super) fn row_bytes(&self) -> [usize; 2] {
        let [read, written] = self.element_bytes();
        [self.lengths[0] * read, self.lengths[1] * written]
    }

    /// Transforms the `count` rows from `from` on, and writes the transforms from `to` on. There
    /// are no gaps between rows.
    ///
    /// # Safety
    ///
    /// The rows from `from` on, and the `scratch_bytes` bytes from `scratch` on, must have been
    /// written. Nothing else may access the rows from `to` on, or the scratch bytes. All addresses
    /// must be aligned for complex numbers, or for the elements.
    pub(super) unsafe fn transform(
        &self,
        count: usize,
        from: *const u8,
        to: *mut u8,
        scratch: *mut u8,
    ) {
        let counts = self.lengths.map(|length| length * count);
        // SAFETY: by this function's contract.
        unsafe { (self.loops).run(counts, from, to, (scratch, self.scratch_bytes)) };
    }
}

/// The type-erased loops of a transform.
trait RowLoops: Send + Sync {
    /// Transforms rows. `counts` has the total numbers of elements that are read and that are
    /// written.
    ///
    /// # Safety
    ///
    /// The contract of [`FftRows::transform`] applies.
    unsafe fn run(
        &self,
        counts: [usize; 2],
        from: *const u8,
        to: *mut u8,
        scratch: (*mut u8, usize),
    );
}

/// A function that transforms rows of `T` to rows of `U`, with scratch memory for complex numbers
/// of `S`.
struct TypedLoops<T, U, S, F>(F, PhantomData<fn(T, U, S)>);

impl<T, U, S, F> RowLoops for TypedLoops<T, U, S, F>
where
    F: Fn(&[T], &mut [MaybeUninit<U>], &mut [Complex<S>]) + Send + Sync,
{
    unsafe fn run(
        &self,
        [read, written]: [usize; 2],
        from: *const u8,
        to: *mut u8,
        (scratch, scratch_bytes): (*mut u8, usize),
    ) {
        let numbers = scratch_bytes / size_of::<Complex<S>>();
        // SAFETY: by this function's contract, the memory has these numbers of elements.
        // `FftRows::new` took the element sizes from these types.
        let (from, to, scratch) = unsafe {
            (
                from_raw_parts(from.cast(), read),
                from_raw_parts_mut(to.cast(), written),
                from_raw_parts_mut(scratch.cast(), numbers),
            )
        };
        (self.0)(from, to, scratch);
    }
}

/// The maximum number of elements that are copied and scaled at once. A piece fits the first-level
/// cache.
pub(super) const PIECE: usize = 1 << 10;

fn complex<T: AnyElement + Transformed>(
    length: usize,
    direction: Direction,
    factor: Option<T>,
) -> OrOutOfMemory<FftRows>
where
    Complex<T>: AnyElement,
{
    let plan = T::plan(length, direction)?;
    let scratch_length = plan.scratch_length();
    let transform = move |from: &[Complex<T>],
                          to: &mut [MaybeUninit<Complex<T>>],
                          scratch: &mut [Complex<T>]| {
        assert_eq!(
            from.len(),
            to.len(),
            "the source and the target differ in length"
        );
        for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
            // SAFETY: both pieces have equal lengths. The mutable piece overlaps no other slice,
            // and the copy writes all of it.
            let piece = unsafe {
                copy_run(from.as_ptr(), to.as_mut_ptr(), from.len(), [1, 1]);
                initialised(to)
            };
            if let Some(factor) = factor {
                T::scale(piece, factor);
            }
        }
        // SAFETY: the pieces cover all of `to`.
        T::transform(&plan, unsafe { initialised(to) }, scratch);
    };
    Ok(FftRows::new([length; 2], scratch_length, transform))
}

fn forward<T: AnyElement + Transformed>(length: usize) -> OrOutOfMemory<FftRows>
where
    Complex<T>: AnyElement,
{
    let plan = T::plan_forward(length)?;
    let lengths = [length, length / 2 + 1];
    let scratch_length = plan.scratch_length();
    Ok(FftRows::new(
        lengths,
        scratch_length,
        move |from: &[T], to: &mut [MaybeUninit<Complex<T>>], scratch: &mut [Complex<T>]| {
            T::forward(&plan, from, zeroed(to), scratch);
        },
    ))
}

fn inverse<T: AnyElement + Transformed>(
    width: usize,
    length: usize,
    factor: T,
) -> OrOutOfMemory<FftRows>
where
    Complex<T>: AnyElement,
{
    let plan = T::plan_inverse(length)?;
    let scratch_length = plan.scratch_length();
    Ok(FftRows::new(
        [width, length],
        scratch_length,
        move |from: &[Complex<T>], to: &mut [MaybeUninit<T>], scratch: &mut [Complex<T>]| {
            T::inverse(&plan, (from, width), zeroed(to), factor, scratch);
        },
    ))
}

fn zeroed<T: AnyElement>(numbers: &mut [MaybeUninit<T>]) -> &mut [T] {
    numbers.fill(MaybeUninit::new(T::zero()));
    // SAFETY: `fill` has written all numbers.
    unsafe { initialised(numbers) }
}
