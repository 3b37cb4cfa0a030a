//! Steps of elementwise expressions, and the formulas of their gradients.

use std::cell::RefCell;

use smallvec::SmallVec;

use super::graph::{Given, Graph, TermOf, is_float, zero};
use super::rules::partials;
use super::{AnyArray, Followed, Gradients, Pause, is_live, record_all};
use crate::array::{AxisSet, Buffer, Layout, Shape};
use crate::context::Device;
use crate::error::{AtCaller, Result};
use crate::ops::eval::evaluate_all;
use crate::ops::formula::{Formula, Of};
use crate::ops::host::{MOST_RESULTS, Results};
use crate::ops::reductions::sum_of;

/// An operand of a formula that a tape follows, and the term of its gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Derived {
    pub(super) followed: Followed,
    pub(super) gradient: u32,
}

/// What passes gradients back through a formula.
#[derive(Debug)]
pub(super) struct Derivation {
    pub(super) graph: Graph,
    pub(super) derived: Vec<Derived>,
    /// The operands of the formula that gradients are computed from, by their number; none where it is not needed.
    pub(super) saved: Vec<Option<AnyArray>>,
    /// What all broadcasts to.
    pub(super) shape: Shape,
}

/// The terms of `formula` that are arrays that a tape follows.
#[track_caller]
pub(super) fn followed_terms(formula: &Formula<'_>) -> Result<Vec<(u32, Followed)>> {
    let mut all = Vec::new();
    for (number, term) in (0..).zip(formula.terms()) {
        if let Of::Array(operand) = &term.of
            && let Some(followed) = Followed::of(operand.buffer, operand.layout)?
        {
            all.push((number, followed));
        }
    }
    Ok(all)
}

impl Derivation {
    /// Derives `formula`. `seeds` gives the gradients of its results, as terms that it appends.
    #[track_caller]
    pub(super) fn of(
        formula: &Formula<'_>,
        followed: &[(u32, Followed)],
        shape: &Shape,
        seeds: impl FnOnce(&RefCell<Graph>) -> Result<Vec<(usize, u32)>>,
    ) -> Result<Self> {
        let terms = formula.terms();
        let graph = RefCell::new(Graph::of(formula));
        let mut leads = vec![false; terms.len()];
        for (number, term) in terms.iter().enumerate() {
            let own = followed.iter().any(|(own, _)| *own as usize == number);
            leads[number] = own
                || term
                    .operands()
                    .iter()
                    .any(|&operand| leads[operand as usize]);
        }
        let mut gradients: Vec<Option<u32>> = vec![None; terms.len()];
        let add = |gradients: &mut Vec<Option<u32>>, term: usize, gradient: u32| {
            let sum = gradients[term].map_or(gradient, |sum| graph.borrow_mut().sum(sum, gradient));
            gradients[term] = Some(sum);
        };
        for (result, gradient) in seeds(&graph)? {
            add(&mut gradients, result, gradient);
        }
        for number in (0..terms.len()).rev().filter(|&number| leads[number]) {
            let (Of::Call(call, _), Some(gradient)) = (&terms[number].of, gradients[number]) else {
                continue;
            };
            let operands = terms[number].operands();
            let partials = partials(&graph, call, operands, [number as u32, gradient])?;
            for (&operand, partial) in operands.iter().zip(partials) {
                let (operand, Some(partial)) = (operand as usize, partial) else {
                    continue;
                };
                if leads[operand] && is_float(terms[operand].dtype) {
                    add(&mut gradients, operand, partial);
                }
            }
        }
        let derived = followed.iter().filter_map(|&(term, followed)| {
            gradients[term as usize].map(|gradient| Derived { followed, gradient })
        });
        let derived: Vec<Derived> = derived.collect();
        let graph = graph.into_inner();
        let saved = saved_operands(formula, &graph, &derived);
        Ok(Self {
            graph,
            derived,
            saved,
            shape: *shape,
        })
    }

    /// Whether anything of what a result is computed from is needed: what [`Given::Result`] with that number stands for.
    pub(super) fn needs_result(&self, number: usize) -> bool {
        let wanted = wanted(&self.graph, self.derived.iter().map(|own| own.gradient));
        let terms = self.graph.terms.iter().zip(&wanted);
        terms
            .filter(|(_, wanted)| **wanted)
            .any(|(term, _)| matches!(term.of, TermOf::Given(Given::Result(own)) if own == number))
    }

