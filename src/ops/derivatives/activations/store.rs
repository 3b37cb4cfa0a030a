//! The store of a tape. The store holds and releases the memory of saved values.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::{Rc, Weak};

use super::budget;
use super::recompute::Recomputation;
use crate::array::{Buffer, DType, Layout, ValueId};
use crate::context::Device;
use crate::error::{Error, ErrorCode, Result};
use crate::ops::derivatives::tape;
use crate::size::ByteSize;

/// The memory of one value that steps save.
///
/// Invariants: an activation has memory only while it has readers or pins. If an activation has no
/// source, it has memory as long as it has readers or pins.
pub(in crate::ops) struct Activation {
    store: Rc<Store>,
    /// The layout of the whole value, as its step returned the value.
    layout: Layout,
    dtype: DType,
    value_id: Option<ValueId>,
    memory: RefCell<Option<HeldMemory>>,
    /// The number of saved arrays that no step has read yet.
    readers: Cell<usize>,
    /// The number of pins of steps that hold the memory, and of recomputations in progress.
    pins: Cell<usize>,
    /// The last step that reads the value.
    last_reader: Cell<usize>,
    /// The operation that computes the value, and the index of the result. If the value cannot be
    /// computed again, this is `None`.
    source: Option<(Rc<Recomputation>, usize)>,
}

struct HeldMemory {
    buffer: Buffer,
    /// The layout of the whole value in this memory.
    layout: Layout,
}

impl Activation {
    fn new(
        store: &Rc<Store>,
        (layout, dtype, value_id): (Layout, DType, Option<ValueId>),
        source: Option<(Rc<Recomputation>, usize)>,
    ) -> Rc<Self> {
        let activation = Rc::new(Self {
            store: Rc::clone(store),
            layout,
            dtype,
            value_id,
            memory: RefCell::new(None),
            readers: Cell::new(0),
            pins: Cell::new(0),
            last_reader: Cell::new(0),
            source,
        });
        store.register(&activation);
        activation
    }

    /// Returns the activation of a result of a step, without memory.
    pub(super) fn computed(
        store: &Rc<Store>,
        place: (Layout, DType, Option<ValueId>),
        (recomputation, number): (&Rc<Recomputation>, usize),
    ) -> Rc<Self> {
        let source = (Rc::clone(recomputation), number);
        let activation = Self::new(store, place, Some(source));
        recomputation.set_result(number, &activation);
        activation
    }

    /// Returns the activation of an array that cannot be computed again.
    fn constant(store: &Rc<Store>, buffer: &Buffer, place: (&Layout, DType)) -> Rc<Self> {
        let (layout, dtype) = place;
        Self::new(store, (*layout, dtype, buffer.value_id()), None)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the operation that computes the value, unless the value has memory.
    pub(super) fn missing_source(&self) -> Option<&Rc<Recomputation>> {
        let source = self.source()?;
        self.memory.borrow().is_none().then_some(source)
    }

    /// Marks the operation that computes the value as lost, if this operation alone pins a
    /// constant.
    pub(in crate::ops) fn lose_source_unless_saved(&self) {
        if let Some(source) = self.source() {
            source.lose_unless_saved();
        }
    }

    /// Returns the operation that computes the value. Returns `None` if the value cannot be
    /// computed again.
    pub(super) fn source(&self) -> Option<&Rc<Recomputation>> {
        let source = self.source.as_ref().map(|(source, _)| source);
        source.filter(|source| !source.is_lost())
    }

    /// Returns whether a step or a computation in progress needs the value.
    pub(super) fn is_needed(&self) -> bool {
        self.readers.get() > 0 || self.pins.get() > 0
    }

    /// Returns a handle on the memory, and the layout of a part in this memory. Returns `None`
    /// while the value has no memory. `part` is the layout of the part in the value's first memory.
    pub(super) fn part(&self, part: &Layout) -> Option<(Buffer, Layout)> {
        let memory = self.memory.borrow();
        let memory = memory.as_ref()?;
        let offset = part.offset() + memory.layout.offset() - self.layout.offset();
        Some((memory.buffer.share(), part.starting_at(offset)))
    }

    /// If the value is needed and has no memory, stores `buffer`. `buffer` has the whole value.
    pub(super) fn store_memory(&self, buffer: &Buffer, layout: &Layout) {
        if !self.is_needed() || self.memory.borrow().is_some() {
            return;
        }
        debug_assert!(self.source.is_none() || layout.is_contiguous());
        debug_assert_eq!(layout.shape(), self.layout.shape());
        let buffer = buffer.share().with_value_id(self.value_id);
        self.store.add(buffer.size_bytes());
        let memory = HeldMemory {
            buffer,
            layout: *layout,
        };
        *self.memory.borrow_mut() = Some(memory);
    }

    fn release(&self) {
        let memory = self.memory.borrow_mut().take();
        if let Some(memory) = memory {
            self.store.subtract(memory.buffer.size_bytes());
        }
    }

    fn holds(&self, buffer: &Buffer) -> bool {
        let memory = self.memory.borrow();
        memory
            .as_ref()
            .is_some_and(|memory| memory.buffer.is_same(buffer))
    }

    /// Returns whether a release frees memory of `device`: the memory is on `device`, and only the
    /// store holds it.
    fn is_held_alone_on(&self, device: &Device) -> bool {
        let memory = self.memory.borrow();
        memory
            .as_ref()
            .is_some_and(|memory| memory.buffer.holders() == 1 && memory.buffer.device() == device)
    }

    /// If no step and no computation needs the value, releases its memory.
    fn settle(&self) {
        if !self.is_needed() {
            self.release();
        }
    }

    /// Returns the estimated recomputation time per byte, divided by √n. The value is read n steps
    /// later. Returns `None` if the memory cannot be released. In transformers of 6 to 48 layers,
    /// √n causes less recomputation than n.
    fn score(&self, position: usize) -> Option<f64> {
        let source = self.source()?;
        let memory = self.memory.borrow();
        let bytes = memory.as_ref()?.buffer.size_bytes();
        if self.pins.get() > 0 || bytes == 0 {
            return None;
        }
        let steps = position.saturating_sub(self.last_reader.get()) + 1;
        let cost = source.cost_with_missing(self.store.next_mark());
        Some(cost as f64 / (bytes as f64 * (steps as f64).sqrt()))
    }
}

impl fmt::Debug for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activation")
            .field("shape", &self.layout.shape())
            .field("dtype", &self.dtype)
            .field("readers", &self.readers)
            .field("pins", &self.pins)
            .finish_non_exhaustive()
    }
}

