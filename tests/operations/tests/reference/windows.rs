//! Operations that move, pad and window, by name. Each new operation needs a row.

use cachescope::{Array, ConvOptions, Float, INFER, Numeric, PadMode, meshgrid};
use half::{bf16, f16};

use crate::reference::stored::Stored;
use crate::reference::trial::Trial;

pub(crate) fn run(trial: &mut Trial<'_>) {
    let element = trial.element(0).to_owned();
    match trial.op() {
        "diff" | "max_pool2d" | "conv2d" | "conv1d" => {
            by_type!(trial, &element[..], numbers: numbers);
        }
        "avg_pool2d" => by_type!(trial, &element[..], floats: floats),
        _ => by_type!(trial, &element[..], elements: some),
    }
}

fn elements<T: Stored>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    match trial.op() {
        "roll" => trial.gives(x.roll(trial.axis(0), trial.axis(1))),
        "infer" => {
            let lengths = trial.args().into_iter();
            let shape: Vec<usize> = lengths
                .map(|length| usize::try_from(length).unwrap_or(INFER))
                .collect();
            trial.gives(x.reshape(shape));
        }
        "pad_with" => {
            let mode = [PadMode::Reflect, PadMode::Edge, PadMode::Wrap][trial.count(0)];
            let widths = &trial.counts()[1..];
            let margins: Vec<_> = widths.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            trial.gives(x.pad_with(&margins, mode));
        }
        "windows" => trial.gives(x.windows(&trial.counts())),
        "meshgrid" => {
            let vectors = trial.inputs::<T>();
            trial.gives_all(meshgrid(&vectors.iter().collect::<Vec<_>>()));
        }
        "from_fn" => {
            let (shape, values) = (trial.counts(), x.to_vec().unwrap());
            let number = |index: &[usize]| {
                let axes = index.iter().zip(&shape);
                axes.fold(0, |number, (at, length)| number * length + at)
            };
            trial.gives(Array::from_fn(&shape, |index| values[number(index)]));
        }
        _ => {}
    }
}

fn pairs(trial: &Trial<'_>, first: usize) -> [usize; 2] {
    [trial.count(first), trial.count(first + 1)]
}

fn numbers<T: Stored + Numeric>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    let options = |trial: &Trial<'_>| ConvOptions {
        stride: pairs(trial, 0),
        padding: pairs(trial, 2),
        dilation: pairs(trial, 4),
        groups: trial.count(6),
    };
    match trial.op() {
        "diff" => trial.gives(x.diff(trial.axis(0))),
        "max_pool2d" => trial.gives(x.max_pool2d(pairs(trial, 0), pairs(trial, 2))),
        "conv2d" => trial.gives(x.conv2d(&trial.input(1), options(trial))),
        "conv1d" => trial.gives(x.conv1d(&trial.input(1), options(trial))),
        _ => {}
    }
}

fn floats<T: Stored + Float>(trial: &mut Trial<'_>) {
    let x = trial.input::<T>(0);
    trial.gives(x.avg_pool2d(pairs(trial, 0), pairs(trial, 2)));
}
