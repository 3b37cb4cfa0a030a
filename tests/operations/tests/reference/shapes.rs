//! Views and copies, by name. Each new operation needs a row.

use cachescope::ndarray::SliceInfoElem;
use cachescope::{Element, Numeric, concat, stack};
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    // Labels are `i64` and are converted to any type.
    let element = match trial.op() {
        "one_hot" => trial.output_element().to_owned(),
        _ => trial.element(0).to_owned(),
    };
    match trial.op() {
        "scatter_add" => by_type!(trial, &element[..], numbers: f32 f64 f16 bf16 i16 i64 u16 u32),
        "one_hot" => by_type!(trial, &element[..], labels: some),
        _ => by_type!(trial, &element[..], elements: some),
    }
}

fn elements<T: Stored + Element>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    let indices = |trial: &Trial<'_>| trial.input::<i64>(1);
    match trial.op() {
        "reshape" => trial.gives(x.reshape(trial.counts())),
        "flatten" => trial.gives(x.flatten()),
        "transpose" => trial.gives(x.transpose()),
        "permute" => trial.gives(x.permute(&trial.counts())),
        "swap_axes" => trial.gives(x.swap_axes(trial.axis(0), trial.axis(1))),
        "unsqueeze" => trial.gives(x.unsqueeze(trial.axis(0))),
        "squeeze" => trial.gives(x.squeeze(trial.axis(0))),
        "broadcast_to" => trial.gives(x.broadcast_to(trial.counts())),
        "slice" => trial.gives(x.slice(selection(&trial.args()))),
        "flip" => trial.gives(x.flip(trial.axis(0))),
        "take" => trial.gives(x.take(&indices(trial), trial.axis(0))),
        "concat" => {
            let arrays = trial.inputs::<T>();
            trial.gives(concat(&arrays.iter().collect::<Vec<_>>(), trial.axis(0)));
        }
        "stack" => {
            let arrays = trial.inputs::<T>();
            trial.gives(stack(&arrays.iter().collect::<Vec<_>>(), trial.axis(0)));
        }
        "split" => trial.gives_all(x.split(trial.count(0), trial.axis(1))),
        "gather" => trial.gives(x.gather(&indices(trial), trial.axis(0))),
        "repeat" => trial.gives(x.repeat(trial.count(0), trial.axis(1))),
        "pad" => {
            let margins: Vec<_> = trial
                .counts()
                .chunks(2)
                .map(|pair| (pair[0], pair[1]))
                .collect();
            let value = trial.input::<T>(1).item().unwrap();
            trial.gives(x.pad(&margins, value));
        }
        "tril" => trial.gives(x.tril(trial.axis(0))),
        "triu" => trial.gives(x.triu(trial.axis(0))),
        "diag" => trial.gives(x.diag(trial.axis(0))),
        "sort" => trial.gives(x.sort(trial.axis(0))),
        "argsort" => trial.gives(x.argsort(trial.axis(0))),
        "topk" => trial.gives_both(x.topk(trial.count(0), trial.axis(1))),
        _ => {}
    }
}

/// Returns a selection from `start, stop, step` for each axis.
fn selection(args: &[isize]) -> Vec<SliceInfoElem> {
    let part = |part: &[isize]| SliceInfoElem::Slice {
        start: part[0],
        end: Some(part[1]),
        step: part[2],
    };
    args.chunks(3).map(part).collect()
}

fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let (mut x, indices, source) = (
        trial.input::<T>(0),
        trial.input::<i64>(1),
        trial.input::<T>(2),
    );
    let outcome = x.scatter_add(&indices, &source, trial.axis(0));
    trial.gives(outcome.map(|()| x));
}

fn labels<T: Stored>(trial: &mut Trial<'_>) {
    trial.gives(trial.input::<i64>(0).one_hot::<T>(trial.count(0)));
}
