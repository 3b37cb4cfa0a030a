//! The memory of saved values under an activation budget.
//!
//! Without a budget, a step holds the arrays that it saves. Under a budget, a step holds a
//! [`Reader`] of an [`Activation`], and the [`Store`] of the tape holds the memory. If the saved
//! values exceed the budget, the store releases the values with the least recomputation time per
//! byte. When a step reads a released value, the value and its released operands are computed again
//! (Kirisame et al. 2021, "Dynamic Tensor Rematerialization").

mod budget;
mod graph;
mod recompute;
mod store;
mod values;

pub(super) use budget::read_environment;
pub(crate) use budget::{Budget, BudgetCounts};
pub(super) use graph::source_of_graph;
pub(in crate::ops) use recompute::{Operand, Run, Source};
pub(in crate::ops) use store::{Activation, Pin, Store};
pub(in crate::ops) use values::store;
pub(super) use values::{begin, drop_results, end, present_store, set_activations, share};

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::tape;
use crate::array::{AnyArray, Buffer, DType, Layout, ValueId};
use crate::error::Result;
use recompute::Recomputation;
use store::Reader;
use values::{activation, regenerated};

/// An array that a step saves for the backward pass.
#[derive(Clone, Debug)]
pub(in crate::ops) struct SavedArray {
    memory: SavedMemory,
    layout: Layout,
    dtype: DType,
}

#[derive(Debug)]
enum SavedMemory {
    /// A handle of the step itself, because there is no budget, or because the array is a
    /// parameter.
    Held(Buffer),
    /// A reader of a value in the store, and the value id with which the step reads the value.
    Stored(Reader, Option<ValueId>),
}

impl Clone for SavedMemory {
    fn clone(&self) -> Self {
        match self {
            Self::Held(buffer) => Self::Held(buffer.share()),
            Self::Stored(reader, value_id) => Self::Stored(reader.clone(), *value_id),
        }
    }
}

/// Returns the product of counts as the work of an operation. The product saturates, because a
/// broadcast array may have any length.
pub(in crate::ops) fn work_of(counts: &[usize]) -> u64 {
    let counts = counts.iter();
    counts.fold(1, |work: u64, &count| work.saturating_mul(count as u64))
}

impl SavedArray {
    /// Saves an array, for the step that the tape records next.
    #[track_caller]
    pub(in crate::ops) fn new(buffer: &Buffer, layout: &Layout, dtype: DType) -> Self {
        let activation =
            store(buffer.device()).and_then(|store| activation(&store, buffer, (layout, dtype)));
        let memory = match activation {
            None => SavedMemory::Held(buffer.share()),
            Some(activation) => SavedMemory::Stored(
                Reader::new(activation, buffer, tape::length()),
                buffer.value_id(),
            ),
        };
        Self {
            memory,
            layout: *layout,
            dtype,
        }
    }

    /// Returns the array. If the array's memory was released, computes the array again.
    pub(in crate::ops) fn fetch(self) -> Result<AnyArray> {
        let Self {
            memory,
            layout,
            dtype,
        } = self;
        let (buffer, layout) = match memory {
            SavedMemory::Held(buffer) => (buffer, layout),
            SavedMemory::Stored(reader, value_id) => {
                let (buffer, layout) = recompute::fetch(reader.activation(), &layout)?;
                (buffer.with_value_id(value_id), layout)
            }
        };
        Ok(AnyArray {
            buffer,
            layout,
            dtype,
        })
    }

    /// Returns the array with the value id `value_id`, with which the step reads the array.
    pub(super) fn with_value_id(self, value_id: Option<ValueId>) -> Self {
        let memory = match self.memory {
            SavedMemory::Held(buffer) => SavedMemory::Held(buffer.with_value_id(value_id)),
            SavedMemory::Stored(reader, _) => SavedMemory::Stored(reader, value_id),
        };
        Self { memory, ..self }
    }

    /// Returns the size of the elements in bytes.
    pub(in crate::ops) fn size_bytes(&self) -> u64 {
        work_of(&[self.layout.len(), self.dtype.size_bytes()])
    }
}

/// Pins the memory of an array that a step holds itself, so that the store counts the memory.
/// Returns `None` if there is no store, or if the array is a parameter.
pub(in crate::ops) fn pin(buffer: &Buffer, layout: &Layout, dtype: DType) -> Option<Pin> {
    let store = store(buffer.device())?;
    let activation = activation(&store, buffer, (layout, dtype))?;
    Some(Pin::new(activation, buffer))
}

/// Sets the source of the constant `array`: `run` computes the array again, without operands.
/// Returns the array with the value id under which steps save it.
#[track_caller]
pub(in crate::ops) fn with_source(
    array: AnyArray,
    run: impl Fn() -> Result<AnyArray> + 'static,
) -> AnyArray {
    let Some(store) = store(array.device()) else {
        return array;
    };
    let source = Source::new(SmallVec::new(), 0, Box::new(move |_| Ok(smallvec![run()?])));
    let results = [(&array.buffer, &array.layout, array.dtype)];
    let recomputation = Recomputation::new(source, &results);
    let value_id = regenerated(|value_id| {
        let place = (array.layout, array.dtype, Some(value_id));
        Activation::computed(&store, place, (&recomputation, 0))
    });
    AnyArray {
        buffer: array.buffer.with_value_id(value_id),
        ..array
    }
}

/// Returns the activations of a step's results. An activation is `None` if its result is not
/// tracked, or cannot be computed again.
#[track_caller]
pub(super) fn of_results(
    store: &Rc<Store>,
    source: Option<Source>,
    results: &[(&Buffer, &Layout, DType)],
) -> Vec<Option<Rc<Activation>>> {
    // A value that was written in place may begin at any offset. A recomputed value begins at
    // offset 0, so only a value at offset 0 can be recomputed.
    let is_at_start = results.iter().all(|(_, layout, _)| layout.offset() == 0);
    let Some(source) = source.filter(|_| is_at_start) else {
        return results.iter().map(|_| None).collect();
    };
    let recomputation = Recomputation::new(source, results);
    let activations = results.iter().enumerate();
    activations
        .map(|(number, (buffer, layout, dtype))| {
            let place = (**layout, *dtype, buffer.value_id());
            buffer
                .value_id()
                .map(|_| Activation::computed(store, place, (&recomputation, number)))
        })
        .collect()
}
