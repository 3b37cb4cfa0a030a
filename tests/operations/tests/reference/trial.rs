//! A case that is tried with a table of operations, and the results of all cases.

use std::collections::BTreeSet;

use cachescope::{Array, Device, ErrorKind, Result};

use crate::reference::book::{Book, Case};
use crate::reference::stored::Stored;

/// The maximum number of failures that are printed.
const SHOWN: usize = 25;

/// A running case.
pub(crate) struct Trial<'a> {
    book: &'a Book,
    case: &'a Case,
    /// The verdict, or `None` until a table has the operation. An error describes a difference.
    verdict: Option<Result<(), String>>,
}

impl Trial<'_> {
    pub(crate) fn op(&self) -> &str {
        &self.case.op
    }

    /// Returns the element type of the input at `position`.
    pub(crate) fn element(&self, position: usize) -> &str {
        &self.case.inputs[position].element
    }

    /// Returns the element type of the first output.
    pub(crate) fn output_element(&self) -> &str {
        &self.case.outputs[0].element
    }

    pub(crate) fn count_of_inputs(&self) -> usize {
        self.case.inputs.len()
    }

    pub(crate) fn input<T: Stored>(&self, position: usize) -> Array<T> {
        self.book.array(&self.case.inputs[position])
    }

    pub(crate) fn inputs<T: Stored>(&self) -> Vec<Array<T>> {
        (0..self.case.inputs.len())
            .map(|position| self.input(position))
            .collect()
    }

    /// Returns the plain number at `position`.
    pub(crate) fn arg<T: Stored>(&self, position: usize) -> T {
        T::of(self.case.args[position])
    }

    pub(crate) fn axis(&self, position: usize) -> isize {
        self.case.args[position] as isize
    }

    pub(crate) fn args(&self) -> Vec<isize> {
        self.case
            .args
            .iter()
            .map(|&number| number as isize)
            .collect()
    }

    pub(crate) fn count(&self, position: usize) -> usize {
        self.case.args[position] as usize
    }

    pub(crate) fn counts(&self) -> Vec<usize> {
        self.case
            .args
            .iter()
            .map(|&number| number as usize)
            .collect()
    }

    /// Compares a result with the expected result of the case.
    pub(crate) fn gives<T: Stored>(&mut self, result: Result<Array<T>>) {
        self.decide(result, |trial, array| trial.judge(0, &array));
    }

    /// Compares several results with the expected results of the case.
    pub(crate) fn gives_all<T: Stored>(&mut self, results: Result<Vec<Array<T>>>) {
        let wanted = self.case.outputs.len();
        self.decide(results, |trial, arrays| {
            if arrays.len() != wanted {
                return Err(format!("{} arrays instead of {wanted}", arrays.len()));
            }
            let mut arrays = arrays.iter().enumerate();
            arrays.try_for_each(|(position, array)| trial.judge(position, array))
        });
    }

    /// Compares two results of different types with the expected results of the case.
    pub(crate) fn gives_both<T: Stored, U: Stored>(
        &mut self,
        results: Result<(Array<T>, Array<U>)>,
    ) {
        self.decide(results, |trial, (first, second)| {
            trial.judge(0, &first)?;
            trial.judge(1, &second)
        });
    }

    fn decide<R>(&mut self, result: Result<R>, judge: impl Fn(&Self, R) -> Result<(), String>) {
        self.verdict = match result {
            Ok(result) => Some(judge(self, result)),
            // An unsupported operation counts as missing.
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => Some(Err(error.to_string())),
        };
    }

    fn judge<T: Stored>(&self, position: usize, array: &Array<T>) -> Result<(), String> {
        let place = &self.case.outputs[position];
        if T::IN_FILES != place.element {
            return Err(format!(
                "elements of {} instead of {}",
                T::IN_FILES,
                place.element
            ));
        }
        if array.shape() != place.shape() {
            return Err(format!(
                "the shape {:?} instead of {:?}",
                array.shape(),
                place.shape()
            ));
        }
        let (got, wanted) = (array.to_vec().unwrap(), self.book.slice::<T>(place));
        for (index, (&got, &wanted)) in got.iter().zip(wanted).enumerate() {
            if !self.agree(got, wanted) {
                let apart = got.apart(wanted);
                return Err(format!(
                    "{got:?} instead of {wanted:?} at {index}, {apart} ulps apart"
                ));
            }
        }
        Ok(())
    }

    fn agree<T: Stored>(&self, got: T, wanted: T) -> bool {
        if self.case.zeros && wanted == T::zero() && got == T::zero() {
            return got.below_zero() == wanted.below_zero();
        }
        let distance = got.distance(wanted);
        let slack = self.case.slack.max(self.slack_of_device(T::IN_FILES));
        got.apart(wanted) <= self.case.ulps.max(self.ulps_of_device(T::IN_FILES))
            || (slack > 0.0 && distance <= slack)
    }

    /// Returns the absolute tolerance of the device's functions, or 0 if the host's tolerance
    /// suffices. The tensor cores of CUDA devices multiply the weights of an attention, rounded to
    /// halves. The weights of a query sum to 1, and the values of all cases are at most 2. The
    /// result is rounded, too.
    fn slack_of_device(&self, element: &str) -> f64 {
        if !Device::current().to_string().starts_with("cuda") {
            return 0.0;
        }
        match (self.op(), element) {
            ("attention", "f16") => 2.0 * (0.5f64.powi(12) + 0.5f64.powi(12)),
            ("attention", "bf16") => 2.0 * (0.5f64.powi(9) + 0.5f64.powi(9)),
            _ => 0.0,
        }
    }

    /// Returns the tolerance of the device's functions, in units in the last place, or 0 if the
    /// host's tolerance suffices. The CUDA programming guide, "Mathematical functions", gives 2 for
    /// `expf`, 4 for `erfcf` and 5 for `erfc`. An error of one unit in a factor changes the product
    /// by up to two units. Every rounding adds up to one unit. (All other bounds equal or exceed
    /// the guide's bound for one function.)
    fn ulps_of_device(&self, element: &str) -> u64 {
        if !Device::current().to_string().starts_with("cuda") {
            return 0;
        }
        match (self.op(), element) {
            // The computation is an exponential, a sum and a quotient.
            ("sigmoid", "f32" | "f64") => 2 * 2 + 2,
            // Far below 0, the computation is the square of an exponential, and two products.
            ("silu", "f32" | "f64") => 2 * (2 + 2) + 2,
            // The computation has three further products.
            ("gelu", "f32") => 2 * 4 + 3,
            ("gelu", "f64") => 2 * 5 + 3,
            _ => 0,
        }
    }

    /// Returns a description of the case, with the shapes of the arrays before views are made.
    fn describe(&self) -> String {
        let inputs = self
            .case
            .inputs
            .iter()
            .map(|place| format!("{} {:?}", place.element, place.shape()));
        let inputs: Vec<String> = inputs.collect();
        format!(
            "{}({}; {:?})",
            self.case.op,
            inputs.join(", "),
            self.case.args
        )
    }
}

/// The results of the cases of a file.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) failures: Vec<String>,
    /// The operations and types that have no row in the table.
    pub(crate) unknown: BTreeSet<String>,
}

impl Outcome {
    pub(crate) fn try_case(&mut self, book: &Book, case: &Case, table: fn(&mut Trial<'_>)) {
        let mut trial = Trial {
            book,
            case,
            verdict: None,
        };
        table(&mut trial);
        match &trial.verdict {
            Some(Ok(())) => {}
            Some(Err(difference)) => self
                .failures
                .push(format!("  {}: {difference}", trial.describe())),
            None => {
                self.unknown
                    .insert(format!("{} of {}", case.op, case.inputs[0].element));
            }
        }
    }

    /// Returns the failures. The first failure of each pair of operation and type precedes all
    /// further failures.
    pub(crate) fn shown(&self) -> String {
        let mut seen = BTreeSet::new();
        let kind = |line: &str| line.split(['[', '#']).next().unwrap_or_default().to_owned();
        let (first, rest): (Vec<_>, Vec<_>) = self
            .failures
            .iter()
            .partition(|line| seen.insert(kind(line)));
        let lines: Vec<String> = first.into_iter().chain(rest).take(SHOWN).cloned().collect();
        lines.join("\n")
    }
}
