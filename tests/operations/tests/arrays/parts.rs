//! Writes to parts of arrays.

use std::process::Command;
use std::sync::{Arc, Mutex};

use cachescope::ndarray::{ArrayD, Dimension, IxDyn, SliceInfo, SliceInfoElem, s};
use cachescope::{Array, DeviceConfig, ErrorKind, Result, cache_scope, cache_stats};
use proptest::prelude::*;
use under_test::device_with;

use crate::arrays::{dirty_device, fails};
use crate::strided::{Placement, placement};

/// A step that writes to an array, or shares the array's memory.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fill(i32),
    Assign(i32),
    AssignRow(i32),
    Update,
    /// Writes the part's own elements in reverse order.
    Reverse(usize),
    AddAssign(i32),
    KeepArray,
    KeepExpression,
    Forget,
}

/// Random numbers that choose the selection on one axis.
type Choice = (u8, u8, u8, i8);

fn steps() -> impl Strategy<Value = Vec<([Choice; 3], Step)>> {
    let step = prop_oneof![
        any::<i8>().prop_map(|value| Step::Fill(value.into())),
        any::<i8>().prop_map(|value| Step::Assign(value.into())),
        any::<i8>().prop_map(|value| Step::AssignRow(value.into())),
        Just(Step::Update),
        (0..3usize).prop_map(Step::Reverse),
        any::<i8>().prop_map(|value| Step::AddAssign(value.into())),
        Just(Step::KeepArray),
        Just(Step::KeepExpression),
        Just(Step::Forget),
    ];
    let choice = (any::<u8>(), any::<u8>(), any::<u8>(), 1..4i8);
    let choices = prop::array::uniform3(choice);
    prop::collection::vec((choices, step), 1..12)
}

/// Returns a selection of ranges forwards and backwards, with steps, and of single indices. Some of
/// the ranges are empty.
fn selection(dims: &[usize], choices: &[Choice]) -> Vec<SliceInfoElem> {
    let of_axis = |(&length, &(kind, one, other, step)): (&usize, &Choice)| {
        let length = length as isize;
        if kind % 4 == 0 && length > 0 {
            return SliceInfoElem::Index(isize::from(one) % length);
        }
        let bounds = [one, other].map(|bound| isize::from(bound) % (length + 1));
        SliceInfoElem::Slice {
            start: bounds[0].min(bounds[1]),
            end: (kind % 4 != 1).then_some(bounds[0].max(bounds[1])),
            step: isize::from(step) * if kind % 4 == 2 { -1 } else { 1 },
        }
    };
    dims.iter().zip(choices).map(of_axis).collect()
}

fn values(array: &Array<i32>) -> Vec<i32> {
    array.to_vec().unwrap()
}

