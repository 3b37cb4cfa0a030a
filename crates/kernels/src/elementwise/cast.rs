//! Conversions between element types.

use std::marker::PhantomData;

use half::{bf16, f16};
use num_complex::Complex;

use super::call::{Call, Calls};
use super::function::Function;
use super::loops::{Loops, table};
use super::operation::Operation;
use crate::element::scalar::convert;
use crate::element::scalar::pass::Pass;
use crate::{AnyElement, DType};

/// The conversion to `U`, like Rust's `as`.
#[derive(Clone, Copy, Debug)]
pub struct Cast<U>(PhantomData<U>);

impl<U: AnyElement> Cast<U> {
    const fn call<T: AnyElement>() -> Option<Call> {
        let loops = match T::DTYPE {
            // A `bool` is converted as a byte, which is 0 or 1.
            DType::Bool => Loops::of::<Self, (u8,)>(),
            _ => match of_integers(T::DTYPE, U::DTYPE) {
                Some(loops) => loops,
                None => Loops::widening::<Self, T, (T,), (f32,)>(),
            },
        };
        Some(Call::of::<Self, (T,)>(Operation::Cast, loops))
    }
}

macro_rules! integer_loops {
    ($pair:expr, $($from:ident $source:ident => $($to:ident $target:ident)+;)+) => {
        match $pair {
            $($((DType::$from, DType::$to) => Some(Loops::of::<Cast<$target>, ($source,)>()),)+)+
            _ => None,
        }
    };
}

/// Returns the loops between integers. For other types, returns `None`. A conversion truncates or
/// extends bits, so a loop for the unsigned type of the result is enough. Only if bits are
/// extended, the signedness of the argument's type matters.
const fn of_integers(from: DType, to: DType) -> Option<Loops> {
    let (Some(target), Some(unsigned)) = (unsigned(to), unsigned(from)) else {
        return None;
    };
    let source = match target.size_bytes() > from.size_bytes() {
        true => from,
        false => unsigned,
    };
    integer_loops! { (source, target),
        I8 i8 => U16 u16 U32 u32 U64 u64;
        I16 i16 => U32 u32 U64 u64;
        I32 i32 => U64 u64;
        U8 u8 => U8 u8 U16 u16 U32 u32 U64 u64;
        U16 u16 => U8 u8 U16 u16 U32 u32 U64 u64;
        U32 u32 => U8 u8 U16 u16 U32 u32 U64 u64;
        U64 u64 => U8 u8 U16 u16 U32 u32 U64 u64;
    }
}

/// Returns the unsigned integer type of the same size. If `dtype` is not an integer, returns
/// `None`.
const fn unsigned(dtype: DType) -> Option<DType> {
    Some(match dtype {
        DType::I8 | DType::U8 => DType::U8,
        DType::I16 | DType::U16 => DType::U16,
        DType::I32 | DType::U32 => DType::U32,
        DType::I64 | DType::U64 => DType::U64,
        _ => return None,
    })
}

/// Returns the conversion of elements of type `from` to type `to`.
pub const fn cast(from: DType, to: DType) -> &'static Call {
    CASTS[to as usize].at(from)
}

static CASTS: [Calls; DType::COUNT] = [
    table!(element(Cast<f32>)),
    table!(element(Cast<f64>)),
    table!(element(Cast<f16>)),
    table!(element(Cast<bf16>)),
    table!(element(Cast<i8>)),
    table!(element(Cast<i16>)),
    table!(element(Cast<i32>)),
    table!(element(Cast<i64>)),
    table!(element(Cast<u8>)),
    table!(element(Cast<u16>)),
    table!(element(Cast<u32>)),
    table!(element(Cast<u64>)),
    table!(element(Cast<bool>)),
    table!(element(Cast<Complex<f32>>)),
    table!(element(Cast<Complex<f64>>)),
];

impl<T: AnyElement, U: AnyElement> Function<(T,)> for Cast<U> {
    const NAME: &'static str = "cast";
    const CUDA: &'static str = "cs_cast<R>(a)";
    const CALL: &'static Call = cast(T::DTYPE, U::DTYPE);
    type Output = U;

    #[inline(always)]
    fn apply<L: Pass>(_pass: &mut L, (x,): (T,)) -> U {
        convert(x)
    }
}
