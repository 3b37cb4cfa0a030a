//! The activation budgets of a thread, and the statistics of each budget.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;
use std::sync::OnceLock;

use crate::context::{Device, size_setting};
use crate::error::Result;
use crate::size::ByteSize;
use crate::sorting::sort_descending;
use crate::text::write_to_stderr;

/// The budget that the environment sets for every thread without a budget.
static OF_ENVIRONMENT: OnceLock<Option<u64>> = OnceLock::new();

thread_local! {
    /// The budgets of this thread, the outermost first.
    static BUDGETS: RefCell<Vec<Rc<Budget>>> = const { RefCell::new(Vec::new()) };
}

/// A budget for the bytes that the steps of a tape save.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: u64,
    /// The maximum number of bytes that were saved at once.
    saved_bytes: Cell<u64>,
    /// The counts of operations that ran again, by call site.
    recomputed: RefCell<BTreeMap<&'static Location<'static>, BudgetCounts>>,
}

/// The number of operations that ran again, and the bytes of their results.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BudgetCounts {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

impl Budget {
    /// Begins a budget on this thread, inside the thread's earlier budgets.
    pub(crate) fn begin(limit_bytes: u64) -> Rc<Self> {
        let budget = Rc::new(Self {
            limit_bytes,
            saved_bytes: Cell::new(0),
            recomputed: RefCell::default(),
        });
        BUDGETS.with_borrow_mut(|budgets| budgets.push(Rc::clone(&budget)));
        budget
    }

    pub(crate) fn end(self: &Rc<Self>) {
        // The thread's locals may be destroyed already.
        let _ = BUDGETS.try_with(|budgets| {
            budgets
                .borrow_mut()
                .retain(|budget| !Rc::ptr_eq(budget, self));
        });
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved_bytes.get()
    }

    /// Returns the counts of operations that ran again, by call site.
    pub(crate) fn recomputed(&self) -> Vec<(&'static Location<'static>, BudgetCounts)> {
        let recomputed = self.recomputed.borrow();
        recomputed
            .iter()
            .map(|(line, counts)| (*line, *counts))
            .collect()
    }
}

/// Reads `CACHESCOPE_ACTIVATION_BUDGET` once, when the first tape begins. A relative size refers to
/// the memory of the current device.
///
/// # Errors
///
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the value of the variable is not a
/// size.
#[track_caller]
pub(in crate::ops::derivatives) fn read_environment() -> Result<()> {
    const VARIABLE: &str = "CACHESCOPE_ACTIVATION_BUDGET";
    if OF_ENVIRONMENT.get().is_none() {
        let budget = match std::env::var_os(VARIABLE) {
            Some(_) => size_setting(VARIABLE, Device::current().backend().total_bytes())?,
            None => None,
        };
        OF_ENVIRONMENT.get_or_init(|| budget);
    }
    Ok(())
}

/// Returns the smallest budget of this thread. If the thread has no budget, returns the budget of
/// the environment.
pub(super) fn limit_bytes() -> Option<u64> {
    let smallest = |budgets: &RefCell<Vec<Rc<Budget>>>| {
        budgets
            .borrow()
            .iter()
            .map(|budget| budget.limit_bytes)
            .min()
    };
    // The thread's locals may be destroyed already.
    let own = BUDGETS.try_with(smallest).ok().flatten();
    own.or_else(|| OF_ENVIRONMENT.get().copied().flatten())
}

pub(super) fn note_saved(bytes: u64) {
    for_each(|budget| budget.saved_bytes.set(budget.saved_bytes.get().max(bytes)));
}

/// Records that an operation ran again, with results of `bytes` bytes.
pub(super) fn note_recomputed(call_site: &'static Location<'static>, bytes: u64) {
    for_each(|budget| {
        let mut recomputed = budget.recomputed.borrow_mut();
        let counts = recomputed.entry(call_site).or_default();
        counts.operations += 1;
        counts.bytes += bytes;
    });
}

fn for_each(see: impl Fn(&Budget)) {
    // The thread's locals may be destroyed already.
    let _ = BUDGETS.try_with(|budgets| budgets.borrow().iter().for_each(|budget| see(budget)));
}

/// The maximum number of call sites that a message lists.
const LISTED_LINES: usize = 5;

/// Writes a warning to standard error, once per process. The warning reports that saved values were
/// released because an allocation failed. It lists the size of these values, and the call sites
/// that computed most of them.
#[cold]
pub(super) fn report_release(bytes: u64, released: &[(u64, Option<&'static Location<'static>>)]) {
    static REPORTED: OnceLock<()> = OnceLock::new();
    if REPORTED.set(()).is_err() {
        return;
    }
    let mut lines: BTreeMap<&'static Location<'static>, u64> = BTreeMap::new();
    for (bytes, line) in released {
        if let Some(line) = line {
            *lines.entry(line).or_default() += bytes;
        }
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    sort_descending(&mut lines, |(_, bytes)| *bytes);
    let mut text = format!(
        "warning: the memory limit was reached: {} that a backward pass saved were released, and are computed again \
         (shown once; grad::activation_budget sets a budget beforehand)",
        ByteSize(bytes)
    );
    for (line, bytes) in lines.iter().take(LISTED_LINES) {
        text += &format!("\n{:>12}  {line}", ByteSize(*bytes).to_string());
    }
    write_to_stderr(format_args!("{text}"));
}
