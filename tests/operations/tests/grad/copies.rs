//! For each call that copies before a write, the warning reports a line of the program. [`CASES`]
//! has a row for each call that writes in place.

use std::process::Command;

use cachescope::collective::{DataParallel, Group, Reduce, Sharded};
use cachescope::grad::arithmetic::axpy;
use cachescope::grad::optim::{
    Accumulated, Adam, AdamW, Average, Clipped, Groups, Lbfgs, Lion, LossScaled, Muon, Sgd,
    Stateful,
};
use cachescope::grad::{Optimizer, value_and_grad, value_and_step};
use cachescope::{Array, Result, update};
use half::f16;
use ndarray::s;

type Case = (&'static str, fn() -> Result<()>);

fn ones() -> Result<Array<f32>> {
    Array::ones([4, 4])
}

/// Steps after a backward pass and within a backward pass, while other handles of the parameter are
/// alive. This is a macro, so that a warning has the line of the row.
macro_rules! step {
    ($optimizer:expr) => {{
        let (mut optimizer, mut x) = ($optimizer, ones()?);
        let held = x.clone();
        optimizer.step(&mut x, &held)?;
        let _again = x.clone();
        value_and_step(&mut x, &mut optimizer, |x| x.sum()).map(drop)
    }};
}

/// Restores a state and steps, while other handles of the state are alive.
macro_rules! restore {
    ($optimizer:expr) => {{
        let (mut optimizer, mut x) = ($optimizer, ones()?);
        optimizer.step(&mut x, &ones()?)?;
        let state = optimizer.state(&x)?;
        optimizer.set_state(&x, &state)?;
        let _again = optimizer.state(&x)?;
        optimizer.step(&mut x, &ones()?)
    }};
}

const CASES: &[Case] = &[
    ("assign", || {
        let mut x = ones()?;
        let held = x.clone();
        x.assign(&held * 2.0)
    }),
    ("update", || {
        let mut x = ones()?;
        let _held = x.clone();
        x.update(|x| x + 1.0)
    }),
    ("fill", || {
        let mut x = ones()?;
        let _held = x.clone();
        x.fill(1.0)
    }),
    ("compound", || {
        let mut x = ones()?;
        let _held = x.clone();
        x.add_assign(1.0)
    }),
    ("slice_mut", || {
        let mut x = ones()?;
        let _held = x.clone();
        x.slice_mut(s![0, ..])?.fill(2.0)
    }),
    ("masked_assign", || {
        let mut x = ones()?;
        let mask = x.gt(0.5).eval()?;
        let _held = x.clone();
        x.masked_assign(&mask, 2.0)
    }),
    ("scatter_add", || {
        let mut x = ones()?;
        let held = x.clone();
        x.scatter_add(&Array::zeros([1, 4])?, &held.slice(s![..1, ..])?, 0)
    }),
    ("scatter", || {
        let mut x = ones()?;
        let held = x.clone();
        x.scatter(&Array::zeros([1, 4])?, &held.slice(s![..1, ..])?, 0)
    }),
    ("update of several", || {
        let (mut x, mut y) = (ones()?, ones()?);
        let held = (x.clone(), y.clone());
        update((&mut x, &mut y), |(x, y)| (x + 1.0, y + 2.0))?;
        drop(held);
        Ok(())
    }),
    ("Sgd", || step!(Sgd::new(0.1))),
    ("momentum", || step!(Sgd::new(0.1).momentum(0.9))),
    ("Adam", || step!(Adam::new(0.1))),
    ("capturable", || step!(AdamW::new(0.1).capturable())),
    ("Lion", || step!(Lion::new(0.1))),
    ("Muon", || step!(Muon::new(0.1))),
    ("Clipped", || step!(Clipped::new(Adam::new(0.1)).norm(1.0))),
    ("LossScaled", || step!(LossScaled::new(AdamW::new(0.1)))),
    ("Groups", || step!(Groups::new(&ones()?, Adam::new(0.1))?)),
    ("state of Sgd", || restore!(Sgd::new(0.1).momentum(0.9))),
    ("state of Adam", || restore!(Adam::new(0.1))),
    ("state of Lion", || restore!(Lion::new(0.1))),
    ("state of Muon", || restore!(Muon::new(0.1))),
    ("Lbfgs", || {
        let mut x = ones()?;
        let _held = x.clone();
        Lbfgs::new(0.1).step(&mut x, |x| x.square().sum()).map(drop)
    }),
    ("axpy", || {
        let mut x = ones()?;
        let held = x.clone();
        axpy(0.5, &held, &mut x)
    }),
    ("axpy in f16", || {
        let mut x = Array::<f16>::ones(2)?;
        let held = x.clone();
        axpy(0.5, &held, &mut x)
    }),
    ("Average", || {
        let mut average = Average::new(&ones()?, 0.5)?;
        let _held = average.parameters().clone();
        average.update(&ones()?)
    }),
    ("Accumulated", || {
        let x = ones()?;
        let mut gradients = Accumulated::new();
        gradients.add(&x, |x| (x * 2.0).sum())?;
        let held = gradients.take_sum()?;
        let mut own = held.clone();
        Sgd::new(0.1).step(&mut own, &held)
    }),
    ("a backward pass", || {
        let (x, index) = (ones()?, Array::<i64>::zeros([1, 4])?);
        value_and_grad(&x, |x| x.gather(&index, 0)?.sum())?;
        let classes = Array::<i64>::zeros(4)?;
        value_and_grad(&x, |x| x.cross_entropy(&classes))?;
        value_and_grad(&x, |x| {
            let mut y = x.exp().eval()?;
            let held = y.clone();
            y.assign(&held + x)?;
            (y * held).sum()
        })?;
        let mut own = ones()?;
        let _held = own.clone();
        own.fill(0.5)
    }),
    ("broadcast", || {
        Group::threads(2, |group| {
            let mut x = ones()?;
            let _held = x.clone();
            group.broadcast_in_place(&mut x, 0)?;
            let _again = x.clone();
            DataParallel::new(&group).broadcast(&mut x)
        })
        .map(drop)
    }),
    ("Sharded", || {
        Group::threads(2, |group| {
            let mut x = ones()?;
            let mut optimizer = Sharded::new(&group, Sgd::new(0.1).momentum(0.9))?;
            let mut parallel = DataParallel::new(&group);
            for _ in 0..2 {
                let _held = x.clone();
                parallel.value_and_step(&mut x, &mut optimizer, |x| x.sum())?;
            }
            let state = optimizer.state(&x)?;
            optimizer.set_state(&state)?;
            let _held = x.clone();
            group.all_reduce_in_place(&mut x, Reduce::Sum)
        })
        .map(drop)
    }),
];

/// The test runs this program again as a child, and reads the child's standard error.
#[test]
fn a_copy_before_a_write_names_a_line_of_the_program() {
    const CHILD: &str = "CACHESCOPE_TEST_COPIES_OF_STEPS";
    const NAME: &str = "copies::a_copy_before_a_write_names_a_line_of_the_program";
    if std::env::var_os(CHILD).is_some() {
        for (name, case) in CASES {
            eprintln!("case {name}");
            case().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        return;
    }
    let (_, parent) = module_path!().split_once("::").unwrap_or_default();
    let test = match parent.strip_suffix("copies") {
        Some(parent) => format!("{parent}{NAME}"),
        None => NAME.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture"]);
    let output = command.env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    if !cfg!(debug_assertions) {
        assert!(!text.contains("warning"), "{text}");
        return;
    }
    let mut parts = text.split("case ");
    parts.next();
    for part in parts {
        let mut lines = part.lines();
        let name = lines.next().unwrap_or_default();
        let warnings: Vec<&str> = lines.filter(|line| line.starts_with("warning")).collect();
        assert!(!warnings.is_empty(), "{name} copied nothing:\n{text}");
        for warning in warnings {
            let location = warning.trim_start_matches("warning: ");
            let file = location.split(':').next().unwrap_or_default();
            assert!(file.ends_with("copies.rs"), "{name}: {warning}");
        }
    }
}