    /// The formula of these terms, over what was saved and what is `given` now.
    #[track_caller]
    pub(super) fn formula<'a>(
        &'a self,
        given: &dyn Fn(Given) -> Option<&'a AnyArray>,
        results: &[u32],
    ) -> Result<Formula<'a>> {
        let wanted = wanted(&self.graph, results.iter().copied());
        let mut formula = Formula::empty();
        let mut numbers = vec![0; self.graph.terms.len()];
        for (number, term) in self.graph.terms.iter().enumerate() {
            if !wanted[number] {
                continue;
            }
            let array = match term.of {
                TermOf::Operand(operand) => self.saved[operand].as_ref(),
                TermOf::Given(own) => given(own),
                TermOf::Scalar(_) | TermOf::Call(..) => None,
            };
            numbers[number] = match (array, term.of) {
                (Some(array), _) => formula.append_array(array.operand()),
                (None, TermOf::Scalar(bits)) => formula.append_scalar(term.dtype, bits),
                (None, TermOf::Call(call, operands)) => {
                    let operands = &operands[..call.arity];
                    let operands: SmallVec<[u32; 4]> =
                        operands.iter().map(|&own| numbers[own as usize]).collect();
                    formula.append_call(call, &operands)?
                }
                // The gradient of a result that nothing was computed from.
                (None, _) => {
                    let zero = zero(term.dtype).expect("gradients are floats");
                    formula.append_scalar(term.dtype, zero)
                }
            };
        }
        let results = results.iter().map(|&own| numbers[own as usize] as usize);
        formula.ask_for(results);
        Ok(formula)
    }

    /// Adds the gradients of all operands.
    #[track_caller]
    pub(super) fn pass_back<'a>(
        &'a self,
        device: &Device,
        given: &dyn Fn(Given) -> Option<&'a AnyArray>,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let is_whole = |own: &&Derived| {
            let layout = &own.followed.layout;
            *layout.shape() == self.shape && !layout.repeats()
        };
        let (whole, folded): (Vec<&Derived>, Vec<&Derived>) =
            self.derived.iter().partition(is_whole);
        for own in folded {
            let formula = self.formula(given, &[own.gradient])?;
            let axes = folded_axes(&self.shape, &own.followed.layout);
            let sum = sum_of(&formula, &self.shape, axes)?;
            gradients.add(own.followed, sum)?;
        }
        let mut computed = Vec::new();
        for own in whole {
            match self.graph.terms[own.gradient as usize].of {
                TermOf::Given(upstream)
                    if given(upstream).is_some_and(|own| *own.layout.shape() == self.shape) =>
                {
                    let upstream = given(upstream).map(AnyArray::share);
                    gradients.add(own.followed, upstream.expect("just seen"))?;
                }
                _ => computed.push(own),
            }
        }
        for some in computed.chunks(MOST_RESULTS) {
            let terms: Vec<u32> = some.iter().map(|own| own.gradient).collect();
            let formula = self.formula(given, &terms)?;
            let dtypes = formula
                .results()
                .iter()
                .map(|&own| formula.terms()[own].dtype);
            let dtypes: Vec<_> = dtypes.collect();
            let (buffers, layout) = evaluate_all(&formula, device, &self.shape)?;
            for ((own, buffer), dtype) in some.iter().zip(buffers).zip(dtypes) {
                let contribution = AnyArray {
                    buffer,
                    layout,
                    dtype,
                };
                gradients.add(own.followed, contribution)?;
            }
        }
        Ok(())
    }
}

/// The axes of `shape` along which what is read by `layout` stays the same element.
pub(super) fn folded_axes(shape: &Shape, layout: &Layout) -> AxisSet {
    let lead = shape.ndim() - layout.ndim();
    AxisSet::of_each(shape.ndim(), |axis| {
        let Some(own) = axis.checked_sub(lead) else {
            return true;
        };
        shape.dims()[axis] != layout.dims()[own]
            || (layout.dims()[own] > 1 && layout.strides()[own] == 0)
    })
}

