//! Operations that compute released values again.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;
use std::rc::{Rc, Weak};

use smallvec::SmallVec;

use super::store::{Activation, Pin, Store};
use super::{budget, work_of};
use crate::array::{AnyArray, Buffer, DType, Layout};
use crate::error::{CallSiteOverride, Result};
use crate::ops::derivatives::Pause;

type Results = SmallVec<[AnyArray; 1]>;

/// An operation as a function of its operands, for a step that is about to be recorded.
pub(in crate::ops) struct Source {
    operands: SmallVec<[Operand; 3]>,
    /// The estimated number of floating-point operations.
    flops: u64,
    run: Box<Run>,
}

/// The function that computes an operation's results from its operands.
pub(in crate::ops) type Run = dyn Fn(&[AnyArray]) -> Result<Results>;

impl Source {
    pub(in crate::ops) fn new(operands: SmallVec<[Operand; 3]>, flops: u64, run: Box<Run>) -> Self {
        Self {
            operands,
            flops,
            run,
        }
    }
}

/// An operand of an operation that may run again.
pub(in crate::ops) struct Operand {
    value: OperandValue,
    layout: Layout,
    dtype: DType,
}

enum OperandValue {
    /// A parameter, which does not count towards the budget.
    Parameter(Buffer),
    /// A value that cannot be computed again. Once the operation is lost, the value has no pin.
    Constant(RefCell<Option<Pin>>),
    /// A value that can be computed again.
    Computed(Rc<Activation>),
}

impl Operand {
    /// Returns the operand of a step that the tape is about to record.
    #[track_caller]
    pub(in crate::ops) fn new(
        store: &Rc<Store>,
        buffer: &Buffer,
        (layout, dtype): (&Layout, DType),
    ) -> Self {
        let value = match super::values::activation(store, buffer, (layout, dtype)) {
            None => OperandValue::Parameter(buffer.share()),
            Some(activation) if activation.source().is_some() => OperandValue::Computed(activation),
            Some(activation) => {
                OperandValue::Constant(RefCell::new(Some(Pin::new(activation, buffer))))
            }
        };
        Self {
            value,
            layout: *layout,
            dtype,
        }
    }

    /// Returns the array, which must have memory.
    fn array(&self) -> AnyArray {
        let (buffer, layout) = match &self.value {
            OperandValue::Parameter(buffer) => (buffer.share(), self.layout),
            OperandValue::Constant(pin) => {
                let pin = pin.borrow();
                let activation = pin.as_ref().map(Pin::activation);
                let part = activation.and_then(|activation| activation.part(&self.layout));
                part.expect("pinned")
            }
            OperandValue::Computed(activation) => activation.part(&self.layout).expect("pinned"),
        };
        AnyArray {
            buffer: buffer.with_value_id(None),
            layout,
            dtype: self.dtype,
        }
    }

    fn computed(&self) -> Option<&Rc<Activation>> {
        match &self.value {
            OperandValue::Computed(activation) => Some(activation),
            OperandValue::Parameter(_) | OperandValue::Constant(_) => None,
        }
    }
}

/// An operation that may run again.
pub(in crate::ops) struct Recomputation {
    source: Source,
    /// The activations of the results that are tracked.
    results: RefCell<SmallVec<[Weak<Activation>; 1]>>,
    /// The estimated time, in bytes of memory traffic: operands, results, computation and overhead.
    cost: u64,
    call_site: &'static Location<'static>,
    /// The mark of the last search that found the operation.
    mark: Cell<u64>,
    /// True if the operation cannot run again, because its constants are not pinned.
    is_lost: Cell<bool>,
}

/// The number of floating-point operations that take as long as one byte of memory traffic.
const FLOPS_A_BYTE: u64 = 8;

/// The overhead of an operation, in bytes of memory traffic.
const START_BYTES: u64 = 4096;

impl Recomputation {
    /// Returns the operation that computed `results`.
    #[track_caller]
    pub(in crate::ops) fn new(source: Source, results: &[(&Buffer, &Layout, DType)]) -> Rc<Self> {
        let result_bytes = results
            .iter()
            .map(|&(_, layout, dtype)| bytes_of(layout, dtype))
            .fold(0, u64::saturating_add);
        let operands = source.operands.iter();
        let read_bytes = operands
            .map(|operand| bytes_of(&operand.layout, operand.dtype))
            .fold(0, u64::saturating_add);
        Rc::new(Self {
            cost: (START_BYTES + source.flops / FLOPS_A_BYTE)
                .saturating_add(read_bytes)
                .saturating_add(result_bytes),
            source,
            results: RefCell::new(results.iter().map(|_| Weak::new()).collect()),
            call_site: Location::caller(),
            mark: Cell::new(0),
            is_lost: Cell::new(false),
        })
    }

