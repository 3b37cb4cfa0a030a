//! Naive models, which compute each element of a result from the element's coordinates.

use std::cell::OnceCell;

use cachescope::ndarray::{ArrayD, Dimension, IxDyn};
use cachescope::scope::ScopeGuard;
use cachescope::{Array, Device, DeviceConfig, DeviceGuard, Element};
use proptest::prelude::*;
use under_test::device_with;

use crate::strided::{Placement, placement};

/// Calls a function for types of every kind and size.
macro_rules! for_types {
    ($function:ident($($argument:expr),*)) => {
        $function::<bool>($($argument),*);
        $function::<i8>($($argument),*);
        $function::<half::f16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<i64>($($argument),*);
    };
}
pub(crate) use for_types;

/// Enters a scope whose recycled blocks are filled with bits 1: NaN, and an invalid `bool`.
pub(crate) fn dirty_scope() -> (ScopeGuard, DeviceGuard) {
    thread_local! {
        static DEVICE: OnceCell<Device> = const { OnceCell::new() };
    }
    DEVICE.with(|device| {
        let device = device.get_or_init(|| {
            let config = DeviceConfig {
                fill_recycled: Some(0xff),
                ..Default::default()
            };
            device_with(config).unwrap()
        });
        let guard = device.enter();
        (device.scope("model").enter(), guard)
    })
}

/// Generates shapes of up to five axes, some of them empty.
pub(crate) fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        8 => prop::collection::vec(1..5usize, 0..=5),
        1 => prop::collection::vec(0..3usize, 1..=5),
        1 => (20..50usize, 20..50usize).prop_map(|(rows, columns)| vec![rows, columns]),
        1 => (1..3usize, 30..50usize, 2..40usize).prop_map(|(a, b, c)| vec![a, b, c]),
    ]
}

/// Generates shapes of one axis or more.
pub(crate) fn some_dims() -> impl Strategy<Value = Vec<usize>> {
    dims().prop_map(|dims| if dims.is_empty() { vec![3] } else { dims })
}

/// Generates an array of any layout with one axis or more, and the index of an axis. The index may
/// be negative.
pub(crate) fn with_axis() -> impl Strategy<Value = (Placement, isize)> {
    let axis = |dims: Vec<usize>| {
        let rank = dims.len() as isize;
        (placement(dims), -rank..rank)
    };
    some_dims().prop_flat_map(axis)
}

/// Returns the non-negative form of an axis.
pub(crate) fn counted(axis: isize, rank: usize) -> usize {
    axis.rem_euclid(rank as isize) as usize
}

/// Returns a small value for a position.
pub(crate) fn value<T: Element>(at: usize) -> T {
    T::from_f64([0.0, 1.0, -2.0, 3.0, 1.0, -0.0, 5.0, 4.0, 0.0, -1.0, 2.0][at * 7 % 11])
}

/// Returns an array with the value of `element` at each coordinate of `shape`.
pub(crate) fn expected<T: Clone>(shape: &[usize], element: impl Fn(&[usize]) -> T) -> ArrayD<T> {
    ArrayD::from_shape_fn(IxDyn(shape), |index| {
        element(index.as_array_view().as_slice().unwrap())
    })
}

/// Asserts that the array equals `expected`, including the signs of zeros, and NaN.
#[track_caller]
pub(crate) fn alike<T: Element>(array: &Array<T>, expected: &ArrayD<T>) {
    assert_eq!(array.shape(), expected.shape());
    let elements = array.to_vec().unwrap();
    let pairs = elements.iter().zip(expected);
    for (position, (one, other)) in pairs.enumerate() {
        let (one, other) = (format!("{one:?}"), format!("{other:?}"));
        assert_eq!(one, other, "at {position} of {:?}", array.shape());
    }
}

#[test]
fn the_scope_of_models_is_dirty() {
    let _scope = dirty_scope();
    drop(Array::<i32>::zeros(100).unwrap());
    let buffer = cachescope::Buffer::new(&Device::current(), 400).unwrap();
    assert!(Device::current().cache_stats("model").unwrap().hits > 0);
    drop(buffer);
}
