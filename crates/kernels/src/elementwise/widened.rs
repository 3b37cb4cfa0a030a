//! Loops for `f16` and `bf16`. Elements are widened to `f32`, computed by the loop for `f32`, and
//! rounded once.
//!
//! Each function computes these types in `f32` in any case. Therefore only the `f32` loop is
//! compiled for each function, and the conversions are compiled once for all functions.
//!
//! A function that does not round, such as a maximum or a comparison, has separate loops for `f16`
//! and `bf16`. These loops preserve the payload of a NaN.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::call::MOST_OPERANDS;
use super::function::Function;
use super::loops::{Arguments, Loops};
use crate::element::scalar::convert;
use crate::vector::{Loop, vectorised};
use crate::{AnyElement, DType};

/// The number of elements that are widened at once. The widened operands and results fit into the
/// first-level cache.
const AT_ONCE: usize = 256;

type Wide = [MaybeUninit<f32>; AT_ONCE];

/// Applies `F` to arguments of types `Own`, by its loop for arguments of types `Widened`. The
/// function is a [`BlockLoop`](super::loops::BlockLoop).
///
/// # Safety
///
/// The contract of [`BlockLoop`](super::loops::BlockLoop) must hold for `Own`.
pub(super) unsafe fn widened_loop<F, Own, Widened>(
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) where
    F: Function<Own> + Function<Widened>,
    Own: Arguments,
    Widened: Arguments,
{
    let types = Types {
        operands: Own::DTYPES,
        result: <<F as Function<Own>>::Output as AnyElement>::DTYPE,
        result_of_loop: <<F as Function<Widened>>::Output as AnyElement>::DTYPE,
    };
    // SAFETY: the caller upholds this function's contract. `Own` and `Widened` are equal, except
    // that `Widened` has `f32` in place of narrow floats.
    unsafe { run_widened(&Loops::of::<F, Widened>(), types, from, to, count) };
}

#[derive(Clone, Copy)]
struct Types {
    operands: &'static [DType],
    result: DType,
    result_of_loop: DType,
}

/// Runs the best loop of `loops`. The loops have `f32` in place of the narrow floats among `types`.
///
/// # Safety
///
/// `loops` must be for these types. For each operand, `count` elements must be readable, aligned
/// and not written to meanwhile. `to` must be aligned and writable for the results. No other code
/// may access the results meanwhile.
unsafe fn run_widened(
    loops: &Loops,
    types: Types,
    from: &[*const u8; MOST_OPERANDS],
    to: *mut u8,
    count: usize,
) {
    let run = loops.best();
    let mut wide: [Wide; MOST_OPERANDS] = [[MaybeUninit::uninit(); AT_ONCE]; MOST_OPERANDS];
    let mut wide_results: Wide = [MaybeUninit::uninit(); AT_ONCE];
    for start in (0..count).step_by(AT_ONCE) {
        let count = AT_ONCE.min(count - start);
        let mut addresses = *from;
        for ((address, dtype), wide) in addresses.iter_mut().zip(types.operands).zip(&mut wide) {
            let own = address.wrapping_add(start * dtype.size_bytes());
            let wide = &mut wide[..count];
            // SAFETY: by this function's contract, `count` elements of type `dtype` are readable.
            *address = unsafe {
                match dtype {
                    DType::F16 => convert_all(own.cast::<f16>(), wide),
                    DType::Bf16 => convert_all(own.cast::<bf16>(), wide),
                    _ => own,
                }
            };
        }
        let own = to.wrapping_add(start * types.result.size_bytes());
        let rounds = types.result != types.result_of_loop;
        let results = wide_results.as_mut_ptr().cast();
        // SAFETY: the operands of narrow floats have been widened, and the other operands have the
        // loop's types. If the results are rounded, the loop writes them to `wide_results`.
        // Otherwise, it writes them to `to`, which is writable by this function's contract.
        unsafe {
            match types.result {
                DType::F16 if rounds => {
                    run(&addresses, results, count);
                    let out = std::slice::from_raw_parts_mut(own.cast(), count);
                    convert_all::<f32, f16>(results.cast_const().cast(), out);
                }
                DType::Bf16 if rounds => {
                    run(&addresses, results, count);
                    let out = std::slice::from_raw_parts_mut(own.cast(), count);
                    convert_all::<f32, bf16>(results.cast_const().cast(), out);
                }
                _ => run(&addresses, own, count),
            }
        }
    }
}

/// Converts `out.len()` elements to `out`, and returns the address of `out`.
///
/// # Safety
///
/// `out.len()` elements must be readable from `first` on, aligned, and not written to meanwhile.
unsafe fn convert_all<T: AnyElement, U: AnyElement>(
    first: *const T,
    out: &mut [MaybeUninit<U>],
) -> *const u8 {
    // SAFETY: the caller upholds this function's contract.
    let values = unsafe { std::slice::from_raw_parts(first, out.len()) };
    vectorised(Conversion(values), out);
    out.as_ptr().cast()
}

struct Conversion<'a, T>(&'a [T]);

impl<T: AnyElement, U: AnyElement> Loop<[MaybeUninit<U>]> for Conversion<'_, T> {
    type Result = ();

    #[inline(always)]
    fn run<const FMA: bool>(self, out: &mut [MaybeUninit<U>]) {
        for (slot, &value) in out.iter_mut().zip(self.0) {
            slot.write(convert(value));
        }
    }
}
