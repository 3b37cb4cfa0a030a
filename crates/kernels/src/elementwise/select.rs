//! The selection of values by a mask.

use super::call::{Call, Calls};
use super::function::Function;
use super::loops::{Loops, table};
use super::operation::Operation;
use crate::element::scalar::pass::Pass;
use crate::{AnyElement, DType};

/// The selection of one of two values.
#[derive(Clone, Copy, Debug)]
pub struct Select;

impl Select {
    /// The selection for each element type.
    pub const CALLS: &'static Calls = {
        static CALLS: Calls = table!(element Select);
        &CALLS
    };

    const fn call<T: AnyElement>() -> Option<Call> {
        // The loop only moves elements, so types of equal size and alignment share a loop.
        let loops = match T::DTYPE {
            DType::I8 | DType::U8 | DType::Bool => Loops::of::<Self, (bool, u8, u8)>(),
            DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => {
                Loops::of::<Self, (bool, u16, u16)>()
            }
            DType::F32 | DType::I32 | DType::U32 => Loops::of::<Self, (bool, u32, u32)>(),
            DType::F64 | DType::I64 | DType::U64 => Loops::of::<Self, (bool, u64, u64)>(),
            _ => Loops::of::<Self, (bool, T, T)>(),
        };
        Some(Call::of::<Self, (bool, T, T)>(Operation::Select, loops))
    }
}

impl<T: AnyElement> Function<(bool, T, T)> for Select {
    const NAME: &'static str = "select";
    const CUDA: &'static str = "a ? b : c";
    const CALL: &'static Call = Self::CALLS.at(T::DTYPE);
    type Output = T;

    #[inline(always)]
    fn apply<L: Pass>(_pass: &mut L, (mask, yes, no): (bool, T, T)) -> T {
        if mask { yes } else { no }
    }
}
