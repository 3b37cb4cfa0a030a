//! Arrays in every memory layout that views can produce.

use cachescope::ndarray::SliceInfoElem;
use cachescope::{AnyElement, Array, Element};
use proptest::prelude::*;

/// The memory layout of one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) length: usize,
    /// The stride in elements. It is negative for a reversed axis, and 0 for a broadcast axis.
    pub(crate) step: isize,
    /// The number of elements in memory before the first element of the axis.
    pub(crate) padding: usize,
}

/// The memory layout of an array.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub(crate) axes: Vec<Axis>,
    /// The axes, in order from the slowest in memory to the fastest.
    pub(crate) order: Vec<usize>,
}

impl Placement {
    pub(crate) fn dims(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.length).collect()
    }

    /// Returns an array with this layout. `element` makes each element from its position in memory.
    pub(crate) fn build<T: AnyElement>(&self, element: impl Fn(usize) -> T) -> Array<T> {
        let extent = |axis: &Axis| match axis.step {
            0 => 1,
            step => axis.length * step.unsigned_abs() + axis.padding,
        };
        let memory: Vec<usize> = self
            .order
            .iter()
            .map(|&at| extent(&self.axes[at]))
            .collect();
        let values = (0..memory.iter().product()).map(element).collect();
        let mut back = vec![0; self.order.len()];
        for (position, &axis) in self.order.iter().enumerate() {
            back[axis] = position;
        }
        let selection: Vec<_> = self
            .axes
            .iter()
            .map(|axis| match axis.step {
                0 => SliceInfoElem::from(..),
                step => SliceInfoElem::Slice {
                    start: axis.padding as isize,
                    end: None,
                    step,
                },
            })
            .collect();
        let array = Array::from_vec(values, memory).unwrap();
        let array = array.permute(&back).unwrap().slice(selection).unwrap();
        array.broadcast_to(self.dims()).unwrap()
    }
}

/// Generates any layout of an array of shape `dims`.
pub(crate) fn placement(dims: Vec<usize>) -> impl Strategy<Value = Placement> {
    let count = dims.len();
    let axes: Vec<_> = dims
        .into_iter()
        .map(|length| {
            (-2..=2isize, 0..2usize).prop_map(move |(step, padding)| Axis {
                length,
                step,
                padding,
            })
        })
        .collect();
    let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
    (axes, order).prop_map(|(axes, order)| Placement { axes, order })
}

/// Generates shapes of rank 0 to 4. Some are empty, and some are longer than a block that is
/// gathered at once.
pub(crate) fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        6 => prop::collection::vec(0..6usize, 0..=4),
        1 => (1..4usize, 200..600usize).prop_map(|(rows, columns)| vec![rows, columns]),
        1 => (200..600usize, 1..4usize).prop_map(|(rows, columns)| vec![rows, columns]),
        1 => (1..3usize, 20..40usize, 10..40usize).prop_map(|(a, b, c)| vec![a, b, c]),
        // If the last axis is not dense, the shape is long enough for tiles.
        1 => (17..70usize, 200..500usize).prop_map(|(rows, columns)| vec![rows, columns]),
        1 => (1..4usize, 17..40usize, 250..450usize).prop_map(|(a, b, c)| vec![a, b, c]),
        1 => (250..1100usize).prop_map(|length| vec![length]),
    ]
}

/// Generates the layouts of two arrays of one shape.
pub(crate) fn pair() -> impl Strategy<Value = (Placement, Placement)> {
    shape().prop_flat_map(|dims| (placement(dims.clone()), placement(dims)))
}

/// Generates the layouts of two arrays whose shapes broadcast together and may lack leading axes.
pub(crate) fn broadcast_pair() -> impl Strategy<Value = (Placement, Placement)> {
    let partial = |dims: Vec<usize>| {
        let count = dims.len();
        (prop::collection::vec(any::<bool>(), count), 0..=count).prop_flat_map(
            move |(single, dropped)| {
                let dims = dims.iter().zip(single);
                let dims = dims.map(|(&length, single)| if single { 1 } else { length });
                placement(dims.skip(dropped).collect())
            },
        )
    };
    shape().prop_flat_map(move |dims| (partial(dims.clone()), partial(dims)))
}

/// Returns a contiguous copy.
pub(crate) fn contiguous<T: Element>(array: &Array<T>) -> Array<T> {
    Array::from_vec(array.to_vec().unwrap(), array.shape()).unwrap()
}
