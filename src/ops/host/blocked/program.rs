//! An expression graph as a program: a list of steps, and the location of each step's block.

use smallvec::SmallVec;

use super::BLOCK;
use super::scratch::Registers;
use super::tile::{TILE, TileRows};
use super::view::View;
use crate::array::{Bits, Shape};
use crate::device::DevicePtr;
use crate::device::host::host_pointer;
use crate::ops::descriptors::IndexSpace;
use crate::ops::expression::graph::{ExpressionGraph, GraphNode, NodeKind};
use crate::ops::expression::tree::{Node, Operand, Tree};
use crate::ops::host::launch::Work;
use cachescope_kernels::elementwise::call::MOST_OPERANDS;
use cachescope_kernels::elementwise::loops::BlockLoop;

/// A program that computes the elements of an expression graph over an index space.
///
/// Invariants: the operands of a step are earlier steps. While a step's block is read, no other
/// step writes to the block's part of the scratch memory. `Memory` and `View` point to memory of
/// the expression graph's arrays. This memory covers the index space.
#[derive(Clone, Debug)]
pub(crate) struct BlockProgram {
    pub(super) steps: SmallVec<[ProgramStep; 3]>,
    pub(super) views: SmallVec<[View; 1]>,
    pub(super) results: SmallVec<[ProgramResult; 1]>,
    pub(super) count: usize,
    pub(super) scratch_bytes: usize,
    // `true` if nothing is gathered or repeated, and at most one function is computed. A block may
    // then have any length.
    pub(super) is_flat: bool,
    pub(super) rows: Option<TileRows>,
}

