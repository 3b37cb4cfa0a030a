//! The subscripts of an `einsum`: the label of each axis, and the length of each label.

use smallvec::SmallVec;

use crate::array::{MAX_RANK, Shape};
use crate::error::{Error, ErrorCode, Result};

/// The number of a letter, or of an axis of an ellipsis. `A` to `Z` have the lowest numbers, then
/// `a` to `z`, then the axes of the ellipsis from the left.
pub(super) type Label = u8;

/// One label for each axis.
pub(super) type Labels = SmallVec<[Label; MAX_RANK]>;

/// A set of labels, as a bit mask.
pub(super) type LabelSet = u64;

/// The label after the last letter: the first axis of an ellipsis of [`MAX_RANK`] axes.
const ELLIPSIS: u8 = 52;

const LABELS: usize = ELLIPSIS as usize + MAX_RANK;

/// The parsed subscripts, with the length of each label.
#[derive(Debug)]
pub(super) struct Subscripts {
    /// The labels of each operand.
    pub(super) operands: SmallVec<[Labels; 4]>,
    pub(super) output: Labels,
    lengths: [usize; LABELS],
}

impl Subscripts {
    /// # Errors
    ///
    /// [`Subscripts`](ErrorCode::Subscripts) if `text` is not an `einsum` of as many operands as
    /// `shapes`. [`Labels`](ErrorCode::Labels) if `text` does not match the shapes.
    #[track_caller]
    pub(super) fn new(text: &str, shapes: &[&Shape]) -> Result<Self> {
        let (inputs, output) = match text.split_once("->") {
            Some((inputs, output)) => (inputs, Some(Term::parse(output, text)?)),
            None => (text, None),
        };
        let mut terms: SmallVec<[Term; 4]> = SmallVec::new();
        for term in inputs.split(',') {
            terms.push(Term::parse(term, text)?);
        }
        if terms.len() != shapes.len() {
            let (named, given) = (terms.len(), shapes.len());
            let operands = counted(named, "operand", "operands");
            return Err(invalid(format!(
                "\"{text}\" names {named} {operands}, expected {given}"
            )));
        }
        let mut operands: SmallVec<[Labels; 4]> = SmallVec::new();
        for (number, (term, shape)) in terms.iter().zip(shapes).enumerate() {
            let Some(labels) = term.labels(shape.ndim()) else {
                return Err(wrong_rank(text, number, term, shape));
            };
            operands.push(labels);
        }
        let mut lengths = Lengths::default();
        for (number, labels) in operands.iter().enumerate() {
            lengths.add(number, labels, shapes)?;
        }
        let output = match output {
            Some(term) => lengths.output(&term, text)?,
            None => implicit(&operands),
        };
        Ok(Self {
            operands,
            output,
            lengths: lengths.of,
        })
    }

    /// Returns the length of a label's axes. Axes of length 1 broadcast to this length.
    pub(super) fn length(&self, label: Label) -> usize {
        self.lengths[usize::from(label)]
    }

    /// Returns the number of elements of an array with these labels.
    pub(super) fn count(&self, labels: LabelSet) -> f64 {
        members(labels)
            .map(|label| self.length(label) as f64)
            .product()
    }
}

/// Returns the labels of a set, in ascending order.
pub(super) fn members(mut set: LabelSet) -> impl Iterator<Item = Label> {
    std::iter::from_fn(move || {
        let label = (set != 0).then(|| set.trailing_zeros() as Label);
        set &= set.wrapping_sub(1);
        label
    })
}

pub(super) fn set_of(labels: &[Label]) -> LabelSet {
    labels.iter().fold(0, |set, &label| set | 1 << label)
}

/// The letters of one operand or of the output, as written.
#[derive(Debug)]
struct Term {
    before: Labels,
    after: Labels,
    has_ellipsis: bool,
}

impl Term {
    #[track_caller]
    fn parse(term: &str, text: &str) -> Result<Self> {
        let (before, after) = match term.split_once("...") {
            Some((before, after)) => (before, Some(after)),
            None => (term, None),
        };
        Ok(Self {
            before: letters(before, text)?,
            after: letters(after.unwrap_or_default(), text)?,
            has_ellipsis: after.is_some(),
        })
    }

    fn letters(&self) -> usize {
        self.before.len() + self.after.len()
    }

    /// Returns the labels of an operand of rank `rank`. The ellipsis matches the axes without
    /// letters.
    fn labels(&self, rank: usize) -> Option<Labels> {
        let rest = rank.checked_sub(self.letters())?;
        (rest == 0 || self.has_ellipsis).then(|| self.with_ellipsis(rest))
    }

    /// Returns the labels if the ellipsis matches `axes` axes.
    fn with_ellipsis(&self, axes: usize) -> Labels {
        let end = ELLIPSIS + MAX_RANK as u8;
        let middle = end - axes as u8..end;
        (self.before.iter().copied())
            .chain(middle)
            .chain(self.after.iter().copied())
            .collect()
    }
}

#[track_caller]
fn letters(part: &str, text: &str) -> Result<Labels> {
    let mut labels = Labels::new();
    for character in part.chars() {
        match character {
            'A'..='Z' => labels.push(character as u8 - b'A'),
            'a'..='z' => labels.push(character as u8 - b'a' + 26),
            ' ' => {}
            '.' => {
                return Err(invalid(format!(
                    "\"{text}\" has a '.' outside of \"...\", expected at most one \"...\" for \
                     each operand"
                )));
            }
            _ => {
                return Err(invalid(format!(
                    "\"{text}\" has '{character}', expected letters, ',', \"...\" and at most one \
                     \"->\""
                )));
            }
        }
    }
    Ok(labels)
}