fn run(placement: &Placement, is_repeated: bool, steps: &[([Choice; 3], Step)]) {
    let mut array = placement.build(|index| index as i32);
    if is_repeated {
        let shape: Vec<usize> = [&[2], array.shape()].concat();
        array = array.broadcast_to(shape).unwrap();
    }
    let mut host: ArrayD<i32> = array.to_ndarray().unwrap();
    let mut kept: Vec<(Array<i32>, ArrayD<i32>)> = vec![];
    let mut expressions = vec![];
    for (choices, step) in steps {
        let parts = selection(array.shape(), choices);
        let info = SliceInfo::<_, IxDyn, IxDyn>::try_from(parts.as_slice()).unwrap();
        let mut there = host.slice_mut(info);
        let shape = there.shape().to_vec();
        let last = shape.last().copied().unwrap_or(1);
        let mut part = array.slice_mut(&parts).unwrap();
        assert_eq!(part.shape(), shape);
        match *step {
            Step::Fill(value) => {
                part.fill(value).unwrap();
                there.fill(value);
            }
            Step::Assign(value) => {
                let source = ArrayD::from_shape_fn(shape, |at| {
                    let place = at.slice().iter().fold(0, |place, &at| place * 7 + at);
                    value.wrapping_add(place as i32)
                });
                part.assign(Array::from_ndarray(&source).unwrap()).unwrap();
                there.assign(&source);
            }
            Step::AssignRow(value) if !shape.is_empty() => {
                let row = Array::arange(value, value + last as i32, 1).unwrap();
                part.assign(row * 2).unwrap();
                for mut line in there.rows_mut() {
                    let row = (0..).map(|at| (value + at) * 2);
                    line.iter_mut().zip(row).for_each(|(to, value)| *to = value);
                }
            }
            Step::AssignRow(value) => {
                part.assign(Array::full([], value).unwrap()).unwrap();
                there.fill(value);
            }
            Step::Update => {
                part.update(|part| part * 3 - 1).unwrap();
                there.mapv_inplace(|value| value.wrapping_mul(3).wrapping_sub(1));
            }
            Step::Reverse(axis) => {
                let Some(axis) = (!shape.is_empty()).then(|| axis % shape.len()) else {
                    continue;
                };
                let reversed = array.slice(&parts).unwrap().flip(axis as isize).unwrap();
                let mut part = array.slice_mut(&parts).unwrap();
                part.assign(reversed + 1).unwrap();
                let mut reversed = there.to_owned();
                reversed.invert_axis(cachescope::ndarray::Axis(axis));
                there.assign(&reversed.mapv(|value| value.wrapping_add(1)));
            }
            Step::AddAssign(value) => {
                part.add_assign(value).unwrap();
                there.mapv_inplace(|old| old.wrapping_add(value));
            }
            Step::KeepArray => kept.push((array.clone(), host.clone())),
            Step::KeepExpression => expressions.push((&array + 0, host.clone())),
            Step::Forget => {
                kept.pop();
                expressions.pop();
            }
        }
        assert_eq!(values(&array), host.iter().copied().collect::<Vec<_>>());
        for (array, host) in &kept {
            assert_eq!(values(array), host.iter().copied().collect::<Vec<_>>());
        }
        for (lazy, host) in &expressions {
            let array = lazy.eval().unwrap();
            assert_eq!(values(&array), host.iter().copied().collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn parts_are_written_as_ndarray_writes_them(
        placement in prop::collection::vec(0..5usize, 0..3).prop_flat_map(placement),
        is_repeated in any::<bool>(),
        steps in steps(),
    ) {
        let device = dirty_device().unwrap();
        let _guard = device.enter();
        cache_scope!("parts", { run(&placement, is_repeated, &steps) });
    }
}

#[test]
fn a_part_is_written_in_place() -> Result<()> {
    let device = dirty_device()?;
    let _guard = device.enter();
    let mut x = Array::<f32>::ones([4, 5])?;
    let address = x.address();
    cache_scope!("in place", {
        x.slice_mut(s![1, ..])?.fill(0.0)?;
        x.slice_mut(s![.., 2])?.update(|part| part + 1.0)?;
        let doubled = &x.slice(s![2.., 1..3])? * 2.0;
        x.slice_mut(s![2.., 1..3])?.assign(doubled)?;
    });
    assert_eq!(x.address(), address);
    let stats = cache_stats("in place").unwrap();
    assert_eq!((stats.misses, stats.copies_on_write), (0, 0));
    assert_eq!(x.sum()?.item()?, 15.0 + 4.0 + 2.0 + 1.0 + 1.0 + 2.0);
    Ok(())
}

#[test]
fn what_others_share_is_copied_and_counted() -> Result<()> {
    let device = dirty_device()?;
    let _guard = device.enter();
    let mut x = Array::<i32>::ones([2, 3])?;
    let (kept, expression) = (x.clone(), &x * 2);
    cache_scope!("copies", {
        x.slice_mut(s![0, ..])?.fill(5)?;
        x.slice_mut(s![1, ..])?.fill(6)?;
        assert_eq!(cache_stats("copies").unwrap().copies_on_write, 1);
        let mut y = kept.clone();
        y.assign(7)?;
        y.scatter_add(&Array::zeros([2, 3])?, &kept, 0)?;
        assert_eq!(cache_stats("copies").unwrap().copies_on_write, 2);
        let mut z = y.clone();
        z.scatter_add(&Array::zeros([2, 3])?, &kept, 0)?;
        cachescope::update((&mut z, &mut y), |(z, y)| (z + 1, y * 1))?;
        assert_eq!(cache_stats("copies").unwrap().copies_on_write, 3);
    });
    assert_eq!(x.to_vec()?, [5, 5, 5, 6, 6, 6]);
    assert_eq!(kept.to_vec()?, [1; 6]);
    assert_eq!(expression.eval()?.to_vec()?, [2; 6]);
    Ok(())
}

#[test]
fn a_handle_that_drops_while_its_array_is_copied_makes_no_second_copy() -> Result<()> {
    const MIB: usize = 1 << 20;
    let device = device_with(DeviceConfig {
        memory_limit: Some(8 * MIB as u64),
        ..Default::default()
    })?;
    let _guard = device.enter();
    let mut x = Array::<u8>::ones(2 * MIB)?;
    // The callback runs after the check for shared memory, and before the copy.
    let dropped = Arc::new(Mutex::new(vec![x.clone(), Array::ones(6 * MIB)?]));
    let _pressure = device.on_memory_pressure({
        let dropped = Arc::clone(&dropped);
        move |_| {
            let given = std::mem::take(&mut *dropped.lock().unwrap());
            given.iter().map(|array| array.size_bytes() as u64).sum()
        }
    });
    let address = x.address();
    cache_scope!("under pressure", { x.assign(&x + 1)? });
    assert!(dropped.lock().unwrap().is_empty());
    assert_ne!(x.address(), address);
    assert_eq!(cache_stats("under pressure").unwrap().copies_on_write, 1);
    assert!(x.to_vec()?.iter().all(|element| *element == 2));
    Ok(())
}

#[test]
fn places_that_a_broadcast_repeats_become_their_own() -> Result<()> {
    let mut x = Array::from_slice(&[1, 2], 2)?.broadcast_to([3, 2])?;
    x.slice_mut(s![1, ..])?.fill(9)?;
    assert_eq!(x.to_vec()?, [1, 2, 9, 9, 1, 2]);
    Ok(())
}

#[test]
fn compound_assignments_broadcast_into_the_array() -> Result<()> {
    let mut x = Array::from_slice(&[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    let row = Array::from_slice(&[10.0, 20.0], 2)?;
    let address = x.address();
    x.add_assign(&row)?;
    x.sub_assign(&row * 0.5)?;
    x.slice_mut(s![.., 0])?.mul_assign(2.0)?;
    x.slice_mut(s![1, ..])?.div_assign(&row)?;
    x.slice_mut(s![0, ..])?.sub_assign(1.0)?;
    assert_eq!(x.to_vec()?, [11.0, 11.0, 1.6, 0.7]);
    assert_eq!(x.address(), address);
    Ok(())
}

#[test]
fn what_does_not_fit_is_named_and_writes_nothing() -> Result<()> {
    let mut x = Array::<f32>::ones([2, 3])?;
    let out = x.slice_mut(s![2, ..]).map(drop);
    fails(
        out,
        ErrorKind::InvalidArgument,
        "slice_mut: the index 2 is out of range for axis 0 of length 2 of the shape [2, 3]",
    );
    fails(
        x.slice_mut(s![..]).map(drop),
        ErrorKind::InvalidArgument,
        "slice_mut: the selection names 1 axis, the shape [2, 3] has 2",
    );
    let long = Array::<f32>::zeros(4)?;
    let outcome = x.slice_mut(s![.., 1..])?.assign(&long);
    fails(
        outcome,
        ErrorKind::ShapeMismatch,
        "does not broadcast to the target [2, 2]",
    );
    let larger = Array::<f32>::zeros([2, 2, 2])?;
    let outcome = x.slice_mut(s![.., 1..])?.add_assign(&larger);
    fails(
        outcome,
        ErrorKind::ShapeMismatch,
        "does not broadcast to the target [2, 2]",
    );
    assert_eq!(x.to_vec()?, [1.0; 6]);
    Ok(())
}

/// The number of writes to views in [`copies`].
const OF_VIEWS: usize = 5;

/// Makes copies on several lines, twice on each line: first copies of views, and then copies of
/// arrays.
fn copies() {
    let x = Array::<f32>::ones([2, 3]).unwrap();
    for _ in 0..2 {
        x.slice(s![0, ..]).unwrap().fill(0.0).unwrap();
        x.transpose().unwrap().assign(2.0).unwrap();
        x.reshape([6]).unwrap().update(|x| x + 1.0).unwrap();
        let mut row = x.unsqueeze(0).unwrap();
        row.slice_mut(s![0, 0, ..]).unwrap().fill(1.0).unwrap();
        x.windows(&[2]).unwrap().fill(0.0).unwrap();
        let mut y = x.clone();
        y.assign(2.0).unwrap();
        y.slice_mut(s![.., 0]).unwrap().fill(1.0).unwrap();
        // The viewed array is dropped, so `z` shares its memory only with the expression `held`.
        let mut z = Array::<f32>::ones(6).unwrap().reshape([2, 3]).unwrap();
        let held = &z * 2.0;
        z.fill(1.0).unwrap();
        drop(held);
    }
    assert_eq!(x.to_vec().unwrap(), [1.0; 6]);
}

/// The test runs this program again as a child, and reads the child's standard error.
#[test]
fn copies_are_reported_once_a_line() {
    const CHILD: &str = "CACHESCOPE_TEST_COPIES";
    if std::env::var_os(CHILD).is_some() {
        return copies();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "arrays::parts::copies_are_reported_once_a_line",
        "--nocapture",
    ]);
    let output = command.env(CHILD, "1").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    let warnings: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("warning"))
        .collect();
    if !cfg!(debug_assertions) {
        assert!(warnings.is_empty(), "{text}");
        return;
    }
    let (views, arrays) = warnings.split_at(OF_VIEWS);
    for view in views {
        for part in [
            "parts.rs",
            "wrote to a copy of this view",
            "since",
            "slice_mut",
        ] {
            assert!(view.contains(part), "{part}: {view}");
        }
    }
    assert_eq!(arrays.len(), 2, "{text}");
    for array in arrays {
        assert!(
            array.contains("copied 24 B before writing") && array.contains("shares"),
            "{array}"
        );
        assert!(!array.contains("slice_mut"), "{array}");
    }
}