/// The computation of one node's block. Offsets are in bytes from the beginning of the scratch
/// memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProgramStep {
    /// A block in memory, from `base` on.
    Memory {
        base: *const u8,
        element_bytes: usize,
    },
    /// A block that is gathered from the program's view with the index `view`.
    View { view: usize, at: usize },
    /// A block that repeats one value, and is written once.
    Value {
        bits: Bits,
        element_bytes: usize,
        at: usize,
    },
    /// A block that is computed from the blocks of `operands`.
    Call {
        run: BlockLoop,
        operands: [u32; MOST_OPERANDS],
        at: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramResult {
    pub(super) step: usize,
    pub(super) element_bytes: usize,
    // `true` if the step can write directly to the result's memory.
    pub(super) is_direct: bool,
    // The offset to which the block of a step without a function is copied, before elements are
    // overwritten.
    pub(super) stage: Option<usize>,
}

// SAFETY: only unsafe functions dereference the addresses in a program. By their contracts, these
// functions read plain data that nothing writes to meanwhile.
unsafe impl Send for BlockProgram {}
// SAFETY: only unsafe functions dereference the addresses in a program.
unsafe impl Sync for BlockProgram {}

impl BlockProgram {
    /// Returns the program of `graph` over `space`. Each node of the graph broadcasts to the shape
    /// of the space.
    pub(in crate::ops::host) fn new(graph: &ExpressionGraph<'_>, space: &IndexSpace) -> Self {
        let nodes = graph.nodes();
        let widest = nodes
            .iter()
            .fold(1, |widest, node| widest.max(node.dtype.size_bytes()));
        let mut registers = Registers::new(nodes.len(), BLOCK * widest);
        // The program is filled in place, because it is large.
        let mut program = Self {
            steps: SmallVec::with_capacity(nodes.len()),
            views: SmallVec::new(),
            results: SmallVec::new(),
            count: space.count(),
            scratch_bytes: 0,
            is_flat: true,
            rows: None,
        };
        let mut calls = 0;
        for node in nodes {
            let step = ProgramStep::of(node, space, (&mut registers, &mut program.views));
            match step {
                ProgramStep::Call { .. } => {
                    calls += 1;
                    for &operand in node.operands() {
                        if let ProgramStep::Call { at, .. } = program.steps[operand as usize] {
                            if registers.uses.is_empty() {
                                registers.uses = graph.uses();
                            }
                            registers.was_read(operand as usize, at);
                        }
                    }
                }
                ProgramStep::Memory { .. } => {}
                ProgramStep::View { .. } | ProgramStep::Value { .. } => program.is_flat = false,
            }
            program.steps.push(step);
        }
        for (number, &step) in graph.results().iter().enumerate() {
            let is_call = matches!(program.steps[step], ProgramStep::Call { .. });
            program.results.push(ProgramResult {
                step,
                element_bytes: nodes[step].dtype.size_bytes(),
                is_direct: is_call && !graph.results()[..number].contains(&step),
                stage: (!is_call).then(|| registers.take()),
            });
        }
        program.is_flat &= calls <= 1;
        program.rows = program.views.iter().find_map(View::transposed);
        program.scratch_bytes = registers.scratch_bytes();
        program
    }

    /// Prevents reads between the operands' elements in the memory that begins at `written`. Other
    /// threads may write to the memory between these elements while the program runs.
    pub(in crate::ops::host) fn exclude_written(&mut self, written: *const u8) {
        let views = self.views.iter_mut();
        views.for_each(|view| view.exclude_written(written));
    }

    /// Returns the work of storing the elements. Each element reads and writes `bytes_each` bytes.
    pub(in crate::ops::host) fn work(&self, bytes_each: usize) -> Work {
        let work = Work::of_elements(self.count, bytes_each);
        match self.rows {
            Some(rows) => work.in_units_of(rows.length * TILE.rows),
            None => work,
        }
    }

    /// Returns the address of the first result's first element. Returns `None` if there are no
    /// elements, or if they are not consecutive in memory.
    #[inline]
    pub(super) fn in_memory(&self) -> Option<*const u8> {
        match self.steps[self.results[0].step] {
            ProgramStep::Memory { base, .. } if self.count > 0 => Some(base),
            _ => None,
        }
    }
}

/// The operands of an expression. Their blocks are read in place or gathered.
pub(in crate::ops) struct OperandBlocks(pub(super) BlockProgram);

impl OperandBlocks {
    /// Returns the operands of `tree` over `shape`. Returns `None` if there are too many operands.
    /// Returns `None` if an operand does not broadcast to the shape, or is best read in tiles. Also
    /// returns `None` if some values are better computed once. These values are functions of
    /// repeated operands only, and functions of an array that occurs twice.
    pub(in crate::ops) fn of(tree: &dyn Tree, shape: &Shape) -> Option<Self> {
        let space = IndexSpace::row_major(shape);
        let mut registers = Registers::new(MOST_LEAVES, 0);
        // This program has only the steps of the operands, and no results.
        let mut program = BlockProgram {
            steps: SmallVec::new(),
            views: SmallVec::new(),
            results: SmallVec::new(),
            count: space.count(),
            scratch_bytes: 0,
            is_flat: false,
            rows: None,
        };
        let mut fits = true;
        let mut arrays: SmallVec<[Operand<'_>; MOST_LEAVES]> = SmallVec::new();
        // The flags of the values that no function has used yet: `true` if the value is repeated.
        let mut repeated: SmallVec<[bool; 8]> = SmallVec::new();
        tree.walk(&mut |node| match node {
            Node::Array(operand) if operand.layout.broadcasts_to(shape) => {
                let to = (&mut registers, &mut program.views);
                let step = ProgramStep::of_array(&operand, &space, to);
                program.steps.push(step);
                repeated.push(operand.layout.len() < program.count);
                fits &= !arrays.iter().any(|other| {
                    other.buffer.is_same(operand.buffer) && other.layout == operand.layout
                });
                arrays.push(operand);
            }
            Node::Array(_) => fits = false,
            Node::Scalar(..) => repeated.push(true),
            Node::Call(call) => {
                let first = repeated.len().saturating_sub(call.arity());
                let all = repeated.drain(first..).all(|repeated| repeated);
                fits &= !all;
                repeated.push(all);
            }
        });
        program.scratch_bytes = registers.scratch_bytes();
        fits &= program.views.iter().all(|view| view.transposed().is_none());
        (fits && program.steps.len() <= MOST_LEAVES).then_some(Self(program))
    }
}

/// The maximum number of arrays of an expression whose operands are gathered for a fused loop.
const MOST_LEAVES: usize = 8;

impl ProgramStep {
    fn of(
        node: &GraphNode<'_>,
        space: &IndexSpace,
        (registers, views): (&mut Registers, &mut SmallVec<[View; 1]>),
    ) -> Self {
        let element_bytes = node.dtype.size_bytes();
        match node.kind {
            NodeKind::Scalar(bits) => Self::Value {
                bits,
                element_bytes,
                at: registers.reserve(BLOCK * element_bytes),
            },
            NodeKind::Call(call, operands) => Self::Call {
                run: call.run(),
                operands,
                at: registers.take(),
            },
            NodeKind::Array(ref operand) => Self::of_array(operand, space, (registers, views)),
        }
    }

    fn of_array(
        operand: &Operand<'_>,
        space: &IndexSpace,
        (registers, views): (&mut Registers, &mut SmallVec<[View; 1]>),
    ) -> Self {
        let element_bytes = operand.dtype.size_bytes();
        let base: *const u8 = host_pointer(DevicePtr(operand.buffer.address()));
        let layout = operand.layout;
        let memory = |offset: usize| Self::Memory {
            base: base.wrapping_add(offset * element_bytes),
            element_bytes,
        };
        if space.is_order_of(layout) {
            return memory(layout.offset());
        }
        let walk = space.place(layout);
        if walk.axes().len() == 1 && matches!(walk.row(), (1, _) | (_, [1])) {
            let [first] = walk.first();
            return memory(first);
        }
        let view = View::new(base, element_bytes, walk);
        let at = registers.reserve(view.scratch_bytes());
        views.push(view);
        Self::View {
            view: views.len() - 1,
            at,
        }
    }
}
