//! Reductions, by name. Each new reduction needs a row.

use cachescope::{Element, Float};
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    match trial.op() {
        "logsumexp" | "logsumexp_axis" | "softmax" | "log_softmax" => {
            by_type!(trial, &element[..], floats: floats);
        }
        _ => by_type!(trial, &element[..], elements: some),
    }
}

/// Runs a reduction along the axis of the case, or, without an axis, of the whole array.
macro_rules! row {
    ($trial:ident, $x:ident, $whole:ident, $axis:ident) => {
        if $trial.op().ends_with("_axis") {
            let axis = $trial.axis(0);
            $trial.gives($x.$axis(axis))
        } else {
            $trial.gives($x.$whole())
        }
    };
}

fn elements<T>(trial: &mut Trial<'_>)
where
    T: Stored + Element<Sum: Stored, Mean: Stored>,
{
    let x = trial.input::<T>(0);
    match trial.op().trim_end_matches("_axis") {
        "sum" => row!(trial, x, sum, sum_axis),
        "mean" => row!(trial, x, mean, mean_axis),
        "max" => row!(trial, x, max, max_axis),
        "min" => row!(trial, x, min, min_axis),
        "argmax" => row!(trial, x, argmax, argmax_axis),
        "argmin" => row!(trial, x, argmin, argmin_axis),
        "prod" => row!(trial, x, prod, prod_axis),
        "var" => row!(trial, x, var, var_axis),
        "std" => row!(trial, x, std, std_axis),
        "norm" => row!(trial, x, norm, norm_axis),
        "all" => row!(trial, x, all, all_axis),
        "any" => row!(trial, x, any, any_axis),
        "cumsum" => trial.gives(x.cumsum(trial.axis(0))),
        _ => {}
    }
}

fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    match trial.op().trim_end_matches("_axis") {
        "logsumexp" => row!(trial, x, logsumexp, logsumexp_axis),
        "softmax" => trial.gives(x.softmax(trial.axis(0))),
        "log_softmax" => trial.gives(x.log_softmax(trial.axis(0))),
        _ => {}
    }
}
