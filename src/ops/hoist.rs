//! Loop-invariant code motion: computes once what a broadcast would compute for each of its
//! elements.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::eval::evaluate;
use super::formula::{Formula, Of};
use super::tree::Operand;
use crate::array::{Buffer, DType, Layout, Shape};
use crate::context::Device;
use crate::error::Result;

/// Terms that are computed into memory of their own before the rest of the formula.
#[derive(Debug)]
pub(super) struct Hoisted(SmallVec<[(usize, DType, Buffer, Layout); 1]>);

/// The least number of function values that must be saved to justify the memory and the pass, on
/// the host and on a GPU. On the host, a pass takes as long as some thousand values; on a GPU, as a
/// launch, in which it computes some million.
const LEAST_SAVED: [usize; 2] = [1 << 13, 1 << 22];

impl Hoisted {
    /// Computes the terms that `formula` repeats over `shape`, which it broadcasts to, into memory
    /// of the thread's scope.
    #[track_caller]
    pub(super) fn of(formula: &Formula<'_>, device: &Device, shape: &Shape) -> Result<Self> {
        let mut hoisted = SmallVec::new();
        let on_gpu = device.backend().cuda().is_some();
        for term in repeated(
            formula,
            shape.checked_len()?,
            LEAST_SAVED[usize::from(on_gpu)],
        ) {
            let part = formula.rebuilt(&[term], &[]);
            let (buffer, layout) = evaluate(&part, device, &part.first().shape)?;
            hoisted.push((term, part.first().dtype, buffer, layout));
        }
        Ok(Self(hoisted))
    }

    /// Returns `formula` with the computed terms as operands.
    pub(super) fn apply<'a, 'b>(&'b self, formula: &'a Formula<'b>) -> Cow<'a, Formula<'b>> {
        if self.0.is_empty() {
            return Cow::Borrowed(formula);
        }
        let known: SmallVec<[(usize, Operand<'b>); 1]> = (self.0.iter())
            .map(|(term, dtype, buffer, layout)| {
                let (buffer, layout, dtype) = (buffer, layout, *dtype);
                (
                    *term,
                    Operand {
                        buffer,
                        layout,
                        dtype,
                    },
                )
            })
            .collect();
        Cow::Owned(formula.rebuilt(formula.results(), &known))
    }
}

/// Returns the largest terms whose values are each read several times over `count` elements, if at
/// least `least_saved` values of functions are saved.
fn repeated(formula: &Formula<'_>, count: usize, least_saved: usize) -> SmallVec<[usize; 1]> {
    let mut found = SmallVec::new();
    if count < least_saved / 16 {
        return found;
    }
    let terms = formula.terms();
    // The most elements that a term is read for. A term's readers come after it.
    let mut read_for: SmallVec<[usize; 8]> = SmallVec::from_elem(0, terms.len());
    for &result in formula.results() {
        read_for[result] = count;
    }
    for (number, term) in terms.iter().enumerate().rev() {
        let Of::Call(..) = term.of else { continue };
        let Ok(own) = term.shape.checked_len() else {
            continue;
        };
        let repeats = own > 0 && own.saturating_mul(2) <= read_for[number];
        if repeats {
            let saved = calls_of(formula, number).saturating_mul(read_for[number] - own);
            if saved >= least_saved {
                found.push(number);
                continue;
            }
        }
        // A term that is not hoisted is computed as often as it is read.
        for &operand in term.operands() {
            let operand = operand as usize;
            read_for[operand] = read_for[operand].max(read_for[number]);
        }
    }
    found
}

/// Returns the number of functions in the term `number`.
fn calls_of(formula: &Formula<'_>, number: usize) -> usize {
    let mut wanted: SmallVec<[bool; 8]> = SmallVec::from_elem(false, number + 1);
    wanted[number] = true;
    let mut calls = 0;
    for term in (0..=number).rev() {
        if wanted[term] && matches!(formula.terms()[term].of, Of::Call(..)) {
            calls += 1;
            let operands = formula.terms()[term].operands();
            operands
                .iter()
                .for_each(|&operand| wanted[operand as usize] = true);
        }
    }
    calls
}