/// The reference of a saved array to its activation. `Activation::readers` counts the references.
#[derive(Debug)]
pub(super) struct Reader(Rc<Activation>);

impl Reader {
    /// Returns a reader for the step `step`. `buffer` holds the value.
    pub(super) fn new(activation: Rc<Activation>, buffer: &Buffer, step: usize) -> Self {
        activation.readers.set(activation.readers.get() + 1);
        activation
            .last_reader
            .set(step.max(activation.last_reader.get()));
        activation.store_memory(buffer, &activation.layout);
        Self(activation)
    }

    pub(super) fn activation(&self) -> &Rc<Activation> {
        &self.0
    }
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        self.0.readers.set(self.0.readers.get() + 1);
        Self(Rc::clone(&self.0))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.readers.set(self.0.readers.get() - 1);
        self.0.settle();
    }
}

/// A guard that pins the memory of a value.
#[derive(Debug)]
pub(in crate::ops) struct Pin(Rc<Activation>);

impl Pin {
    /// Pins a value that `buffer` holds.
    pub(super) fn new(activation: Rc<Activation>, buffer: &Buffer) -> Self {
        let pin = Self::without_memory(&activation);
        activation.store_memory(buffer, &activation.layout);
        pin
    }

    /// Pins a value that may have no memory yet.
    pub(super) fn without_memory(activation: &Rc<Activation>) -> Self {
        activation.pins.set(activation.pins.get() + 1);
        Self(Rc::clone(activation))
    }

    pub(super) fn activation(&self) -> &Rc<Activation> {
        &self.0
    }

    /// Returns whether the value has exactly `pins` pins, and no readers.
    pub(super) fn is_needed_by(&self, pins: usize) -> bool {
        self.0.readers.get() == 0 && self.0.pins.get() == pins
    }

    /// Returns whether both pins are on one value.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        Self::without_memory(&self.0)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.set(self.0.pins.get() - 1);
        self.0.settle();
    }
}

/// The activations of a tape.
#[derive(Default)]
pub(in crate::ops) struct Store {
    activations: RefCell<Vec<Weak<Activation>>>,
    /// The activations of constants, by the address of the memory that they hold.
    constants: RefCell<HashMap<u64, Weak<Activation>>>,
    /// The size of the memory of all activations in bytes.
    bytes: Cell<u64>,
    /// The budget that the store set itself when an allocation failed.
    own_budget: Cell<Option<u64>>,
    /// The budget that the forward pass exceeded, and the minimum number of bytes that the pass
    /// needs.
    unmet: Cell<Option<(u64, u64)>>,
    /// The mark of the last search for missing values.
    mark: Cell<u64>,
}

/// The divisor of the saved bytes that gives the minimum release after a failed allocation.
const RELEASED_PART: u64 = 8;

