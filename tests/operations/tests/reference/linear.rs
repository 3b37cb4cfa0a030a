//! Products, by name. Each new product needs a row.

use cachescope::Numeric;
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    by_type!(trial, &element[..], numbers: numbers);
}

fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let (x, y) = (trial.input::<T>(0), trial.input::<T>(1));
    match trial.op() {
        "matmul" => trial.gives(x.matmul(&y)),
        "dot" => trial.gives(x.dot(&y)),
        "outer" => trial.gives(x.outer(&y)),
        _ => {}
    }
}
