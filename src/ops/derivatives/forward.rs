//! The derivatives of a formula, as terms.

use std::cell::RefCell;

use super::Tracked;
use super::joint_graph::{
    Contributions, JointGraph, JointNode, JointNodeKind, SavedValue, is_differentiable,
};
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
    joint: JointGraph,
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
        let (joint, numbers) = JointGraph::of(formula);
        let results = formula.results().iter();
        let tracked = tracked.into_iter();
        Self {
            joint,
            results: results.map(|&own| numbers[own] as usize).collect(),
            tracked: tracked
                .map(|(term, tracked)| (numbers[term as usize], tracked))
                .collect(),
        }
    }

    /// Returns a flag for each term: true if it is computed from a tracked operand.
    fn leads(&self) -> Vec<bool> {
        let mut leads = vec![false; self.joint.terms.len()];
        for (term, _) in &self.tracked {
            leads[*term as usize] = true;
        }
        for (number, term) in self.joint.terms.iter().enumerate() {
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
        seeds: impl FnOnce(&RefCell<JointGraph>) -> Result<Vec<(usize, u32)>>,
    ) -> Result<(JointGraph, Vec<Derived>)> {
        let terms = &self.joint.terms;
        let joint = RefCell::new(self.joint.clone());
        let leads = self.leads();
        let mut contributions = vec![Contributions::new(); terms.len()];
        let mut has_slope_zero = false;
        for (term, gradient) in seeds(&joint)? {
            contributions[term].push((gradient, None));
        }
        for number in (0..terms.len()).rev().filter(|&number| leads[number]) {
            let JointNodeKind::Call(call, _) = terms[number].of else {
                continue;
            };
            let own = &contributions[number];
            let Some((gradient, counts)) = joint.borrow_mut().sum_where_counted(own) else {
                continue;
            };
            let operands = operands(&terms[number]);
            let partials = partials(&joint, call, operands, [number as u32, gradient])?;
            for (place, (&operand, partial)) in operands.iter().zip(partials).enumerate() {
                let operand = operand as usize;
                let is_tracked = leads[operand] && is_differentiable(terms[operand].dtype);
                let Some(partial) = partial else {
                    has_slope_zero |= is_tracked;
                    continue;
                };
                if is_tracked {
                    let counts = joint.borrow_mut().counts(call, operands, (place, counts));
                    contributions[operand].push((partial, counts));
                }
            }
        }
        let derived = self.tracked.iter().filter_map(|&(term, tracked)| {
            let mut joint = joint.borrow_mut();
            let sum = joint.sum(&contributions[term as usize])?;
            Some(Derived {
                tracked,
                gradient: joint.converted(sum, terms[term as usize].dtype),
                wide: sum,
            })
        });
        let derived: Vec<Derived> = derived.collect();
        if has_slope_zero && derived.is_empty() {
            note_constants();
        }
        Ok((joint.into_inner(), derived))
    }

    /// Like [`derive`](Self::derive), from the gradients of the results that have one.
    #[track_caller]
    pub(super) fn derive_results(
        &self,
        has_gradient: impl Fn(usize) -> bool,
    ) -> Result<(JointGraph, Vec<Derived>)> {
        self.derive(|joint| {
            let mut joint = joint.borrow_mut();
            let mut seeds = Vec::new();
            for (number, &result) in self.results.iter().enumerate() {
                let JointNode { of, dtype } = self.joint.terms[result];
                if matches!(of, JointNodeKind::Call(..)) {
                    joint.terms[result].of = JointNodeKind::Saved(SavedValue::Result(number));
                }
                if is_differentiable(dtype) && has_gradient(number) {
                    let gradient =
                        joint.push(JointNodeKind::Saved(SavedValue::Gradient(number)), dtype);
                    seeds.push((result, joint.widened(gradient)));
                }
            }
            Ok(seeds)
        })
    }
}

/// Returns the terms that a term is a function of.
fn operands(term: &JointNode) -> &[u32] {
    match &term.of {
        JointNodeKind::Call(call, operands) => &operands[..call.arity],
        _ => &[],
    }
}
