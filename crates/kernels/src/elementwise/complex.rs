//! Complex numbers from their parts.

use num_complex::Complex;

use super::call::{Call, Calls};
use super::function::Function;
use super::loops::{Loops, table};
use super::operation::Operation;
use crate::element::scalar::pass::Pass;
use crate::{AnyElement, Float};

/// The composition of a complex number from a real part and an imaginary part.
#[derive(Clone, Copy, Debug)]
pub struct OfParts;

impl OfParts {
    /// The composition for each type of parts.
    pub const CALLS: &'static Calls = {
        static CALLS: Calls = table!(parts OfParts);
        &CALLS
    };

    const fn call<T: Float>() -> Option<Call>
    where
        Complex<T>: AnyElement,
    {
        let loops = Loops::of::<Self, (T, T)>();
        Some(Call::of::<Self, (T, T)>(Operation::OfParts, loops))
    }
}

impl<T: Float> Function<(T, T)> for OfParts
where
    Complex<T>: AnyElement,
{
    const NAME: &'static str = "complex";
    const CUDA: &'static str = "R(a, b)";
    const CALL: &'static Call = Self::CALLS.at(T::DTYPE);
    type Output = Complex<T>;

    #[inline(always)]
    fn apply<L: Pass>(_pass: &mut L, (re, im): (T, T)) -> Complex<T> {
        Complex::new(re, im)
    }
}