    /// If only the operation pins a constant, prevents further runs of the operation. In this case,
    /// also drops the pins of its constants. The constants can then be freed, like without a
    /// budget. The memory of the operation's results is then no longer released.
    pub(super) fn lose_unless_saved(&self) {
        let constants = || {
            let operands = self.source.operands.iter();
            operands.filter_map(|operand| match &operand.value {
                OperandValue::Constant(pin) => Some(pin),
                OperandValue::Parameter(_) | OperandValue::Computed(_) => None,
            })
        };
        // The operation may read one operand twice.
        let is_alone = |pin: &Pin| {
            let own = constants().map(RefCell::borrow);
            let own = own.filter(|own| own.as_ref().is_some_and(|own| own.is_same(pin)));
            pin.is_needed_by(own.count())
        };
        if constants().any(|pin| pin.borrow().as_ref().is_some_and(is_alone)) {
            self.is_lost.set(true);
            constants().for_each(|pin| drop(pin.take()));
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    pub(super) fn call_site(&self) -> &'static Location<'static> {
        self.call_site
    }

    pub(super) fn set_result(&self, number: usize, activation: &Rc<Activation>) {
        self.results.borrow_mut()[number] = Rc::downgrade(activation);
    }

    /// Records that the search `mark` found the operation. Returns whether this search had found
    /// the operation before.
    fn is_found(&self, mark: u64) -> bool {
        self.mark.replace(mark) == mark
    }

    /// Returns the operations that compute the operands that have no memory.
    fn missing(&self) -> impl Iterator<Item = &Rc<Self>> {
        let computed = self.source.operands.iter().filter_map(Operand::computed);
        computed.filter_map(|activation| activation.missing_source())
    }

    /// Returns the estimated time of this operation, and of all operations that compute its missing
    /// operands.
    pub(super) fn cost_with_missing(&self, mark: u64) -> u64 {
        self.mark.set(mark);
        let mut cost = self.cost;
        let mut open: SmallVec<[&Rc<Self>; 8]> = self.missing().collect();
        while let Some(recomputation) = open.pop() {
            if !recomputation.is_found(mark) {
                cost = cost.saturating_add(recomputation.cost);
                open.extend(recomputation.missing());
            }
        }
        cost
    }

    fn run(&self, store: &Store) -> Result<()> {
        let _paused = Pause::begin();
        let _call_site = CallSiteOverride::at(self.call_site);
        let operands: SmallVec<[AnyArray; 3]> =
            self.source.operands.iter().map(Operand::array).collect();
        let device = operands.first().map(|operand| operand.device().clone());
        let results = (self.source.run)(&operands).map_err(|error| error.at(self.call_site))?;
        drop(operands);
        let mut bytes = 0;
        for (result, activation) in results.iter().zip(self.results.borrow().iter()) {
            bytes += result.buffer.size_bytes() as u64;
            if let Some(activation) = activation.upgrade() {
                activation.store_memory(&result.buffer, &result.layout);
            }
        }
        if let Some(device) = device.or_else(|| results.first().map(|own| own.device().clone())) {
            device.note_recomputed(bytes);
        }
        budget::note_recomputed(self.call_site, bytes);
        drop(results);
        store.make_room();
        Ok(())
    }
}

impl fmt::Debug for Recomputation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recomputation")
            .field("call_site", &self.call_site)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

fn bytes_of(layout: &Layout, dtype: DType) -> u64 {
    work_of(&[layout.len(), dtype.size_bytes()])
}

/// Returns a part of a value. In the value's first memory, this part has the layout `part`. If the
/// value has no memory, computes the value again.
pub(super) fn fetch(activation: &Rc<Activation>, part: &Layout) -> Result<(Buffer, Layout)> {
    if let Some(stored) = activation.part(part) {
        return Ok(stored);
    }
    let _pin = Pin::without_memory(activation);
    // The plan pins the operands of each operation until the operation has run.
    let plan = missing_operations(activation);
    for (recomputation, pins) in plan {
        recomputation.run(activation.store())?;
        drop(pins);
    }
    Ok(activation
        .part(part)
        .expect("the value was computed and pinned"))
}

/// Returns the operations that compute `activation`, in execution order, with pins on their
/// operands.
fn missing_operations(activation: &Rc<Activation>) -> Vec<(Rc<Recomputation>, SmallVec<[Pin; 3]>)> {
    let mark = activation.store().next_mark();
    let mut order = Vec::new();
    let mut open: Vec<(Rc<Recomputation>, bool)> = Vec::new();
    open.extend(
        activation
            .missing_source()
            .map(|own| (Rc::clone(own), false)),
    );
    // The search is depth-first and not recursive, because a chain may be as long as the tape.
    while let Some((recomputation, has_operands)) = open.pop() {
        if has_operands {
            let computed = recomputation
                .source
                .operands
                .iter()
                .filter_map(Operand::computed);
            let pins = computed.map(Pin::without_memory).collect();
            order.push((recomputation, pins));
        } else if !recomputation.is_found(mark) {
            open.push((Rc::clone(&recomputation), true));
            open.extend(recomputation.missing().map(|own| (Rc::clone(own), false)));
        }
    }
    order
}
