//! Writes in place.

use cachescope::ndarray::s;
use cachescope::{Array, DeviceConfig, ErrorKind, cache_scope, cache_stats};
use proptest::prelude::*;
use under_test::device_with;

use crate::strided::{contiguous, pair};

fn counting(position: usize) -> f32 {
    position as f32
}

#[test]
fn a_step_of_descent_copies_nothing() {
    let mut w = Array::from_slice(&[1.0_f32; 1000], 1000).unwrap();
    let dw = Array::from_slice(&[2.0_f32; 1000], 1000).unwrap();
    let address = w.address();
    cache_scope!("descent", {
        w.assign(&w - 0.25 * &dw).unwrap();
        w.update(|w| w * w + w.square()).unwrap();
        let stats = cache_stats("descent").unwrap();
        assert_eq!(stats.hits + stats.misses, 0);
    });
    assert_eq!(w.address(), address);
    assert_eq!(w.to_vec().unwrap(), [0.5; 1000]);
    assert_eq!(dw.to_vec().unwrap(), [2.0; 1000]);
}

#[test]
fn what_shares_the_memory_keeps_its_values() {
    let mut w = Array::from_slice(&[1.0_f32, 2.0, 3.0], 3).unwrap();
    let address = w.address();
    let clone = w.clone();
    let view = w.slice(s![1..]).unwrap();
    let lazy = &w * 10.0;
    w.assign(&w + 1.0).unwrap();
    assert_ne!(w.address(), address);
    assert_eq!(w.to_vec().unwrap(), [2.0, 3.0, 4.0]);
    assert_eq!(clone.to_vec().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(view.to_vec().unwrap(), [2.0, 3.0]);
    assert_eq!(lazy.eval().unwrap().to_vec().unwrap(), [10.0, 20.0, 30.0]);
    let own = w.address();
    w.fill(0.0).unwrap();
    assert_eq!((w.address(), w.to_vec().unwrap()), (own, vec![0.0; 3]));
}

#[test]
fn another_expression_with_the_array_counts_as_sharing() {
    let mut w = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let address = w.address();
    let step = &w * 0.5;
    w.assign(step.clone()).unwrap();
    assert_ne!(w.address(), address);
    assert_eq!(step.eval().unwrap().to_vec().unwrap(), [0.5, 1.0]);
    assert_eq!(w.to_vec().unwrap(), [0.5, 1.0]);
}

#[test]
fn an_unshared_view_is_written_in_place() {
    let mut odd = Array::from_slice(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], 6).unwrap();
    odd = odd.slice(s![1..;2]).unwrap();
    let address = odd.address();
    odd.assign(&odd * 10.0).unwrap();
    assert_eq!(
        (odd.address(), odd.to_vec().unwrap()),
        (address, vec![10.0, 30.0, 50.0])
    );
    let mut table = Array::from_vec((0..600).map(counting).collect(), [200, 3]).unwrap();
    table = table.transpose().unwrap();
    let before = table.to_vec().unwrap();
    let row = Array::from_vec((0..200).map(counting).collect(), 200).unwrap();
    table.update(|t| t - &row).unwrap();
    let expected: Vec<f32> = before
        .iter()
        .enumerate()
        .map(|(at, x)| x - (at % 200) as f32)
        .collect();
    assert_eq!(table.to_vec().unwrap(), expected);
}

#[test]
fn reading_the_target_in_another_order_is_computed_aside() {
    let values: Vec<f32> = (0..400 * 400).map(counting).collect();
    let mut square = Array::from_slice(&values, [400, 400]).unwrap();
    let address = square.address();
    square
        .assign(&square + square.transpose().unwrap())
        .unwrap();
    assert_eq!(square.address(), address);
    let at = |row: usize, column: usize| values[row * 400 + column];
    let expected: Vec<f32> = (0..400)
        .flat_map(|row| (0..400).map(move |column| (row, column)))
        .map(|(row, column)| at(row, column) + at(column, row))
        .collect();
    assert_eq!(square.to_vec().unwrap(), expected);
    let mut line = Array::from_vec((0..1000).map(counting).collect(), 1000).unwrap();
    let address = line.address();
    line.assign(line.flip(0).unwrap()).unwrap();
    assert_eq!(line.address(), address);
    assert_eq!(
        line.to_vec().unwrap(),
        (0..1000).rev().map(counting).collect::<Vec<_>>()
    );
}

#[test]
fn a_broadcast_target_gets_memory_of_its_own() {
    let mut repeated = Array::from_slice(&[1.0_f32], 1)
        .unwrap()
        .broadcast_to([2, 3])
        .unwrap();
    let counts = Array::from_vec((0..6).map(counting).collect(), [2, 3]).unwrap();
    repeated.assign(&repeated + &counts).unwrap();
    assert_eq!(repeated.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn values_broadcast_to_the_target_only() {
    let mut table = Array::<f32>::zeros([2, 3]).unwrap();
    table
        .assign(Array::from_slice(&[1.0, 2.0, 3.0], 3).unwrap())
        .unwrap();
    assert_eq!(table.to_vec().unwrap(), [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    let before = table.to_vec().unwrap();
    for shape in [&[4, 2, 3][..], &[2, 4], &[3, 2], &[2]] {
        let error = table
            .assign(Array::<f32>::ones(shape).unwrap())
            .unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{text}");
        assert!(
            text.contains("[2, 3]") && text.contains(&format!("{shape:?}")),
            "{text}"
        );
        assert_eq!(table.to_vec().unwrap(), before);
    }
    let mut row = Array::<f32>::zeros(3).unwrap();
    let error = row.assign(&table + 1.0).unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[3]"), "{error}");
    let mut one = Array::<f32>::zeros([0; 0]).unwrap();
    one.assign(5.0).unwrap();
    assert_eq!(one.item().unwrap(), 5.0);
    let mut empty = Array::<f32>::zeros([0, 3]).unwrap();
    empty.update(|x| x + 1.0).unwrap();
    assert!(empty.is_empty());
}

#[test]
fn errors_leave_the_target_as_it_was() {
    let mut x = Array::from_slice(&[1.0_f32, 2.0], 2).unwrap();
    let address = x.address();
    let other = device_with(DeviceConfig::default()).unwrap();
    let foreign = Array::<f32>::ones(2).unwrap().to_device(&other).unwrap();
    let error = x.assign(&foreign * 2.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    let error = x
        .update(|x| x + Array::<f32>::ones(3).unwrap())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
    assert_eq!(
        (x.address(), x.to_vec().unwrap()),
        (address, vec![1.0, 2.0])
    );
}

proptest! {
    #[test]
    fn in_place_equals_out_of_place((target, operand) in pair(), shared in any::<bool>()) {
        let mut x = target.build(counting);
        let y = operand.build(counting);
        let held = shared.then(|| x.clone());
        let before = contiguous(&x);
        let expected = (&before * 2.0 - &y).eval().unwrap().to_vec().unwrap();
        let repeats = target.axes.iter().any(|axis| axis.step == 0 && axis.length > 1);
        let address = x.address();
        x.assign(&x * 2.0 - &y).unwrap();
        prop_assert_eq!(x.to_vec().unwrap(), expected);
        if !x.is_empty() {
            prop_assert_eq!(x.address() == address, !shared && !repeats);
        }
        if let Some(held) = held {
            prop_assert_eq!(held.to_vec().unwrap(), before.to_vec().unwrap());
        }
    }
}
