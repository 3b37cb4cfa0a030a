//! Expression graphs: lists of nodes without duplicates. Each node is after its operands. The
//! evaluators of the host and of CUDA devices read expression graphs.
//!
//! Equal nodes are stored once, such as an array that is read twice or a subexpression that several
//! results share. Equal single values are stored separately. Otherwise, the choice of the kernel
//! would depend on whether two single values are equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;

use super::node_list::NodeList;
use super::node_shapes::NodeShape;
use super::tree::{Node, Operand, Tree};
use crate::array::{Bits, Buffer, DType, MAX_RANK, Shape};
use crate::error::{AtCaller, Result};
use cachescope_kernels::elementwise::call::{Call, MOST_OPERANDS};
use cachescope_kernels::elementwise::operation::Operation;

/// The maximum number of results that are computed in one pass.
pub(crate) const MOST_RESULTS: usize = 8;

/// The results of a pass, each in its own allocation.
pub(in crate::ops) type Results = SmallVec<[Buffer; 1]>;

/// Nodes in an order in which they can be computed, and the indices of the requested results.
#[derive(Clone, Debug)]
pub(in crate::ops) struct ExpressionGraph<'a> {
    pub(super) nodes: NodeList<'a>,
    // The shapes of nodes, except shapes that are borrowed from an array.
    pub(super) shapes: Vec<Shape>,
    pub(super) results: SmallVec<[usize; 1]>,
}

/// One operation or operand of an expression graph.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct GraphNode<'a> {
    pub(in crate::ops) kind: NodeKind<Operand<'a>>,
    pub(in crate::ops) dtype: DType,
    pub(super) shape: NodeShape<'a>,
}

/// The kind of a node. `A` is the type that represents an array.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) enum NodeKind<A> {
    /// The elements of an array.
    Array(A),
    /// One value.
    Scalar(Bits),
    /// A function, and the indices of its operands, which are earlier nodes.
    Call(&'static Call, [u32; MOST_OPERANDS]),
}

/// Window of the search for an equal node, in nodes. Bounds the cost of each insertion in a long
/// expression graph.
const SEARCH_WINDOW: usize = 64;

impl<'a> ExpressionGraph<'a> {
    /// Returns the expression graph of `tree`.
    ///
    /// # Errors
    ///
    /// Fails if shapes do not broadcast, or their common shape overflows.
    #[track_caller]
    pub(in crate::ops) fn of(tree: &'a dyn Tree) -> Result<Self> {
        Self::of_all(&[tree])
    }

    /// Returns the expression graph of a function of arrays.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    #[track_caller]
    pub(in crate::ops) fn of_call(call: &'static Call, operands: &[Operand<'a>]) -> Result<Self> {
        let mut graph = Self::empty();
        let operands = operands.iter().map(|own| graph.append_array(*own));
        let operands: SmallVec<[u32; MOST_OPERANDS]> = operands.collect();
        let result = graph.append_call(call, &operands)?;
        graph.set_results(std::iter::once(result as usize));
        Ok(graph)
    }

    pub(in crate::ops) fn of_value(dtype: DType, bits: Bits) -> Self {
        let mut graph = Self::empty();
        let result = graph.append_scalar(dtype, bits);
        graph.set_results(std::iter::once(result as usize));
        graph
    }

    /// Returns the expression graph with one result for each of `trees`, in order.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    #[track_caller]
    pub(in crate::ops) fn of_all(trees: &[&'a dyn Tree]) -> Result<Self> {
        let mut graph = Self::empty();
        for tree in trees {
            graph.append(*tree)?;
        }
        Ok(graph)
    }

    /// Appends the nodes of `tree`. The last node becomes an additional result.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    #[track_caller]
    pub(in crate::ops) fn append(&mut self, tree: &'a dyn Tree) -> Result<()> {
        let mut builder = GraphBuilder {
            graph: self,
            stack: SmallVec::new(),
            outcome: Ok(()),
        };
        tree.walk(&mut |visited| builder.visit(visited));
        let GraphBuilder { stack, outcome, .. } = builder;
        outcome.at_caller()?;
        self.results.extend(stack.last().map(|&node| node as usize));
        Ok(())
    }
}

/// Methods that build expression graphs node by node.
impl<'a> ExpressionGraph<'a> {
    pub(in crate::ops) fn empty() -> Self {
        Self {
            nodes: NodeList::new(),
            shapes: Vec::new(),
            results: SmallVec::new(),
        }
    }

    /// Appends the elements of an array, and returns the index of the node.
    #[inline]
    pub(in crate::ops) fn append_array(&mut self, operand: Operand<'a>) -> u32 {
        let node = GraphNode {
            kind: NodeKind::Array(operand),
            dtype: operand.dtype,
            shape: NodeShape::Borrowed(operand.layout.shape()),
        };
        self.add(node) as u32
    }