/// Which terms `results` are computed from, these included.
fn wanted(graph: &Graph, results: impl Iterator<Item = u32>) -> Vec<bool> {
    let mut wanted = vec![false; graph.terms.len()];
    results.for_each(|result| wanted[result as usize] = true);
    for number in (0..wanted.len()).rev() {
        if let (true, TermOf::Call(call, operands)) = (wanted[number], graph.terms[number].of) {
            operands[..call.arity]
                .iter()
                .for_each(|&operand| wanted[operand as usize] = true);
        }
    }
    wanted
}

/// The operands of `formula` that the gradients are computed from.
#[track_caller]
fn saved_operands(
    formula: &Formula<'_>,
    graph: &Graph,
    derived: &[Derived],
) -> Vec<Option<AnyArray>> {
    let wanted = wanted(graph, derived.iter().map(|own| own.gradient));
    let arrays = formula.terms().iter().zip(wanted);
    let arrays = arrays.filter_map(|(term, wanted)| match &term.of {
        Of::Array(operand) => Some((operand, wanted)),
        _ => None,
    });
    let saved = arrays.map(|(operand, wanted)| {
        wanted.then(|| AnyArray {
            buffer: operand.buffer.share().with_node(None),
            layout: *operand.layout,
            dtype: operand.dtype,
        })
    });
    saved.collect()
}

/// What `compute` gives, the results of `formula` over `shape`, with the step that passes gradients back through it.
#[track_caller]
pub(in crate::ops) fn evaluated(
    formula: &Formula<'_>,
    shape: &Shape,
    compute: impl FnOnce() -> Result<(Results, Layout)>,
) -> Result<(Results, Layout)> {
    if !is_live() {
        return compute();
    }
    let followed = followed_terms(formula)?;
    if followed.is_empty() {
        return compute();
    }
    let results = formula.results();
    let derivation = Derivation::of(formula, &followed, shape, |graph| {
        let mut graph = graph.borrow_mut();
        let mut seeds = Vec::new();
        for (number, &result) in results.iter().enumerate() {
            let dtype = formula.terms()[result].dtype;
            if is_float(dtype) {
                if matches!(formula.terms()[result].of, Of::Call(..)) {
                    graph.terms[result].of = TermOf::Given(Given::Result(number));
                }
                let gradient = graph.push(TermOf::Given(Given::Gradient(number)), dtype);
                seeds.push((result, gradient));
            }
        }
        Ok(seeds)
    })
    .at_caller()?;
    let (buffers, layout) = {
        let _paused = Pause::begin();
        compute()?
    };
    if derivation.derived.is_empty() {
        return Ok((buffers, layout));
    }
    let dtypes: SmallVec<[_; 1]> = results
        .iter()
        .map(|&own| formula.terms()[own].dtype)
        .collect();
    let kept = |number: usize, buffer: &Buffer| {
        derivation.needs_result(number).then(|| AnyArray {
            buffer: buffer.share(),
            layout,
            dtype: dtypes[number],
        })
    };
    let kept: Vec<Option<AnyArray>> = buffers
        .iter()
        .enumerate()
        .map(|(number, buffer)| kept(number, buffer))
        .collect();
    let saved: Vec<Option<&AnyArray>> = derivation
        .saved
        .iter()
        .chain(&kept)
        .map(Option::as_ref)
        .collect();
    let results = buffers
        .into_iter()
        .zip(&dtypes)
        .map(|(buffer, &dtype)| (buffer, layout, dtype));
    let results: SmallVec<[_; 1]> = results.collect();
    let device = results[0].0.device().clone();
    let saved_bytes_of = saved
        .into_iter()
        .map(|array| array.map(AnyArray::share))
        .collect::<Vec<_>>();
    let saved: Vec<Option<&AnyArray>> = saved_bytes_of.iter().map(Option::as_ref).collect();
    let backward = Box::new(
        move |upstream: &[Option<AnyArray>], gradients: &mut Gradients| {
            let given = |given: Given| match given {
                Given::Result(number) => kept[number].as_ref(),
                Given::Gradient(number) => upstream[number].as_ref(),
            };
            derivation.pass_back(&device, &given, gradients)
        },
    );
    Ok((
        record_all(results, &saved, backward).into_iter().collect(),
        layout,
    ))
}
