//! Masks, indices, counts, order statistics, running products and bitwise operations, by name.

use cachescope::{Element, Float, Integer};
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    match trial.op() {
        "xor" | "shl" | "shr" | "pow" | "powi" => crate::reference::elementwise::run(trial),
        "bincount" => by_type!(trial, &element[..], integers: i8 i64 u16 u32),
        "median" | "quantile" | "histogram" => by_type!(trial, &element[..], floats: floats),
        _ => by_type!(trial, &element[..], elements: some),
    }
}

fn elements<T: Stored + Element<Sum: Stored>>(trial: &mut Trial<'_>) {
    let mut x = trial.input::<T>(0);
    match trial.op() {
        "nonzero" => trial.gives(x.nonzero()),
        "select_by" => trial.gives(x.select_by(&trial.input(1))),
        "masked_assign" => {
            let outcome = x.masked_assign(&trial.input(1), trial.input::<T>(2));
            trial.gives(outcome.map(|()| x));
        }
        "scatter" => {
            let outcome = x.scatter(&trial.input(1), &trial.input(2), trial.axis(0));
            trial.gives(outcome.map(|()| x));
        }
        "searchsorted" => trial.gives(x.searchsorted(&trial.input(1))),
        "unique" => trial.gives(x.unique()),
        "cumprod" => trial.gives(x.cumprod(trial.axis(0))),
        _ => {}
    }
}

fn integers<T: Stored + Integer>(trial: &mut Trial<'_>) {
    trial.gives(trial.input::<T>(0).bincount(trial.count(0)));
}

fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    match trial.op() {
        "median" => trial.gives(x.median(trial.axis(0))),
        "quantile" => trial.gives(x.quantile(trial.arg(0), trial.axis(1))),
        "histogram" => trial.gives_both(x.histogram(trial.count(0))),
        _ => {}
    }
}
