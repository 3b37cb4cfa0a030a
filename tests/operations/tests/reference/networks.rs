//! Sums of products and building blocks of neural networks, by name. Each new operation needs a
//! row.

use cachescope::{Array, Float, Numeric, attention, einsum};
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    match trial.op() {
        "cross_entropy" | "layer_norm" | "rms_norm" | "attention" => {
            by_type!(trial, &element[..], floats: floats);
        }
        _ => by_type!(trial, &element[..], numbers: numbers),
    }
}

fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let operands = trial.inputs::<T>();
    if let Some(subscripts) = trial.op().strip_prefix("einsum ") {
        let subscripts = subscripts.to_owned();
        let result = match &operands[..] {
            [x] => einsum(&subscripts, (x,)),
            [x, y] => einsum(&subscripts, (x, y)),
            [x, y, z] => einsum(&subscripts, (x, y, z)),
            several => einsum(&subscripts, &several.iter().collect::<Vec<_>>()[..]),
        };
        return trial.gives(result);
    }
    if trial.op() == "kron" {
        trial.gives(operands[0].kron(&operands[1]));
    }
}

fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    let more = |trial: &Trial<'_>, position| -> Array<T> { trial.input(position) };
    match trial.op() {
        "cross_entropy" => trial.gives(x.cross_entropy(&trial.input::<i64>(1))),
        "layer_norm" => {
            let (weight, bias) = (more(trial, 1), more(trial, 2));
            trial.gives(x.layer_norm(&weight, &bias, trial.arg(0)));
        }
        "rms_norm" => trial.gives(x.rms_norm(&more(trial, 1), trial.arg(0))),
        "attention" => {
            let (k, v) = (more(trial, 1), more(trial, 2));
            trial.gives(attention(&x, &k, &v, trial.axis(0) == 1));
        }
        _ => {}
    }
}