    /// Appends one value, and returns the index of the node.
    #[inline]
    pub(in crate::ops) fn append_scalar(&mut self, dtype: DType, bits: Bits) -> u32 {
        let node = GraphNode {
            kind: NodeKind::Scalar(bits),
            dtype,
            shape: NodeShape::Borrowed(&Shape::SCALAR),
        };
        self.add(node) as u32
    }

    /// Appends a function of nodes, and returns the index of the node.
    ///
    /// # Errors
    ///
    /// Fails if the operands' shapes do not broadcast.
    #[inline]
    #[track_caller]
    pub(in crate::ops) fn append_call(
        &mut self,
        call: &'static Call,
        operands: &[u32],
    ) -> Result<u32> {
        let node = GraphNode {
            kind: NodeKind::call(call, operands),
            dtype: call.output,
            shape: self.common_shape(call.name, operands)?,
        };
        Ok(self.add(node) as u32)
    }

    pub(in crate::ops) fn set_results(&mut self, results: impl Iterator<Item = usize>) {
        self.results = results.collect();
    }
}

struct GraphBuilder<'a, 'b> {
    graph: &'b mut ExpressionGraph<'a>,
    // The nodes that are not operands of another node yet.
    stack: SmallVec<[u32; 8]>,
    outcome: Result<()>,
}

impl<'a> GraphBuilder<'a, '_> {
    #[inline]
    fn visit(&mut self, visited: Node<Operand<'a>>) {
        if self.outcome.is_err() {
            return;
        }
        let number = match visited {
            Node::Array(operand) => self.graph.append_array(operand),
            Node::Scalar(dtype, bits) => self.graph.append_scalar(dtype, bits),
            Node::Call(call) => {
                let nodes = self.graph.nodes.len();
                let first = self.stack.len() - call.arity();
                let operands = &self.stack[first..];
                if self.is_identity(call, operands) {
                    return; // The operand's node stays on the stack.
                }
                match self.graph.append_call(call, operands) {
                    Ok(number) => {
                        if (number as usize) < nodes {
                            self.graph.drop_values_of(operands, number);
                        }
                        self.stack.truncate(first);
                        number
                    }
                    Err(error) => {
                        self.outcome = Err(error);
                        return;
                    }
                }
            }
        };
        self.stack.push(number);
    }

    /// Returns whether a call converts its operand to the type that the operand already has.
    /// Generic code converts every operand to the accumulation type.
    #[inline]
    fn is_identity(&self, call: &Call, operands: &[u32]) -> bool {
        call.operation == Operation::Cast
            && self.graph.nodes[operands[0] as usize].dtype == call.output
    }
}

impl<'a> ExpressionGraph<'a> {
    /// Returns the index of a node that is equal to `node`. If the search finds no equal node,
    /// appends `node`.
    fn add(&mut self, node: GraphNode<'a>) -> usize {
        let start = self.nodes.len().saturating_sub(SEARCH_WINDOW);
        let mut earlier = self.nodes[start..].iter();
        match earlier.position(|other| self.are_equal(other, &node)) {
            Some(number) => start + number,
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// Drops the single values among `operands`, the operands of a call that the equal node
    /// `number` replaces. These values were appended last, and no other node reads them.
    fn drop_values_of(&mut self, operands: &[u32], number: u32) {
        for &operand in operands.iter().rev() {
            let is_last = operand as usize + 1 == self.nodes.len();
            if is_last && !self.nodes[number as usize].operands().contains(&operand) {
                self.nodes.pop();
            }
        }
    }

    /// Returns whether two nodes have equal elements, whatever values their arrays hold.
    #[inline]
    fn are_equal(&self, one: &GraphNode<'_>, other: &GraphNode<'_>) -> bool {
        match (&one.kind, &other.kind) {
            (NodeKind::Array(one), NodeKind::Array(other)) => {
                one.buffer.is_same(other.buffer)
                    && one.buffer.value_id() == other.buffer.value_id()
                    && one.dtype == other.dtype
                    && one.layout == other.layout
            }
            (NodeKind::Call(one_call, _), NodeKind::Call(other_call, _)) => {
                let mut pairs = one.operands().iter().zip(other.operands());
                one_call.arity() == other_call.arity()
                    && one.dtype == other.dtype
                    && pairs.all(|(&a, &b)| a == b || self.are_equal_values(a, b))
                    && (one_call.id)() == (other_call.id)()
            }
            _ => false,
        }
    }

    fn are_equal_values(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|node| &self.nodes[node as usize]);
        match (&one.kind, &other.kind) {
            (NodeKind::Scalar(bits), NodeKind::Scalar(others)) => {
                bits == others && one.dtype == other.dtype
            }
            _ => false,
        }
    }

    pub(in crate::ops) fn nodes(&self) -> &[GraphNode<'a>] {
        &self.nodes
    }

    /// Returns the indices of the requested nodes.
    pub(in crate::ops) fn results(&self) -> &[usize] {
        &self.results
    }

    pub(in crate::ops) fn first(&self) -> &GraphNode<'a> {
        &self.nodes[self.results[0]]
    }

