//! The derivatives of a formula, as terms.

use std::cell::RefCell;

use super::Tracked;
use super::graph::{Contributions, Given, Graph, Term, TermOf, is_differentiable};
use super::rules::partials;
use super::tape::note_constants;
use crate::error::Result;
use crate::ops::formula::{Formula, Of};

/// A tracked operand of a formula, and the terms of its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Derived {
    pub(super) tracked: Tracked,
    /// The gradient in the operand's type.
    pub(super) gradient: u32,
    /// The gradient in the type that it is computed in, in which it is also summed.
    pub(super) wide: u32,
}

/// A formula with tracked operands, without its arrays.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    graph: Graph,
    /// The terms of the formula's results.
    pub(super) results: Vec<usize>,
    tracked: Vec<(u32, Tracked)>,
}

/// Returns the terms of `formula` that are tracked arrays.
#[track_caller]
pub(super) fn tracked_terms(formula: &Formula<'_>) -> Result<Vec<(u32, Tracked)>> {
    let mut all = Vec::new();
    for (number, term) in (0..).zip(formula.terms()) {
        if let Of::Array(operand) = &term.of
            && let Some(tracked) = Tracked::of(operand.buffer, operand.layout)?
        {
            all.push((number, tracked));
        }
    }
    Ok(all)
}

impl Forward {
    pub(super) fn of(formula: &Formula<'_>, tracked: Vec<(u32, Tracked)>) -> Self {
        let (graph, numbers) = Graph::of(formula);
        let results = formula.results().iter();
        let tracked = tracked.into_iter();
        Self {
            graph,
            results: results.map(|&own| numbers[own] as usize).collect(),
            tracked: tracked
                .map(|(term, tracked)| (numbers[term as usize], tracked))
                .collect(),
        }
    }

    /// Returns a flag for each term: true if it is computed from a tracked operand.
    fn leads(&self) -> Vec<bool> {
        let mut leads = vec![false; self.graph.terms.len()];
        for (term, _) in &self.tracked {
            leads[*term as usize] = true;
        }
        for (number, term) in self.graph.terms.iter().enumerate() {
            let own = operands(term)
                .iter()
                .any(|&operand| leads[operand as usize]);
            leads[number] |= own;
        }
        leads
    }

    /// Returns the graph of the gradients of the tracked operands. `seeds` returns terms, and for
    /// each the term of its gradient, which it appends. All gradients are in the type of
    /// [`computed_in`](super::graph::computed_in), until the last step of each operand.
    #[track_caller]
    pub(super) fn derive(
        &self,
        seeds: impl FnOnce(&RefCell<Graph>) -> Result<Vec<(usize, u32)>>,
    ) -> Result<(Graph, Vec<Derived>)> {
        let terms = &self.graph.terms;
        let graph = RefCell::new(self.graph.clone());
        let leads = self.leads();
        let mut contributions = vec![Contributions::new(); terms.len()];
        let mut has_slope_zero = false;
        for (term, gradient) in seeds(&graph)? {
            contributions[term].push((gradient, None));
        }
        for number in (0..terms.len()).rev().filter(|&number| leads[number]) {
            let TermOf::Call(call, _) = terms[number].of else {
                continue;
            };
            let own = &contributions[number];
            let Some((gradient, counts)) = graph.borrow_mut().sum_where_counted(own) else {
                continue;
            };
            let operands = operands(&terms[number]);
            let partials = partials(&graph, call, operands, [number as u32, gradient])?;
            for (place, (&operand, partial)) in operands.iter().zip(partials).enumerate() {
                let operand = operand as usize;
                let is_tracked = leads[operand] && is_differentiable(terms[operand].dtype);
                let Some(partial) = partial else {
                    has_slope_zero |= is_tracked;
                    continue;
                };
                if is_tracked {
                    let counts = graph.borrow_mut().counts(call, operands, (place, counts));
                    contributions[operand].push((partial, counts));
                }
            }
        }
        let derived = self.tracked.iter().filter_map(|&(term, tracked)| {
            let mut graph = graph.borrow_mut();
            let sum = graph.sum(&contributions[term as usize])?;
            Some(Derived {
                tracked,
                gradient: graph.converted(sum, terms[term as usize].dtype),
                wide: sum,
            })
        });
        let derived: Vec<Derived> = derived.collect();
        if has_slope_zero && derived.is_empty() {
            note_constants();
        }
        Ok((graph.into_inner(), derived))
    }

    /// Like [`derive`](Self::derive), from the gradients of the results that have one.
    #[track_caller]
    pub(super) fn derive_results(
        &self,
        has_gradient: impl Fn(usize) -> bool,
    ) -> Result<(Graph, Vec<Derived>)> {
        self.derive(|graph| {
            let mut graph = graph.borrow_mut();
            let mut seeds = Vec::new();
            for (number, &result) in self.results.iter().enumerate() {
                let Term { of, dtype } = self.graph.terms[result];
                if matches!(of, TermOf::Call(..)) {
                    graph.terms[result].of = TermOf::Given(Given::Result(number));
                }
                if is_differentiable(dtype) && has_gradient(number) {
                    let gradient = graph.push(TermOf::Given(Given::Gradient(number)), dtype);
                    seeds.push((result, graph.widened(gradient)));
                }
            }
            Ok(seeds)
        })
    }
}

/// Returns the terms that a term is a function of.
fn operands(term: &Term) -> &[u32] {
    match &term.of {
        TermOf::Call(call, operands) => &operands[..call.arity],
        _ => &[],
    }
}
