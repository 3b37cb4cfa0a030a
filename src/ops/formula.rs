//! An expression as a list of terms without duplicates, each after its operands. The evaluators of
//! both devices are built on it.
//!
//! Equal terms are stored once: an array that is read twice, or a subexpression that several
//! results share. Single values are stored separately, because otherwise the choice of the kernel
//! would depend on whether two of them happen to be equal.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;

use super::tree::{Call, MOST_OPERANDS, Node, Operand, Tree};
use crate::array::{Bits, DType, MAX_RANK, Shape, broadcast_shapes};
use crate::error::{AtCaller, Result};

/// Terms in an order in which they can be computed, and the numbers of the requested results.
#[derive(Clone, Debug)]
pub(super) struct Formula<'a> {
    terms: Vec<Term<'a>>,
    results: SmallVec<[usize; 1]>,
}

/// One operation or operand of a formula.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term<'a> {
    pub(super) of: Of<'a>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

/// The kind of a term.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of<'a> {
    /// The elements of an array.
    Array(Operand<'a>),
    /// One value.
    Scalar(Bits),
    /// A function of terms before it, as many as it has operands.
    Call(&'static Call, [u32; MOST_OPERANDS]),
}

/// The terms of most formulas. They are short of 1 KiB, up to which `malloc` is fast.
const TERMS: usize = 9;

const _: () = assert!(TERMS * size_of::<Term<'_>>() <= 1024);

/// Window of the search for an equal term, in terms. Bounds the cost of each insertion in a long
/// formula.
const LOOKED_THROUGH: usize = 64;

impl<'a> Formula<'a> {
    /// Returns the formula of `tree`.
    ///
    /// # Errors
    ///
    /// Fails if shapes do not broadcast, or their common shape overflows.
    #[track_caller]
    pub(super) fn of(tree: &'a dyn Tree) -> Result<Self> {
        Self::of_all(&[tree])
    }

    /// Returns the formula with one result for each of `trees`, in order.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    #[track_caller]
    pub(super) fn of_all(trees: &[&'a dyn Tree]) -> Result<Self> {
        let mut builder = Builder {
            formula: Self {
                terms: Vec::with_capacity(TERMS),
                results: SmallVec::new(),
            },
            stack: SmallVec::new(),
            outcome: Ok(()),
        };
        for tree in trees {
            tree.walk(&mut |node| builder.meet(node));
            let result = builder.stack.pop();
            builder
                .formula
                .results
                .extend(result.map(|term| term as usize));
        }
        builder.outcome.at_caller()?;
        Ok(builder.formula)
    }
}

/// Formulas that are made term by term.
impl<'a> Formula<'a> {
    /// Returns a formula without terms.
    pub(super) fn empty() -> Self {
        Self {
            terms: Vec::with_capacity(TERMS),
            results: SmallVec::new(),
        }
    }

    /// Adds the elements of an array, and returns the number of the term.
    pub(super) fn append_array(&mut self, operand: Operand<'a>) -> u32 {
        let term = Term {
            of: Of::Array(operand),
            dtype: operand.dtype,
            shape: *operand.layout.shape(),
        };
        self.add(term) as u32
    }

    /// Adds one value, and returns the number of the term.
    pub(super) fn append_scalar(&mut self, dtype: DType, bits: Bits) -> u32 {
        let term = Term {
            of: Of::Scalar(bits),
            dtype,
            shape: Shape::SCALAR,
        };
        self.add(term) as u32
    }

    /// Adds a function of terms, and returns the number of the term.
    ///
    /// # Errors
    ///
    /// Fails if the operands' shapes do not broadcast.
    #[track_caller]
    pub(super) fn append_call(&mut self, call: &'static Call, operands: &[u32]) -> Result<u32> {
        let mut all = [0; MOST_OPERANDS];
        all[..operands.len()].copy_from_slice(operands);
        let term = Term {
            of: Of::Call(call, all),
            dtype: call.output,
            shape: self.common_shape(call.name, operands)?,
        };
        Ok(self.add(term) as u32)
    }

    /// Sets the requested results.
    pub(super) fn ask_for(&mut self, results: impl Iterator<Item = usize>) {
        self.results = results.collect();
    }
}

/// A formula that is being built.
struct Builder<'a> {
    formula: Formula<'a>,
    // The terms that are no term's operands yet.
    stack: SmallVec<[u32; 8]>,
    outcome: Result<()>,
}

impl<'a> Builder<'a> {
    #[inline]
    fn meet(&mut self, node: Node<'a>) {
        if self.outcome.is_err() {
            return;
        }
        let term = match node {
            Node::Array(operand) => Term {
                of: Of::Array(operand),
                dtype: operand.dtype,
                shape: *operand.layout.shape(),
            },
            Node::Scalar(dtype, bits) => Term {
                of: Of::Scalar(bits),
                dtype,
                shape: Shape::SCALAR,
            },
            Node::Call(call) => {
                let first = self.stack.len() - call.arity;
                let mut operands = [0; MOST_OPERANDS];
                operands[..call.arity].copy_from_slice(&self.stack[first..]);
                self.stack.truncate(first);
                let shape = self
                    .formula
                    .common_shape(call.name, &operands[..call.arity]);
                match shape {
                    Ok(shape) => Term {
                        of: Of::Call(call, operands),
                        dtype: call.output,
                        shape,
                    },
                    Err(error) => {
                        self.outcome = Err(error);
                        return;
                    }
                }
            }
        };
        let terms = self.formula.terms.len();
        let number = self.formula.add(term);
        if number < terms && matches!(node, Node::Call(_)) {
            self.formula.drop_values_of(&term, number);
        }
        self.stack.push(number as u32);
    }
}

impl<'a> Formula<'a> {
    /// Returns the number of `term`, which is added unless there is an equal one.
    fn add(&mut self, term: Term<'a>) -> usize {
        let start = self.terms.len().saturating_sub(LOOKED_THROUGH);
        let mut earlier = self.terms[start..].iter();
        match earlier.position(|other| self.are_equal(other, &term)) {
            Some(number) => start + number,
            None => {
                self.terms.push(term);
                self.terms.len() - 1
            }
        }
    }

    /// Drops the single values that were added for the call `term`, which the equal term `number`
    /// replaces: they were added last, and no other term reads them.
    fn drop_values_of(&mut self, term: &Term<'_>, number: usize) {
        for &operand in term.operands().iter().rev() {
            let is_last = operand as usize + 1 == self.terms.len();
            if is_last && !self.terms[number].operands().contains(&operand) {
                self.terms.pop();
            }
        }
    }

    /// Returns whether two terms have equal elements, whatever values their arrays hold.
    #[inline]
    fn are_equal(&self, one: &Term<'_>, other: &Term<'_>) -> bool {
        match (&one.of, &other.of) {
            (Of::Array(one), Of::Array(other)) => {
                one.buffer.is_same(other.buffer)
                    && one.buffer.node() == other.buffer.node()
                    && one.dtype == other.dtype
                    && one.layout == other.layout
            }
            (Of::Call(one_call, _), Of::Call(other_call, _)) => {
                let mut pairs = one.operands().iter().zip(other.operands());
                one_call.arity == other_call.arity
                    && one.dtype == other.dtype
                    && pairs.all(|(&a, &b)| a == b || self.are_equal_values(a, b))
                    && (one_call.id)() == (other_call.id)()
            }
            _ => false,
        }
    }

    fn are_equal_values(&self, one: u32, other: u32) -> bool {
        let [one, other] = [one, other].map(|term| &self.terms[term as usize]);
        match (&one.of, &other.of) {
            (Of::Scalar(bits), Of::Scalar(others)) => bits == others && one.dtype == other.dtype,
            _ => false,
        }
    }

    /// Returns the shape that the shapes of `operands` broadcast to.
    #[inline]
    #[track_caller]
    fn common_shape(&self, operation: &str, operands: &[u32]) -> Result<Shape> {
        let shape_of = |&operand: &u32| &self.terms[operand as usize].shape;
        let Some((first, rest)) = operands.split_first() else {
            return Ok(Shape::SCALAR);
        };
        let mut common = *shape_of(first);
        for shape in rest.iter().map(shape_of) {
            if shape.ndim() > 0 && *shape != common {
                let Ok(both) = broadcast_shapes(operation, &[&common, shape]) else {
                    return self.not_broadcast(operation, operands);
                };
                common = both;
            }
        }
        Ok(common)
    }

    /// Returns the error for `operands` that do not broadcast, which names all of their shapes.
    #[cold]
    #[track_caller]
    fn not_broadcast(&self, operation: &str, operands: &[u32]) -> Result<Shape> {
        let shapes = operands
            .iter()
            .map(|&operand| &self.terms[operand as usize].shape);
        broadcast_shapes(
            operation,
            &shapes.collect::<SmallVec<[&Shape; MOST_OPERANDS]>>(),
        )
    }

    pub(super) fn terms(&self) -> &[Term<'a>] {
        &self.terms
    }

    /// Returns the numbers of the requested terms.
    pub(super) fn results(&self) -> &[usize] {
        &self.results
    }

    /// Returns the first result.
    pub(super) fn first(&self) -> &Term<'a> {
        &self.terms[self.results[0]]
    }

    /// Returns the arrays that the formula reads, each once.
    pub(super) fn operands(&self) -> impl Iterator<Item = &Operand<'a>> {
        self.terms.iter().filter_map(|term| match &term.of {
            Of::Array(operand) => Some(operand),
            _ => None,
        })
    }

    /// Returns the bytes that one element of all results reads.
    pub(super) fn bytes_read(&self) -> usize {
        self.operands()
            .map(|operand| operand.dtype.size_bytes())
            .sum()
    }

    /// Returns the byte stride along each axis of `shape`, summed over all operands. Memory is read
    /// best with the axes in descending order of this sum.
    pub(super) fn reach_of_axes(&self, shape: &Shape) -> [usize; MAX_RANK] {
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

    /// Returns how often each term is an operand or a result.
    pub(super) fn uses(&self) -> SmallVec<[u32; 8]> {
        let mut uses: SmallVec<[u32; 8]> = SmallVec::from_elem(0, self.terms.len());
        for term in &self.terms {
            for &operand in term.operands() {
                uses[operand as usize] += 1;
            }
        }
        for &result in &self.results {
            uses[result] += 1;
        }
        uses
    }

    /// Returns a hash that distinguishes formulas by their functions and types. Which arrays and
    /// single values they read does not count.
    pub(super) fn fingerprint(&self) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            for term in &self.terms {
                term.dtype.hash(&mut hasher);
                match &term.of {
                    Of::Array(_) => 0.hash(&mut hasher),
                    Of::Scalar(_) => 1.hash(&mut hasher),
                    Of::Call(call, _) => {
                        (2, (call.id)(), call.name).hash(&mut hasher);
                        term.operands().hash(&mut hasher);
                    }
                }
            }
            self.results.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    /// Returns the formula whose results are the terms `results` of this one, and that reads the
    /// terms `known` from memory.
    pub(super) fn rebuilt<'b>(
        &self,
        results: &[usize],
        known: &[(usize, Operand<'b>)],
    ) -> Formula<'b>
    where
        'a: 'b,
    {
        let mut wanted: SmallVec<[bool; 8]> = SmallVec::from_elem(false, self.terms.len());
        for &result in results {
            wanted[result] = true;
        }
        for number in (0..self.terms.len()).rev() {
            let is_known = known.iter().any(|(term, _)| *term == number);
            if wanted[number] && !is_known {
                for &operand in self.terms[number].operands() {
                    wanted[operand as usize] = true;
                }
            }
        }
        let mut formula = Formula {
            terms: Vec::with_capacity(self.terms.len()),
            results: SmallVec::new(),
        };
        let mut numbers: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.terms.len());
        for (number, term) in self.terms.iter().enumerate() {
            if !wanted[number] {
                continue;
            }
            let mut term: Term<'b> = *term;
            if let Some((_, operand)) = known.iter().find(|(term, _)| *term == number) {
                term.of = Of::Array(*operand);
            }
            if let Of::Call(call, operands) = &mut term.of {
                for operand in &mut operands[..call.arity] {
                    *operand = numbers[*operand as usize] as u32;
                }
            }
            numbers[number] = formula.add(term);
        }
        formula.results = results.iter().map(|&result| numbers[result]).collect();
        formula
    }
}

impl Term<'_> {
    /// Returns the numbers of the terms that this term is a function of.
    #[inline]
    pub(super) fn operands(&self) -> &[u32] {
        match &self.of {
            Of::Call(call, operands) => &operands[..call.arity],
            _ => &[],
        }
    }
}