    /// Returns the arrays that the expression graph reads. Each array is returned once.
    pub(in crate::ops) fn operands(&self) -> impl Iterator<Item = &Operand<'a>> {
        self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Array(operand) => Some(operand),
            _ => None,
        })
    }

    /// Returns the number of bytes that are read to compute one element of all results.
    pub(in crate::ops) fn bytes_read(&self) -> usize {
        self.operands()
            .map(|operand| operand.dtype.size_bytes())
            .sum()
    }

    /// Returns the byte stride along each axis of `shape`, summed over all operands. Memory is read
    /// fastest with the axes in descending order of this sum.
    pub(in crate::ops) fn reach_of_axes(&self, shape: &Shape) -> [usize; MAX_RANK] {
        let mut reach = [0usize; MAX_RANK];
        for Operand { layout, dtype, .. } in self.operands() {
            let lead = shape.ndim().saturating_sub(layout.ndim());
            let axes = layout.dims().iter().zip(layout.strides());
            for (total, (&length, &stride)) in reach[lead..].iter_mut().zip(axes) {
                if length > 1 {
                    let bytes = stride.unsigned_abs().saturating_mul(dtype.size_bytes());
                    *total = total.saturating_add(bytes);
                }
            }
        }
        reach
    }

    /// Returns the number of times that each node is an operand or a result.
    pub(in crate::ops) fn uses(&self) -> SmallVec<[u32; 8]> {
        let mut uses: SmallVec<[u32; 8]> = SmallVec::from_elem(0, self.nodes.len());
        for node in self.nodes() {
            for &operand in node.operands() {
                uses[operand as usize] += 1;
            }
        }
        for &result in &self.results {
            uses[result] += 1;
        }
        uses
    }

    /// Returns a hash of the functions and types of an expression graph. The hash does not depend
    /// on the arrays and single values.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(dead_code, reason = "kernels of CUDA devices use it")
    )]
    pub(in crate::ops) fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            for node in self.nodes() {
                node.dtype.hash(&mut hasher);
                match &node.kind {
                    NodeKind::Array(_) => 0.hash(&mut hasher),
                    NodeKind::Scalar(_) => 1.hash(&mut hasher),
                    NodeKind::Call(call, _) => {
                        (2, (call.id)(), call.name).hash(&mut hasher);
                        node.operands().hash(&mut hasher);
                    }
                }
            }
            self.results.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    /// Returns an expression graph whose results are this graph's nodes `results`. The new graph
    /// has arrays in place of the nodes in `known`.
    pub(in crate::ops) fn rebuilt<'b>(
        &self,
        results: &[usize],
        known: &[(usize, Operand<'b>)],
    ) -> ExpressionGraph<'b>
    where
        'a: 'b,
    {
        let is_known = |number: usize| known.iter().any(|(node, _)| *node == number);
        let kinds = self.nodes.iter().map(|node| &node.kind);
        let wanted = wanted(kinds, results.iter().copied(), is_known);
        let mut graph = ExpressionGraph {
            shapes: self.shapes.clone(),
            ..ExpressionGraph::empty()
        };
        let mut numbers: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            if !wanted[number] {
                continue;
            }
            let mut node: GraphNode<'b> = *node;
            if let Some((_, operand)) = known.iter().find(|(node, _)| *node == number) {
                node.kind = NodeKind::Array(*operand);
            }
            if let NodeKind::Call(call, operands) = &mut node.kind {
                for operand in &mut operands[..call.arity()] {
                    *operand = numbers[*operand as usize] as u32;
                }
            }
            numbers[number] = graph.add(node);
        }
        graph.results = results.iter().map(|&result| numbers[result]).collect();
        graph
    }
}

impl<A> NodeKind<A> {
    #[inline]
    pub(super) fn call(call: &'static Call, operands: &[u32]) -> Self {
        let mut all = [0; MOST_OPERANDS];
        all[..operands.len()].copy_from_slice(operands);
        Self::Call(call, all)
    }

    #[inline]
    pub(in crate::ops) fn operands(&self) -> &[u32] {
        match self {
            Self::Call(call, operands) => &operands[..call.arity()],
            _ => &[],
        }
    }
}

impl GraphNode<'_> {
    #[inline]
    pub(in crate::ops) fn operands(&self) -> &[u32] {
        self.kind.operands()
    }
}

/// Returns a flag for each node: true for `results`, and for the nodes from which `results` are
/// computed. A node for which `is_known` returns true requires no operands.
pub(in crate::ops) fn wanted<'n, A: 'n>(
    nodes: impl ExactSizeIterator<Item = &'n NodeKind<A>> + DoubleEndedIterator,
    results: impl Iterator<Item = usize>,
    is_known: impl Fn(usize) -> bool,
) -> SmallVec<[bool; 8]> {
    let mut wanted = SmallVec::from_elem(false, nodes.len());
    results.for_each(|result| wanted[result] = true);
    for (number, node) in nodes.enumerate().rev() {
        if wanted[number] && !is_known(number) {
            let operands = node.operands().iter();
            operands.for_each(|&operand| wanted[operand as usize] = true);
        }
    }
    wanted
}