/// Returns the implicit output: the axes of the ellipsis, then the sorted letters that occur once.
fn implicit(operands: &[Labels]) -> Labels {
    let (mut once, mut again) = (0, 0);
    for &label in operands.iter().flatten() {
        again |= once & 1 << label;
        once |= 1 << label;
    }
    let is_letter = |label: &Label| *label < ELLIPSIS;
    let axes = members(once).filter(|label| !is_letter(label));
    axes.chain(members(once & !again).filter(is_letter))
        .collect()
}

/// The length of each label, and the operand that determines the length.
struct Lengths {
    of: [usize; LABELS],
    said_by: [u8; LABELS],
    known: LabelSet,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            of: [1; LABELS],
            said_by: [0; LABELS],
            known: 0,
        }
    }
}

impl Lengths {
    #[track_caller]
    fn add(&mut self, number: usize, labels: &[Label], shapes: &[&Shape]) -> Result<()> {
        let dims = shapes[number].dims();
        for (axis, (&label, &length)) in labels.iter().zip(dims).enumerate() {
            let at = usize::from(label);
            let first = labels.iter().position(|&other| other == label);
            if let Some(first) = first.filter(|&first| first < axis)
                && dims[first] != length
            {
                return Err(mismatch(format!(
                    "{} has the lengths {} and {length} in operand {number} of shape {}",
                    name(label),
                    dims[first],
                    shapes[number]
                )));
            }
            let known = self.of[at];
            if known == 1 {
                (self.of[at], self.said_by[at]) = (length, number as u8);
            } else if length != known && length != 1 {
                let other = usize::from(self.said_by[at]);
                return Err(mismatch(format!(
                    "{} has length {known} in operand {other} of shape {} and length {length} in operand {number} of \
                     shape {}",
                    name(label),
                    shapes[other],
                    shapes[number]
                )));
            }
            self.known |= 1 << label;
        }
        Ok(())
    }

    #[track_caller]
    fn output(&self, term: &Term, text: &str) -> Result<Labels> {
        let axes = (self.known >> ELLIPSIS).count_ones() as usize;
        if axes > 0 && !term.has_ellipsis {
            let noun = counted(axes, "axis", "axes");
            return Err(invalid(format!(
                "the output of \"{text}\" lacks \"...\", which has {axes} {noun} in the operands: \
                 write it"
            )));
        }
        let mut seen = 0;
        for &label in term.before.iter().chain(&term.after) {
            let bit = 1 << label;
            if self.known & bit == 0 {
                let name = name(label);
                return Err(invalid(format!(
                    "the output of \"{text}\" has {name}, which no operand has"
                )));
            }
            if seen & bit != 0 {
                let name = name(label);
                return Err(invalid(format!(
                    "the output of \"{text}\" has {name} twice"
                )));
            }
            seen |= bit;
        }
        Ok(term.with_ellipsis(axes))
    }
}

/// Returns the singular or the plural of a noun, by `count`.
fn counted(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

fn name(label: Label) -> String {
    match label {
        0..26 => format!("the letter {}", char::from(b'A' + label)),
        26..ELLIPSIS => format!("the letter {}", char::from(b'a' + label - 26)),
        _ => "an axis of \"...\"".to_owned(),
    }
}

#[cold]
#[track_caller]
fn wrong_rank(text: &str, number: usize, term: &Term, shape: &Shape) -> Error {
    let least = if term.has_ellipsis { "at least " } else { "" };
    let letters = term.letters();
    let axes = counted(letters, "axis", "axes");
    mismatch(format!(
        "\"{text}\" names {least}{letters} {axes} of operand {number}, which has the shape {shape} of rank {}",
        shape.ndim()
    ))
}

#[cold]
#[track_caller]
fn invalid(text: String) -> Error {
    Error::new(ErrorCode::Subscripts, format!("einsum: {text}"))
}

#[cold]
#[track_caller]
fn mismatch(text: String) -> Error {
    Error::new(ErrorCode::Labels, format!("einsum: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        letters(text, text).unwrap()
    }

    #[test]
    fn outputs_that_are_not_named_are_sorted() {
        let shapes: [&Shape; 2] = [&[2, 3].into(), &[3, 4].into()];
        let subscripts = Subscripts::new("bA,Ac", &shapes).unwrap();
        assert_eq!(subscripts.output, labels("bc"));
        let subscripts = Subscripts::new("cA,A b", &shapes).unwrap();
        assert_eq!(subscripts.output, labels("bc"));
    }

    #[test]
    fn axes_of_an_ellipsis_are_aligned_on_the_right() {
        let shapes: [&Shape; 2] = [&[5, 1, 2, 3].into(), &[4, 3].into()];
        let subscripts = Subscripts::new("...ij,...j", &shapes).unwrap();
        let output = &subscripts.output;
        let lengths: Vec<usize> = output.iter().map(|&l| subscripts.length(l)).collect();
        assert_eq!(lengths, [5, 4, 2]);
    }

    #[test]
    fn members_are_those_of_the_set() {
        let set = set_of(&labels("aZc"));
        assert_eq!(members(set).collect::<Labels>(), labels("Zac"));
    }
}