impl Store {
    fn register(&self, activation: &Rc<Activation>) {
        let mut activations = self.activations.borrow_mut();
        // The list doubles between two passes over it, so that the cost of the passes is amortised.
        if activations.len() == activations.capacity() {
            activations.retain(|activation| activation.strong_count() > 0);
            let length = activations.len();
            activations.reserve(length + 1);
        }
        activations.push(Rc::downgrade(activation));
    }

    pub(in crate::ops) fn constant(
        self: &Rc<Self>,
        buffer: &Buffer,
        place: (&Layout, DType),
    ) -> Rc<Activation> {
        let mut constants = self.constants.borrow_mut();
        let entry = constants.entry(buffer.address()).or_default();
        // Empty buffers, and imported memory, may share an address.
        if let Some(activation) = entry.upgrade()
            && activation.holds(buffer)
        {
            return activation;
        }
        let activation = Activation::constant(self, buffer, place);
        *entry = Rc::downgrade(&activation);
        activation
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes as u64);
    }

    /// Returns a new mark, which no recomputation has.
    pub(super) fn next_mark(&self) -> u64 {
        self.mark.set(self.mark.get() + 1);
        self.mark.get()
    }

    /// Returns the smallest budget of the thread and of the store itself.
    fn limit_bytes(&self) -> u64 {
        let budgets = [budget::limit_bytes(), self.own_budget.get()];
        budgets.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Releases the cheapest values until the saved values are within the budget, or until no value
    /// can be released.
    pub(super) fn make_room(&self) {
        let (limit_bytes, position) = (self.limit_bytes(), tape::length());
        while self.bytes.get() > limit_bytes {
            let Some(activation) = self.cheapest(position, |_| true) else {
                return;
            };
            activation.release();
        }
    }

    /// Releases values on a device for an allocation that lacks `bytes`. Sets a budget: the bytes
    /// that were saved before, minus `bytes`. Returns the number of freed bytes. If the program
    /// also holds the memory of a value, the value is not released.
    pub(in crate::ops) fn release_for(&self, device: &Device, bytes: u64) -> u64 {
        let before = self.bytes.get();
        // More memory is released than the allocation lacks, because free memory is fragmented, and
        // the next step saves more.
        let wanted = bytes.saturating_mul(2).max(before / RELEASED_PART);
        let position = tape::length();
        let mut lines = Vec::new();
        while before - self.bytes.get() < wanted {
            let Some(activation) = self.cheapest(position, |own| own.is_held_alone_on(device))
            else {
                break;
            };
            let bytes = self.bytes.get();
            activation.release();
            let line = activation.source().map(|source| source.call_site());
            lines.push((bytes - self.bytes.get(), line));
        }
        let freed = before - self.bytes.get();
        if freed > 0 {
            self.own_budget.set(Some(before.saturating_sub(bytes)));
            budget::report_release(freed, &lines);
        }
        freed
    }

    /// Returns the value with the lowest score, among the values for which `is_candidate` returns
    /// true.
    fn cheapest(
        &self,
        position: usize,
        is_candidate: impl Fn(&Activation) -> bool,
    ) -> Option<Rc<Activation>> {
        let activations = self.activations.borrow();
        let scored = activations.iter().filter_map(|activation| {
            let activation = activation.upgrade()?;
            let score = activation
                .score(position)
                .filter(|_| is_candidate(&activation))?;
            Some((score, activation))
        });
        let cheapest = scored.min_by(|(one, _), (other, _)| one.total_cmp(other));
        cheapest.map(|(_, activation)| activation)
    }

    /// Releases values until the saved values are within the budget. If they still exceed the
    /// program's budget, records the excess. The store's own budget may be exceeded.
    pub(in crate::ops) fn settle_step(&self) {
        self.make_room();
        let bytes = self.bytes.get();
        if let Some(limit) = budget::limit_bytes().filter(|&limit| bytes > limit) {
            let (_, least) = self.unmet.get().unwrap_or((limit, 0));
            self.unmet.set(Some((limit, least.max(bytes))));
        }
        budget::note_saved(bytes);
    }

    /// Checks that the forward pass was within the budget.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the forward pass exceeded the
    /// budget. The error has the minimum budget.
    #[track_caller]
    pub(in crate::ops) fn check_budget(&self) -> Result<()> {
        match self.unmet.get() {
            Some((limit, least)) => Err(unmet(limit, least)),
            None => Ok(()),
        }
    }
}

#[cold]
#[track_caller]
fn unmet(limit_bytes: u64, least_bytes: u64) -> Error {
    let text = format!(
        "activation budget: {} are fewer than the steps must save, expected at least \
         {least_bytes} bytes ({})",
        ByteSize(limit_bytes),
        ByteSize(least_bytes),
    );
    Error::new(ErrorCode::Budget, text)
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
